"""Check whether a judge's findings are in the report, and whether their list is complete."""

import re
import unicodedata
from collections.abc import Collection, Iterator
from functools import lru_cache

from rrg_rewards.findings import extract_findings

GROUNDING = 0.6
"""Minimum share of a finding's content words that one sentence of its report must contain.

Measured on the 150 reports of 50 RadPref cases and the 329 findings that annotators listed for them: 0.6 accepts 97.0 %
of the findings for their own report and rejects 96.5 % of them for a random other one (0.5: 98.5 % and 91.5 %; 0.67:
94.2 % and 98.3 %); of 109 lists that are not empty, 101 pass as a whole. Six of the ten rejected findings are
diagnoses that the report does not name, such as "congestive heart failure". Most findings that are accepted for another
report are also stated or denied there; negations are not recognised.
"""

COVERAGE = 0.5
"""Minimum share of a report's concepts, found present by rules, that a judge's list must mention.

Measured as above: all 150 lists of the annotators pass. Of the 109 that are not empty, 107 would fail if they were
emptied, and of the 85 with two or more findings, 49 would fail if only one of them were left.
"""

# Devices outside the body, which annotators often leave out.
_OPTIONAL = frozenset({"monitoring_leads"})
_TOKEN = re.compile(r"[^\W\d_]+\d+|[^\W\d_]+|\d+(?:\.\d+)?")
_PLAIN_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"\.(?!\d)|[\n\r;!?]")
_QUANTITY = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(?:[ -]?(mm|cm|millimet\w+|centimet\w+)\b)?")
# Text between numbers that share a unit, as in "2 x 3 cm" and "2-3 cm".
_SHARING = re.compile(r"\s*(?:x|by|to|-)\s*")
_CODE = re.compile(r"```.*?(?:```|\Z)|\{.*\}|\{.*", re.DOTALL)
# "Here is the report:" before such a text.
_INTRODUCTION = re.compile(r"[^\n.]*:\s*(?= \. )")
_DENIAL = re.compile(r"\W*(?:no|not|none|without|absent|absence|negative|never|neither|free)\b", re.IGNORECASE)
# Separators of the parts of an answer, which may be in different sentences.
_LIST = re.compile(r"[,;]|\band\b")
_SUFFIXES = """
a ae al ally ar ary ated ating ation ations ative e ed ement ements ened ening es ia ic ical ies ification ifications
ified ing ion ions is ity ities ize ized ly ment ness ous s tic tics um us y
"""
_LONGEST_FIRST = sorted(_SUFFIXES.split(), key=len, reverse=True)
_SHORTEST_STEM = 4
# The last line contains units, because measurements are compared as numbers.
_STOP_WORDS = """
a again also an and appear appearance appearing appears are as at be been being by compatible consistent demonstrated
especially evidence finding findings for from had has have identified in into involvement involving is it its known
less likely may more most near noted now of on or over overlying particularly possible possibly predominantly present
previous prior probable probably prominent prominently seen status post suggest suggesting suggestive suggests than
that the there these this those to versus visualized vs was were which with within without
x cm mm centimeter centimeters centimetre centimetres millimeter millimeters millimetre millimetres
"""
_STOPS = frozenset(_STOP_WORDS.split())


def prose(report: str) -> str:
    """Remove text in braces and in code fences from a report, even if they are not closed.

    Reports do not contain them, but prepared answers for judges do.

    Example:
        >>> prose('Clear lungs. {"finding": "pneumothorax"} No effusion.')
        'Clear lungs.  .  No effusion.'
    """
    # NFKC maps full-width braces to braces.
    text = report if report.isascii() else unicodedata.normalize("NFKC", report)
    return _CODE.sub(" . ", text) if "{" in text or "```" in text else report


def readings(report: str) -> tuple[str, ...]:
    """Return a report, and its prose if that is another text; a report that is JSON or code as a whole has none.

    Example:
        >>> readings('{"heart": "enlarged"}'), len(readings('Clear lungs. {"heart": "enlarged"}'))
        (('{"heart": "enlarged"}',), 2)
    """
    text = prose(report)
    is_whole = text == report or not any(map(str.isalpha, _INTRODUCTION.sub("", text)))
    return (report,) if is_whole else (report, text)


def plain_words(text: str) -> list[str]:
    """Return the words and numbers of a text, case and punctuation aside.

    Example:
        >>> plain_words("No effusion, no Nodule.")
        ['no', 'effusion', 'no', 'nodule']
    """
    return _PLAIN_WORD.findall(text.casefold())


def is_denial(quote: str) -> bool:
    """Whether a quote begins with a word that denies what follows.

    Example:
        >>> is_denial("No pleural effusion"), is_denial("nodule without calcification")
        (True, False)
    """
    return _DENIAL.match(quote) is not None


@lru_cache(maxsize=1 << 14)
def content_words(text: str) -> frozenset[str]:
    """Return the stems of the content words of a text.

    Example:
        >>> sorted(content_words("Likely enlargement of the T12 nodules, 3 mm"))
        ['enlarg', 'nodul', 't12']
    """
    return frozenset(_words(_folded(text)))


