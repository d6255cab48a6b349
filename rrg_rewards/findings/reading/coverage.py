"""Find the words of a report that were not read, so that they do not count as normal."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge
from rrg_rewards.findings.reading.cue_codes import DENYING
from rrg_rewards.findings.reading.finding import Finding
from rrg_rewards.findings.reading.lexicon import Lexicon
from rrg_rewards.findings.reading.mentions import sentence_scope
from rrg_rewards.findings.reading.negation import ABSENT, NegationScope
from rrg_rewards.findings.reading.phrases import Memo, WordBits, union
from rrg_rewards.utilities.yaml_files import package_yaml

# What a word does in a statement. Numbers and signs have no bit, and grammar has none or a few.
_SAYS, _NAMES, _DESCRIBES, _NORMAL, _ABNORMAL, _REMARK, _DONE, _ABOUT, _EXAMINES = (1 << i for i in range(9))
_BODY, _SHOWS, _MEASURE, _UNIT, _VERB, _PLACES, _DENIES, _FOREIGN, _BREAKS, _FITTING = (1 << i for i in range(9, 19))
# The bits from the first of these on count content words, also in a sum of codes; unknown words have the largest codes.
_CONTENT, _UNKNOWN = 1 << 32, 1 << 60
_ROLES = (1 << 19) - 1 | _UNKNOWN
# A statement without any of these is a heading, a place or a size.
_STATES = _UNKNOWN | _SAYS | _VERB | _SHOWS | _PLACES | _DENIES
# Marks of words in the lists: grammar, words that say nothing by themselves whatever else they are, words of phrases.
_GRAMMAR, _NEUTRAL, _LISTED = (1 << i for i in range(19, 22))
# What the words of each section of plain_words.yaml do.
_SECTIONS = {
    "grammar": _GRAMMAR,
    "being": _GRAMMAR | _VERB,
    "placing": _GRAMMAR | _PLACES,
    **dict.fromkeys(("verbs", "doubling", "forms"), _SAYS | _VERB),
    "adverbs": _SAYS,
    "nouns": _SAYS | _NAMES,
    "adjectives": _SAYS | _DESCRIBES,
    **dict.fromkeys(("positions", "regions", "calendar", "perceived"), _NEUTRAL),
    "measures": _NEUTRAL | _MEASURE,
    "units": _NEUTRAL | _UNIT,
    **dict.fromkeys(("agents", "people"), _NEUTRAL | _ABOUT),
    "examinations": _NEUTRAL | _ABOUT | _EXAMINES,
    "anatomy": _NEUTRAL | _BODY,
    "showing": _NEUTRAL | _SHOWS,
    "done": _REMARK | _DONE,
    "remarks": _REMARK,
    "normal": _NORMAL,
    "fitting": _NORMAL | _FITTING,
    "abnormal": _SAYS | _DESCRIBES | _ABNORMAL,
    "foreign": _UNKNOWN | _FOREIGN,
}
# Sections whose words have a plural.
_PLURAL = frozenset({"nouns", "anatomy", "measures", "examinations", "people", "agents"})
# Shorter words are abbreviations.
_SHORTEST_PLURAL = 3
# Knowledge files with phrases of reports, of which all words are known, beside cues.yaml.
_PHRASES = ("attributes", "measurements", "open_findings")
_PHRASE_WORD = re.compile(r"[a-z]+\*?")
# Before it come the findings that are not absent.
_NO_FINDING = (ABSENT, 0, 0)
# Number of words before a normal word in which a denial reverses it: "not in the midline".
_REVERSAL_REACH = 3
# Number of words within which a denial denies whatever comes.
_NEAR = 2
# Endings of adjectives of parts of the body.
_ADJECTIVE_ENDINGS = ("al", "ar", "ic", "ary", "ous")
# Writing systems without spaces between words. Each character counts as a word.
_IDEOGRAPH = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_LETTERS = re.compile("[a-z]+")
_SIZE = re.compile(r"[\d.]+(?:[cm]m)?(?:x[\d.]+(?:[cm]m)?)*")


class UnreadSpan(NamedTuple):
    """Words of a report that were not read.

    Attributes:
        start: Offset of the first character in the report.
        end: Offset after the last character.
        text: The characters from ``start`` to ``end``, as plain text without markup.
    """

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Coverage:
    """How much of a report was read.

    Args:
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


