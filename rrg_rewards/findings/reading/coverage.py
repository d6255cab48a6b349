"""Find the words of a report that were not read, so that they do not count as normal."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.lexicon.cues import cue_words
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.findings.reading.lexicon import Lexicon
from rrg_rewards.findings.reading.mentions import sentence_scope
from rrg_rewards.findings.reading.negation import ABSENT, BE, DENYING, DOUBT, SHOW, NegationScope
from rrg_rewards.findings.reading.phrases import WordBits, WordTable, union
from rrg_rewards.utilities.yaml_files import package_yaml

# What a word is and does in a statement. Grammar, numbers and signs have no bit; every content word has the first.
_CONTENT, _UNKNOWN, _SAYS, _SETTLES, _DESCRIBES, _DONE, _ABOUT, _BODY = (1 << i for i in range(8))
_ROLES = (1 << 8) - 1
# The code of an unknown word.
_FOREIGN = _CONTENT | _UNKNOWN
# Marks of the words of plain_words.yaml: any of them, grammar, and words that say nothing by themselves.
_PLAIN, _GRAMMAR, _NEUTRAL = (1 << i for i in range(8, 11))
# Marks of the words in the phrases of other lists: any of them, and those that settle a statement.
_LISTED, _MAY_SETTLE = (1 << i for i in range(11, 13))
_SECTIONS = {
    "grammar": _GRAMMAR,
    **dict.fromkeys(("verbs", "doubling", "forms", "adverbs", "nouns", "adjectives"), _SAYS),
    **dict.fromkeys(("positions", "regions", "measures", "calendar"), _NEUTRAL),
    **dict.fromkeys(("examinations", "people"), _NEUTRAL | _ABOUT),
    "anatomy": _NEUTRAL | _BODY,
    "done": _SETTLES | _DONE,
    "remarks": _SETTLES,
    "normal": _SETTLES,
    "described": _SAYS | _DESCRIBES,
}
# Sections whose words have a plural.
_PLURAL = frozenset({"nouns", "anatomy", "measures", "examinations", "people"})
# Shorter words are abbreviations.
_SHORTEST_PLURAL = 3
# Lists of open_findings.yaml whose words settle a statement: it is normal or about the examination.
_SETTLING = ("normal", "explained", "technical")
# Lists of knowledge files that contain no phrases of reports.
_NO_PHRASES = frozenset({"suffixes", "exceptions", "vague", "units", "spellings", "upper", "lower"})
# Sections of cues.yaml that are compiled into each lexicon.
_COMPILED = frozenset({"groups", "cues", "compounds"})
_PHRASE_WORD = re.compile(r"[a-z]+\*?")
# Number of lengths of sentences for which a result is kept.
_MOST_LENGTHS = 512
# Writing systems without spaces between words. Each character counts as a word.
_IDEOGRAPH = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


class UnreadSpan(NamedTuple):
    """Words of a report that were not read.

    Attributes:
        start: Offset of the first character in the report.
        end: Offset after the last character.
        text: The report's characters from ``start`` to ``end``.
    """

    start: int
    end: int
    text: str


class Coverage(NamedTuple):
    """How much of a report was read.

    Attributes:
        unread: The words that were not read, in the order of the text.
        num_words: Number of content words of the report, without its sections on the request and the technique.
        num_unread: Number of content words in ``unread``.
    """

    unread: tuple[UnreadSpan, ...] = ()
    num_words: int = 0
    num_unread: int = 0

    @property
    def unread_share(self) -> float:
        """Share of the content words that were not read, from 0 to 1; 0 without content words."""
        return self.num_unread / self.num_words if self.num_words else 0.0


class Reading(NamedTuple):
    """The findings of a report, and how much of it was read.

    Attributes:
        findings: All mentions, in the order of the text.
        coverage: The words that were not read.
    """

    findings: tuple[Finding, ...]
    coverage: Coverage

    @property
    def unread(self) -> tuple[UnreadSpan, ...]:
        """The words that were not read, in the order of the text."""
        return self.coverage.unread

    @property
    def num_words(self) -> int:
        """Number of content words of the report."""
        return self.coverage.num_words

    @property
    def num_unread(self) -> int:
        """Number of content words that were not read."""
        return self.coverage.num_unread

    @property
    def unread_share(self) -> float:
        """Share of the content words that were not read, from 0 to 1."""
        return self.coverage.unread_share


class TokenSpan(Protocol):
    """A finding at tokens ``start`` to ``end`` of a sentence."""

    @property
    def presence(self) -> int:
        """``PRESENT``, ``UNCERTAIN`` or ``ABSENT``."""

    @property
    def start(self) -> int:
        """First token."""

    @property
    def end(self) -> int:
        """Token after the last."""


class TokenCoverage(NamedTuple):
    """How much of a sentence was read.

    Attributes:
        num_words: Number of content words.
        num_unread: Number of content words in ``spans``.
        spans: First token, and token after the last, of each sequence of unread words.
    """

    num_words: int
    num_unread: int = 0
    spans: tuple[tuple[int, int], ...] = ()


@lru_cache(maxsize=_MOST_LENGTHS)
def _all_read(num_words: int) -> TokenCoverage:
    """Return the coverage of a sentence without unread words; most sentences are such."""
    return TokenCoverage(num_words)


class CoverageReader:
    """Finds the unread words of sentences.

    A word is known if a phrase of the lexicon, of the other knowledge files or ``plain_words.yaml`` contains it. An
    unknown word is unread, unless its clause denies it or its sentence only states what was done in the examination. A
    sentence of known words is unread as a whole if it says something, and neither makes a finding, denies one, nor is
    normal, about the examination or about the finding before.

    Args:
        lexicon: Lexicon that findings are read with.

    Example:
        >>> from rrg_rewards.findings.reading.lexicon import load_lexicon
        >>> reader = CoverageReader(load_lexicon("chest"))
        >>> reader.read("coarctation of the aorta".split(), [])
        TokenCoverage(num_words=2, num_unread=1, spans=((0, 1),))
        >>> reader.read("no coarctation of the aorta".split(), []).num_unread
        0
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._descriptive = cue_words("adjectives", "descriptive")
        self._separators = cue_words("connectives", "separators")
        # Codes of unknown and of describing words, and of those that settle a statement.
        self._noticed: set[int] = set()
        self._settling: set[int] = set()
        self._codes = WordTable(self._code)

    @cached_property
    def _words(self) -> WordBits:
        # Made when the first sentence is read, because many engines are used for masks only.
        return _known_words()

    def _code(self, word: str) -> int:
        """Return what a word is and does."""
        # Most words are in the lists as they are written.
        marks = self._words.exact.get(word, 0)
        if marks & _GRAMMAR:
            code = _CONTENT | _SETTLES if self._lexicon.words[word] & DENYING else 0
        elif marks & _NEUTRAL:
            code = _CONTENT | marks & _ROLES & ~_SAYS
        else:
            code = self._other_code(word)
        if code & (_UNKNOWN | _DESCRIBES):
            self._noticed.add(code)
        if code & _SETTLES:
            self._settling.add(code)
        return code

    def _other_code(self, word: str) -> int:
        """Return the code of a word that is neither grammar nor neutral, unless it is in another spelling."""
        if not word.isascii():
            # The lists are in English: another script, or letters of another script that look like English ones.
            return _FOREIGN if any(map(str.isalpha, word)) else 0
        if not word.isalpha() or not word.strip("x"):
            # Numbers, measures and levels such as "5mm" and "t12", and the mask "xxxx" of a name that was removed.
            return 0
        marks, code = self._words[word], self._lexicon.words[word]
        if marks & _NEUTRAL:
            return _CONTENT | marks & _ROLES & ~_SAYS
        settles = _SETTLES if marks & _MAY_SETTLE or code & DENYING else 0
        if marks & _PLAIN:
            return _CONTENT | marks & _ROLES | settles
        if code & self._lexicon.sites:
            return _CONTENT | _BODY | settles
        if word in self._descriptive:
            return _CONTENT | _BODY | _SAYS | (settles or _DESCRIBES)
        if code or marks:
            return _CONTENT | _BODY | _SAYS | settles
        return _FOREIGN

    def read(
        self, tokens: Sequence[str], findings: Sequence[tuple[TokenSpan, Any]], continues: bool = False
    ) -> TokenCoverage:
        """Return how much of a sentence was read.

        Args:
            tokens: Tokens of the sentence.
            findings: Its findings, each with its attributes, which are not used.
            continues: Whether the sentence describes the finding before it.
        """
        codes = list(map(self._codes.__getitem__, tokens))
        num_words = len(codes) - codes.count(0)
        is_present = False
        for finding, _ in findings:
            if finding.presence != ABSENT:
                is_present = True
                break
        # Most sentences end here. Few different codes exist, and these tests are faster than the union of all codes.
        if is_present:
            # A description is about a finding of its sentence.
            if _FOREIGN not in codes:
                return _all_read(num_words)
        elif (findings or continues or not self._settling.isdisjoint(codes)) and self._noticed.isdisjoint(codes):
            return _all_read(num_words)
        sentence = union(codes)
        # "An interpreter was present": about the examination or a person, and not about the body.
        is_settled = bool(findings or continues or sentence & _SETTLES or sentence & (_ABOUT | _BODY) == _ABOUT)
        if not sentence & (_UNKNOWN | _DESCRIBES | _SAYS) or (is_settled and not sentence & (_UNKNOWN | _DESCRIBES)):
            return _all_read(num_words)
        unread = self._unread(tokens, codes, [finding for finding, _ in findings], is_settled, is_present)
        if not unread and not sentence & _UNKNOWN:
            return _all_read(num_words)
        sizes = [_size(token, code) for token, code in zip(tokens, codes, strict=True)]
        return TokenCoverage(sum(sizes), sum(sizes[i] for i in unread), tuple(_spans(unread, codes)))

    def _unread(
        self,
        tokens: Sequence[str],
        codes: Sequence[int],
        findings: Sequence[TokenSpan],
        is_settled: bool,
        is_present: bool,
    ) -> list[int]:
        """Return the unread words of a sentence, in order."""
        # An unknown word with an ending such as "-itis" begins or ends an open finding.
        naming = {i for finding in findings for i in (finding.start, finding.end - 1) if tokens[i].isascii()}
        unknown = [i for i, code in enumerate(codes) if code & _UNKNOWN and i not in naming]
        if not unknown and not is_settled:
            return _content(codes, 0, len(codes))
        named = {i for finding in findings for i in range(finding.start, finding.end)}
        described = [] if is_present else [i for i, code in enumerate(codes) if code & _DESCRIBES and i not in named]
        if not unknown and not described:
            return []
        scope = sentence_scope(self._lexicon, tokens)
        # "Images were acquired on a Somatom": the examination, and nothing that it shows of the body.
        if union(codes) & (_DONE | _ABOUT | _BODY) == _DONE | _ABOUT and not scope.kinds & (SHOW | DOUBT):
            unknown = []
        unread = {i for i in unknown if not self._is_denied(tokens, codes, i, scope)}
        for i in described:
            start, end = self._clause(tokens, i)
            if not union(codes[start:end]) & _SETTLES and not self._is_denied(tokens, codes, i, scope):
                unread.update(_content(codes, start, end))
        return sorted(unread)

    def _is_denied(self, tokens: Sequence[str], codes: Sequence[int], i: int, scope: NegationScope) -> bool:
        """Whether the sentence denies a token or calls it normal."""
        if not scope.denies(i):
            return False
        # "There is no effusion, and the aorta is coarcted": a clause with a verb of its own is not a part of the list.
        start, end = self._clause(tokens, i)
        has_verb = any(code & BE for code in scope.codes[start:i])
        return not has_verb or bool(union(codes[start:end]) & _SETTLES)

    def _clause(self, tokens: Sequence[str], i: int) -> tuple[int, int]:
        """Return the bounds of the words around a token that no separator divides."""
        start = next((k + 1 for k in range(i, -1, -1) if tokens[k] in self._separators), 0)
        return start, next((k for k in range(i, len(tokens)) if tokens[k] in self._separators), len(tokens))