def _folded(text: str) -> str:
    """Return the text in lower case, without accents and invisible characters."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in text if char.isascii() or unicodedata.category(char) not in ("Mn", "Cf"))


def _words(folded: str) -> Iterator[str]:
    for token in _TOKEN.findall(folded):
        if token not in _STOPS and not token[0].isdigit():
            yield token if token[-1].isdigit() else _stem(token)


@lru_cache(maxsize=1 << 14)
def _stem(word: str) -> str:
    for suffix in _LONGEST_FIRST:
        if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST_STEM:
            return word[: -len(suffix)]
    return word


def _quantities(folded: str) -> list[tuple[float, float | None]]:
    """Return the numbers in a text, each with its value in mm if it is a length."""
    found: list[tuple[float, float | None]] = []
    unit, start = "", 0
    # From the end, because a number without a unit may share the unit of the next number.
    for match in reversed(list(_QUANTITY.finditer(folded))):
        if match[2]:
            unit = match[2]
        elif not _SHARING.fullmatch(folded[match.end() : start]):
            unit = ""
        start = match.start()
        value = float(match[1])
        found.append((value, round(value * (10 if unit.startswith("c") else 1), 6) if unit else None))
    return found


class ReportWords:
    """Words and numbers of a report, to check whether findings are in it.

    Text in braces or fences is ignored (:func:`prose`), because it may be a prepared answer.

    Args:
        report: Report text.

    Example:
        >>> words = ReportWords("There is an effusion on the right. Nodule of 2 cm in the left lung.")
        >>> findings = ("right effusion", "20 mm nodule", "3 cm nodule", "left effusion")
        >>> [words.contains_finding(finding) for finding in findings]
        [True, True, False, False]
    """

    def __init__(self, report: str) -> None:
        self._report = report
        folded = _folded(prose(report))
        self._plain = " ".join(folded.split())
        self._sentences = {frozenset(_words(sentence)) for sentence in _SENTENCE.split(folded)}
        quantities = _quantities(folded)
        self._numbers = {value for value, _ in quantities}
        self._lengths = {length for _, length in quantities if length is not None}

    def __len__(self) -> int:
        """Return the number of different content words, counted by sentence."""
        return sum(map(len, self._sentences))

    def contains_finding(self, finding: str) -> bool:
        """Whether a finding is stated in the report in similar words.

        One sentence must contain at least :data:`GROUNDING` of the finding's content words, and the report must contain
        its numbers; lengths are compared in mm. Negations are not recognised. A finding without content words is in no
        report.
        """
        folded = _folded(finding)
        words = content_words(finding)
        if not words or not all(map(self._has, _quantities(folded))):
            return False
        return any(len(words & sentence) >= GROUNDING * len(words) for sentence in self._sentences)

    def contains_answer(self, answer: str) -> bool:
        """Whether an answer, which is not blank, is in the words of the report.

        The answer is split at commas, semicolons and "and". One sentence must contain all content words of a part, and
        the report must contain the numbers; lengths are compared in mm. An answer without content words and numbers
        must occur literally. Unlike in :meth:`contains_finding`, no word may be missing, because one word can change
        the meaning of an answer.
        """
        folded = _folded(answer)
        quantities = _quantities(folded)
        parts = [words for part in _LIST.split(folded) if (words := frozenset(_words(part)))]
        if not parts and not quantities:
            return " ".join(folded.split()) in self._plain
        grounded = all(any(words <= sentence for sentence in self._sentences) for words in parts)
        return grounded and all(map(self._has, quantities))

    def contains_passage(self, quote: str) -> bool:
        """Whether a quote is a passage of the report, apart from case, accents, spaces and a final full stop."""
        passage = " ".join(_folded(quote).split()).rstrip(".")
        return bool(passage) and passage in self._plain

    def _has(self, quantity: tuple[float, float | None]) -> bool:
        value, length = quantity
        return value in self._numbers if length is None else length in self._lengths

    def covered_by(self, findings: Collection[str]) -> bool:
        """Whether a list of findings mentions at least :data:`COVERAGE` of what the rules find present in the report.

        A concept is mentioned if a listed finding shares a content word with it. The check detects a judge that was
        persuaded to list nothing, because two empty lists would get a perfect score. Text in braces and fences counts
        here, because a candidate could put its whole report there.

        Args:
            findings: All findings that the judge lists for the report.
        """
        listed = frozenset().union(*map(content_words, findings))
        mentioned: dict[str, bool] = {}
        for mention in extract_findings(self._report):
            if mention.presence == "present" and mention.concept not in _OPTIONAL:
                shared = bool(content_words(mention.text) & listed)
                mentioned[mention.concept] = mentioned.get(mention.concept, False) or shared
        return sum(mentioned.values()) >= COVERAGE * len(mentioned)


# A reference is checked with each of its candidates, and again when an answer is read from the cache.
report_words = lru_cache(maxsize=1 << 10)(ReportWords)