@dataclass(frozen=True)
class Reading(Coverage):
    """The findings of a report, and how much of it was read.

    Args:
        findings: All mentions, in the order of the text.
    """

    findings: tuple[Finding, ...] = ()

    @property
    def coverage(self) -> Coverage:
        """How much of the report was read, without the findings."""
        return Coverage(self.unread, self.num_words, self.num_unread)


PairCoverage = tuple[Coverage, Coverage]
"""How much of a reference and of a candidate was read."""

TokenCoverage = tuple[int, int, tuple[tuple[int, int], ...]]
"""Numbers of content words of a sentence and of unread ones, and first token and token after each sequence of these."""


class CoverageReader:
    """Finds the unread words of sentences.

    A word is known if a phrase of the lexicon, of the other knowledge files or ``plain_words.yaml`` contains it. An
    unknown word is unread, unless its clause denies it or only states what was done in the examination. A statement of
    known words is unread as a whole if it says something, and neither makes a finding, denies something, nor is normal
    or about the examination.

    Args:
        lexicon: Lexicon that findings are read with.

    Example:
        >>> from rrg_rewards.findings.reading.lexicon import load_lexicon
        >>> reader = CoverageReader(load_lexicon("chest"))
        >>> reader.read("coarkted left lung".split(), [])
        (3, 1, ((0, 1),))
        >>> reader.read("no coarkted left lung".split(), [])
        (4, 0, ())
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._codes = Memo(self._code)

    def knows(self, word: str) -> bool:
        """Whether a word in lower case is known."""
        return self._codes[word] < _UNKNOWN

    def _code(self, word: str) -> int:
        """Return what a word does."""
        # Most words are in the lists as they are written.
        marks = _known_words().exact.get(word, 0)
        if not marks & ~_LISTED:
            marks = self._other_marks(word)
        size = 0 if not marks or marks & _GRAMMAR else len(_IDEOGRAPH.findall(word)) or 1
        if self._lexicon.vocabulary[word] & DENYING:
            marks, size = marks | _DENIES, 1
        if word in cue_words("connectives", "separators", "closing"):
            marks |= _BREAKS
        if marks & _NEUTRAL:
            marks &= ~(_SAYS | _NAMES | _DESCRIBES | _VERB)
        elif marks & (_NAMES | _DESCRIBES):
            # "Increase" is rather a noun.
            marks &= ~_VERB
        return marks & _ROLES | size * _CONTENT

    def _other_marks(self, word: str) -> int:
        """Return the marks of a word that is in no section of ``plain_words.yaml`` as it is written."""
        if not word.isascii():
            # The lists are in English: another script, or letters of another script that look like English ones.
            return _UNKNOWN if any(map(str.isalpha, word.rstrip("\u00b2\u00b3"))) else 0
        if not word.isalpha():
            return self._number_marks(word)
        marks = _known_words()[word]
        if marks & ~_LISTED or not word.strip("x"):
            # In British spelling, or the mask "xxxx" of a name that was removed.
            return marks
        code = self._lexicon.vocabulary[word]
        if not (marks and _known_words().is_form(word)) and not (code and self._lexicon.vocabulary.is_form(word)):
            return _UNKNOWN
        return _BODY if code & self._lexicon.sites else _SAYS | _DESCRIBES

    def _number_marks(self, word: str) -> int:
        """Return the marks of a number, measure or level ("5mm", "t12"), or of a word with wrong characters."""
        if _SIZE.fullmatch(word):
            return _UNIT if word[-1] == "m" or "." in word else 0
        parts = _LETTERS.findall(word)
        is_known = len(parts) == 1 and not self._codes[parts[0]] & _UNKNOWN
        return 0 if is_known or sum(map(len, parts)) < _SHORTEST_PLURAL else _UNKNOWN

    def read(
        self,
        tokens: Sequence[str],
        findings: Sequence[tuple[int, int, int]],
        is_told: bool = False,
        doubted: Sequence[tuple[int, int]] = (),
    ) -> TokenCoverage:
        """Return how much of a sentence was read.

        Args:
            tokens: Tokens of the sentence.
            findings: Presence, first token, and token after the last, of each of its findings.
            is_told: Whether the sentence describes the finding before it.
            doubted: First token, and token after the last, of the findings that count as unread, because an unread word
                may deny them.
        """
        codes = list(map(self._codes.__getitem__, tokens))
        said = union(codes)
        is_known = said < _UNKNOWN
        # Words beside a finding that is present describe it.
        is_told = is_told or min(findings, default=_NO_FINDING) < _NO_FINDING
        # A sentence of one clause is read if it makes a finding.
        if is_known and not doubted and (is_told or not said & _STATES or (findings and not said & _BREAKS)):
            return _count(codes), 0, ()
        breaks = [i for i, code in enumerate(codes) if code & _BREAKS]
        sentence = _Sentence(self._lexicon, tokens, codes, findings, breaks)
        unread = (set() if is_known else sentence.unknown()) | (set() if is_told else sentence.unsettled())
        unread.update(i for start, end in doubted for i in range(start, end) if codes[i] >= _CONTENT)
        return _count(codes), _count(codes[i] for i in unread), _spans(unread, codes)


@cache
def coverage_reader(lexicon: Lexicon) -> CoverageReader:
    """Return the reader of a lexicon, which all engines share: what a word does is looked up once."""
    return CoverageReader(lexicon)


class _Sentence(NamedTuple):
    """A sentence whose words are not all read at first sight: its tokens, what they do, and where its clauses begin."""

    lexicon: Lexicon
    tokens: Sequence[str]
    codes: Sequence[int]
    findings: Sequence[tuple[int, int, int]]
    breaks: Sequence[int]

    def unknown(self) -> set[int]:
        """Return the unknown words that the sentence does not deny."""
        # An unknown word with an ending such as "-itis" begins or ends an open finding.
        ends = (i for presence, start, end in self.findings if presence != ABSENT for i in (start, end - 1))
        naming = {i for i in ends if self.tokens[i].isascii()}
        unknown = [i for i, code in enumerate(self.codes) if code >= _UNKNOWN and i not in naming]
        if union(self.codes) & _FOREIGN:
            return {i for i, code in enumerate(self.codes) if code >= _CONTENT}
        # Few words are known in other languages, in which "no" may mean something else.
        if 2 * len(unknown) > _count(self.codes):
            return set(unknown)
        breaks = [
            k
            for k, end in pairwise([*self.breaks, len(self.tokens)])
            if self.tokens[k] not in cue_words("connectives", "alternatives") and not self._is_answer(k, end)
        ]
        return {i for i in unknown if not self._is_explained(i, breaks)}

    def _is_explained(self, i: int, breaks: Sequence[int]) -> bool:
        """Whether the clause of an unknown word denies it, calls it normal, or names equipment and drugs."""
        tokens, codes = self.tokens, self.codes
        after = bisect_left(breaks, i)
        start, end = breaks[after - 1] if after else 0, breaks[after] if after < len(breaks) else len(tokens)
        # "Images were acquired on a Somatom": the examination, and nothing that it shows of the body.
        if union(codes[start:end]) & (_DONE | _ABOUT | _BODY | _SHOWS) == _DONE | _ABOUT:
            return True
        return sentence_scope(self.lexicon, tokens[start:end]).denies(i - start)

    def unsettled(self) -> set[int]:
        """Return the words of the statements of known words that were not understood."""
        unread: set[int] = set()
        found = {i for _, first, last in self.findings for i in range(first, last)}
        for start, end in self._statements():
            if self._is_read(start, end, found):
                continue
            breaks = self.breaks[bisect_left(self.breaks, start + 1) : bisect_left(self.breaks, end)]
            if not all(self._is_read(*clause, found) for clause in pairwise([start, *breaks, end])):
                unread.update(i for i in range(start, end) if self.codes[i] >= _CONTENT)
        return unread

    def _statements(self) -> Iterator[tuple[int, int]]:
        """Yield the bounds of the statements of the sentence.

        A clause without a verb belongs to the statement before it, unless it says something of the body ("the heart is
        normal, stomach above the diaphragm"), or else to the next one ("heart, hila and mediastinum are normal").
        """
        start, said, size = 0, 0, len(self.tokens)
        for begin, end in pairwise([0, *self.breaks, size]):
            clause = union(self.codes[begin:end]) & ~_BREAKS
            if said and not self._is_answer(begin, end) and self._is_own(start, begin, clause, said):
                yield start, begin
                start, said = begin, 0
            # "If symptoms persist, ..."
            is_condition = self.tokens[start] in cue_words("connectives", "conditions")
            said |= clause & ~(_VERB | _NORMAL | _DENIES) if is_condition else clause
        yield start, size

    def _is_answer(self, begin: int, end: int) -> bool:
        """Whether a clause only denies what it follows: "effusion: none seen", "edema (-)", not "hilum: no mass"."""
        # Most clauses begin otherwise.
        if self.tokens[begin] not in (":", "("):
            return False
        codes = self.codes[begin:end]
        further = union(code for code in codes if not code & _DENIES)
        return bool(union(codes) & _DENIES) and not further & (_NAMES | _DESCRIBES | _BODY | _UNKNOWN)

    def _is_own(self, start: int, begin: int, clause: int, said: int) -> bool:
        """Whether the clause from ``begin`` is no part of the statement from ``start``."""
        link, before, nexts = self.tokens[begin], self.codes[begin - 1], self.tokens[begin : begin + 2]
        if not cue_words("connectives", "excepting").isdisjoint((self.tokens[start], *nexts)):
            return True
        # "No effusion or edema is seen", "lungs are without consolidation", "higher than the right, which is usual"
        is_comment = clause & _NORMAL and not cue_words("connectives", "commenting").isdisjoint(nexts)
        if is_comment or link in cue_words("connectives", "alternatives") or before == _VERB:
            return False
        # "Bowed trachea, no effusion", "the lungs are smooth but small", "Findings: the stomach is in the chest"
        is_denial = said & _DESCRIBES and union(self.codes[begin : begin + 2]) & _DENIES
        is_contrast = link == "but" and said & _NORMAL and clause & _SAYS
        if is_denial or is_contrast or (link == ":" and said & _REMARK):
            return True
        is_said = bool(said & (_VERB | _NORMAL | _DENIES))
        if clause & _VERB or not is_said:
            return is_said
        # "No effusion was seen in the left and in the right pleural space", "no lesion compatible with thrombus"
        if (link == "and" and said & _DENIES) or (link == "with" and before & (_DESCRIBES | _NORMAL) == _DESCRIBES):
            return False
        is_place = cue_words("connectives", "prepositions").issuperset(self.tokens[begin + 1 : begin + 2])
        return bool(clause & _BODY and clause & (_DESCRIBES | _PLACES)) and not is_place

    def _is_read(self, start: int, end: int, found: set[int]) -> bool:
        """Whether a statement of known words was understood; ``found`` are the words of the findings."""
        codes = self.codes
        said = union(codes[start:end])
        # The other words of a statement with an unknown word count as read.
        if said >= _UNKNOWN or not said & _STATES or not found.isdisjoint(range(start, end)):
            return True
        if not said & _ABNORMAL:
            is_size = said & _UNIT and not said & (_DESCRIBES if said & _MEASURE else _SAYS)
            if is_size or self._is_about(start, end, said):
                return True
            if said & _NORMAL and any(codes[i] & _NORMAL and self._is_normal(start, i) for i in range(start, end)):
                return True
        return self._is_denied(start, end)

    def _is_about(self, start: int, end: int, said: int) -> bool:
        """Whether a statement is about the examination or a person, and nothing that is shown of the body."""
        if said & (_SHOWS | _REMARK):
            return not said & _SHOWS
        first = self.tokens[start]
        if not said & _BODY:
            # "As far as can be seen"
            return bool(said & _ABOUT) or first in cue_words("connectives", "conditions")
        # "The lower edge of the film cuts off the left angle": the film is named first, and not after "on".
        subject = next(code for code in self.codes[start:end] if code & (_BODY | _EXAMINES))
        return bool(subject & _EXAMINES) and first not in cue_words("connectives", "prepositions")

    def _is_normal(self, begin: int, i: int) -> bool:
        """Whether a normal word of the statement from ``begin`` is not denied, and describes a part of the body."""
        # "Sharp angles", "the angles are sharp" and "well expanded", but not "a sharp line"
        near = union([*self.codes[begin:i], *self.codes[i + 1 : i + 3]])
        if self.codes[i] & _FITTING and not near & (_BODY | _MEASURE | _NORMAL):
            return False
        # "Not in the midline", "lower than usual"
        start = max(0, i - _REVERSAL_REACH, *(k for k in self.breaks if k < i))
        lists = ("reversing", "leaving") if self.tokens[i] in cue_words("denials", "middle") else ("reversing",)
        reversing = cue_words("denials", *lists)
        return not any(self.codes[k] & _DENIES or self.tokens[k] in reversing for k in range(start, i))

    def _is_denied(self, start: int, end: int) -> bool:
        """Whether a statement denies something abnormal, and not an organ ("no left kidney")."""
        codes, tokens = self.codes, self.tokens
        denials = [i for i, code in enumerate(codes) if code & _DENIES]
        scope: NegationScope | None = None
        for i in range(start, end) if denials else ():
            if not codes[i] & (_NAMES | _DESCRIBES) or codes[i] & (_NORMAL | _DENIES):
                continue
            # "Does not reach", "the breath did not fill"
            near = i > 1 and i - 1 in denials and tokens[i - 2] in cue_words("connectives", "helping")
            if near or (codes[i] & _NAMES and denials[0] > i):
                continue
            scope = scope or sentence_scope(self.lexicon, tokens)
            if scope.denies(i) or any(start <= k < i <= k + _NEAR for k in denials):
                return True
        return False


def _count(codes: Iterable[int]) -> int:
    """Return the number of content words with some codes."""
    return sum(codes) % _UNKNOWN // _CONTENT


def _spans(unread: Iterable[int], codes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the bounds of each sequence of unread words and the grammar between them."""
    spans: list[tuple[int, int]] = []
    for i in sorted(unread):
        is_next = spans and all(code < _CONTENT for code in codes[spans[-1][1] : i])
        spans.append((spans.pop()[0] if is_next else i, i + 1))
    return tuple(spans)


def precedes_noun(word: str) -> bool:
    """Whether a word neither names nor does anything, so that a noun must follow, as after "tiny" or "mediastinal".

    Example:
        >>> [word for word in "no tiny mediastinal nodule is seen".split() if precedes_noun(word)]
        ['no', 'tiny', 'mediastinal']
    """
    marks = _known_words()[word] & ~_LISTED
    if word in cue_words("denials", "always") or word in cue_words("adjectives", "descriptive", "doubting", "further"):
        return True
    if marks & _BODY or not marks & ~_NEUTRAL:
        return word.endswith(_ADJECTIVE_ENDINGS)
    return bool(marks & (_GRAMMAR | _DESCRIBES)) and not marks & (_VERB | _NAMES)


def is_verb(word: str) -> bool:
    """Whether a word can be a verb of a statement, or the person before one.

    Example:
        >>> [word for word in "you exclude effusion".split() if is_verb(word)]
        ['you', 'exclude']
    """
    return bool(_known_words()[word] & _VERB) or word in cue_words("errors", "persons")


def is_general_word(word: str) -> bool:
    """Whether a word is general English: neither a finding, a part of the body or a position, nor a description.

    Example:
        >>> [word for word in "there is a small nodule in the right lobe".split() if is_general_word(word)]
        ['there', 'is', 'a', 'in', 'the']
    """
    marks = _known_words()[word] & ~_LISTED
    if not marks & _NEUTRAL:
        return bool(marks & (_GRAMMAR | _VERB)) or (bool(marks) and not marks & (_BODY | _DESCRIBES | _UNIT))
    if marks & (_BODY | _DESCRIBES | _UNIT):
        return False
    return bool(marks & (_MEASURE | _ABOUT | _SHOWS)) or word in load_knowledge("plain_words")["perceived"].split()


@cache
def _known_words() -> WordBits:
    """Return the marks of the words in ``plain_words.yaml`` and in the phrases of the other lists that readers use."""
    lists = [*map(load_knowledge, _PHRASES), package_yaml("rrg_rewards.findings.lexicon", "cues")]
    words = WordBits((word, _LISTED) for word in _PHRASE_WORD.findall(repr(lists)))
    for section, bits in _SECTIONS.items():
        for word in load_knowledge("plain_words")[section].split():
            for form, is_finite in _forms(word, section):
                words.add(form, bits if is_finite else bits & ~_VERB)
    return words


def _forms(word: str, section: str) -> Iterator[tuple[str, bool]]:
    """Yield a word of a section and its regular forms, each with whether it can be finite.

    Example:
        >>> [form for form, _ in _forms("carry", "verbs")], [form for form, _ in _forms("base", "nouns")]
        (['carry', 'carries', 'carried', 'carrying'], ['base', 'bases', 'based', 'basing'])
        >>> [form for form, is_finite in _forms("plan", "doubling") if is_finite]
        ['plan', 'plans']
    """
    yield word, True
    is_verb, ends_in_y = section in ("verbs", "doubling"), word.endswith("y") and word[-2:-1] not in "aeiou"
    if is_verb or (section in _PLURAL and len(word) >= _SHORTEST_PLURAL):
        ending = "es" if word.endswith(("s", "x", "z", "ch", "sh", "o")) else "s"
        yield word[:-1] + "ies" if ends_in_y else word + ending, True
    if is_verb or section == "nouns":
        stem = word + word[-1] if section == "doubling" else word
        yield word[:-1] + "ied" if ends_in_y else stem.removesuffix("e") + "ed", False
        yield (stem if stem.endswith("ee") else stem.removesuffix("e")) + "ing", False