def _content(codes: Sequence[int], start: int, end: int) -> list[int]:
    """Return the indices of the content words among some tokens."""
    return [i for i in range(start, end) if codes[i] & _CONTENT]


def _size(token: str, code: int) -> int:
    """Return the number of content words in a token."""
    if not code & _CONTENT:
        return 0
    return max(1, len(_IDEOGRAPH.findall(token))) if code & _UNKNOWN else 1


def _spans(unread: Sequence[int], codes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each sequence of unread words and the grammar between them."""
    start = end = -1
    for i in unread:
        if start >= 0 and any(code & _CONTENT for code in codes[end:i]):
            yield start, end
            start = -1
        start, end = (i if start < 0 else start), i + 1
    if start >= 0:
        yield start, end


@cache
def _known_words() -> WordBits:
    """Return the marks of the words in ``plain_words.yaml`` and in the phrases of the other lists that readers use."""
    words = WordBits()
    for section, bits in _SECTIONS.items():
        for word in load_knowledge("plain_words")[section].split():
            for form in _forms(word, section):
                words.add(form, _PLAIN | bits)
    cues = package_yaml("rrg_rewards.findings.lexicon", "cues")
    lists = [
        *(load_knowledge(name) for name in ("attributes", "measurements", "open_findings")),
        {section: content for section, content in cues.items() if section not in _COMPILED},
    ]
    for phrase in _phrases(lists):
        for word in _PHRASE_WORD.findall(phrase):
            words.add(word, _LISTED)
    for name in _SETTLING:
        for phrase in load_knowledge("open_findings")[name]:
            # A word of a longer phrase means something else by itself.
            for word in _PHRASE_WORD.findall(phrase) if " " not in phrase else ():
                words.add(word, _MAY_SETTLE)
    return words


def _forms(word: str, section: str) -> Iterator[str]:
    """Yield a word of a section with its regular forms.

    Example:
        >>> list(_forms("carry", "verbs")), list(_forms("base", "nouns"))
        (['carry', 'carries', 'carried', 'carrying'], ['base', 'bases'])
        >>> list(_forms("plan", "doubling"))
        ['plan', 'plans', 'planned', 'planning']
    """
    yield word
    is_verb = section in ("verbs", "doubling")
    if not is_verb and (section not in _PLURAL or len(word) < _SHORTEST_PLURAL):
        return
    ends_in_y = word.endswith("y") and word[-2:-1] not in "aeiou"
    yield word[:-1] + "ies" if ends_in_y else word + ("es" if word.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")
    if is_verb:
        stem = word + word[-1] if section == "doubling" else word
        yield word[:-1] + "ied" if ends_in_y else stem.removesuffix("e") + "ed"
        yield (stem if stem.endswith("ee") else stem.removesuffix("e")) + "ing"


def _phrases(lists: Any) -> Iterator[str]:
    """Yield the texts in nested lists and mappings."""
    if isinstance(lists, str):
        yield lists
    elif isinstance(lists, Mapping):
        for name, content in lists.items():
            if name not in _NO_PHRASES:
                yield from _phrases(content)
    elif isinstance(lists, Iterable):
        for content in lists:
            yield from _phrases(content)
