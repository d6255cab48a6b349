"""Whether the findings that a judge lists are in the report, and whether it lists those that are."""

import re
import unicodedata
from collections.abc import Collection, Iterator
from functools import lru_cache

from rrg_rewards.findings import extract_findings

__all__ = ["COVERAGE", "GROUNDING", "ReportWords", "content_words", "prose"]

GROUNDING = 0.6
"""Share of a finding's content words that one sentence of its report must hold.

Measured on the 150 reports of 50 RadPref cases and the 329 findings that people listed beside them: 0.6 accepts 97.0 %
of the findings for their own report and rejects 96.5 % of them for a random other one (0.5: 98.5 % and 91.5 %; 0.67:
94.2 % and 98.3 %); of 109 lists that are not empty, 101 pass as a whole. Six of the ten findings that it refuses are
diagnoses which the report does not name, such as "congestive heart failure". What it accepts of other reports is mostly
said there too, or denied: a negation is not read.
"""

COVERAGE = 0.5
"""Share of the concepts that the rules find present in a report of which a judge must list something.

Measured as above: all 150 of the lists that people made pass; of 109 that are not empty, 107 would not if they were
emptied, and of 85 with two findings and more 49 would not if one of them alone were left.
"""

# On the patient, not in: people leave them out as often as not.
_UNTOLD = frozenset({"monitoring_leads"})
_TOKEN = re.compile(r"[^\W\d_]+\d+|[^\W\d_]+|\d+(?:\.\d+)?")
_SENTENCE = re.compile(r"\.(?!\d)|[\n\r;!?]")
_QUANTITY = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(?:[ -]?(mm|cm|millimet\w+|centimet\w+)\b)?")
# What stands between the numbers of "2 x 3 cm" and "2-3 cm", which share the unit.
_SHARING = re.compile(r"\s*(?:x|by|to|-)\s*")
_CODE = re.compile(r"```.*?(?:```|\Z)|\{.*\}|\{.*", re.DOTALL)
# What lists places or words that may stand in different sentences.
_LIST = re.compile(r"[,;]|\band\b")
_SUFFIXES = """
a ae al ally ar ary ated ating ation ations ative e ed ement ements ened ening es ia ic ical ies ification ifications
ified ing ion ions is ity ities ize ized ly ment ness ous s tic tics um us y
"""
_LONGEST_FIRST = sorted(_SUFFIXES.split(), key=len, reverse=True)
_SHORTEST_STEM = 4
# The last line is of measurements, which are compared as such.
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
    """A report without what stands between braces or in fences of backticks, also where they are not closed.

    No report has these, but ready answers for judges do.

    Example:
        >>> prose('Clear lungs. {"finding": "pneumothorax"} No effusion.')
        'Clear lungs.  .  No effusion.'
    """
    # Full-width braces are braces.
    text = report if report.isascii() else unicodedata.normalize("NFKC", report)
    return _CODE.sub(" . ", text) if "{" in text or "```" in text else report


@lru_cache(maxsize=1 << 14)
def content_words(text: str) -> frozenset[str]:
    """Stems of the words that carry what a text says, without order.

    Example:
        >>> sorted(content_words("Likely enlargement of the T12 nodules, 3 mm"))
        ['enlarg', 'nodul', 't12']
    """
    return frozenset(_words(_folded(text)))


def _folded(text: str) -> str:
    """Lower case, without accents and characters that do not show."""
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
    """Numbers as they stand, each with its length in mm if it is one."""
    found: list[tuple[float, float | None]] = []
    unit, start = "", 0
    # From the end, for a number without a unit may share that of the next.
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
    """What a report says, for checks of findings against it.

    What stands between braces or fences is no report (:func:`prose`): findings that a candidate feeds to its judge as
    a ready answer are not in it.

    Args:
        report: Report text.

    Example:
        >>> words = ReportWords("There is an effusion on the right. Nodule of 2 cm in the left lung.")
        >>> [words.holds(finding) for finding in ("right effusion", "20 mm nodule", "3 cm nodule", "left effusion")]
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
        """Number of different content words, sentence by sentence."""
        return sum(map(len, self._sentences))

    def holds(self, finding: str) -> bool:
        """Whether a finding is said in the report, in about its words.

        One sentence must hold at least :data:`GROUNDING` of the finding's content words, and the report each of its
        numbers, lengths after conversion. That the sentence denies the finding is not seen.

        Args:
            finding: A finding in words; one without content words is in no report.
        """
        folded = _folded(finding)
        words = content_words(finding)
        if not words or not all(map(self._has, _quantities(folded))):
            return False
        return any(len(words & sentence) >= GROUNDING * len(words) for sentence in self._sentences)

    def says(self, answer: str) -> bool:
        """Whether an answer is in the report's own words.

        For each part of a list one sentence must hold all content words, and the report each of its numbers, lengths
        after conversion. An answer of neither must stand in the report as it is. One word makes another answer of an
        answer, so that here, unlike in :meth:`holds`, none may be missing.

        Args:
            answer: An answer in words, not blank.
        """
        folded = _folded(answer)
        quantities = _quantities(folded)
        parts = [words for part in _LIST.split(folded) if (words := frozenset(_words(part)))]
        if not parts and not quantities:
            return " ".join(folded.split()) in self._plain
        grounded = all(any(words <= sentence for sentence in self._sentences) for words in parts)
        return grounded and all(map(self._has, quantities))

    def _has(self, quantity: tuple[float, float | None]) -> bool:
        value, length = quantity
        return value in self._numbers if length is None else length in self._lengths

    def covered_by(self, findings: Collection[str]) -> bool:
        """Whether a list of findings tells of at least :data:`COVERAGE` of what the rules find present in the report.

        It tells of a concept when it shares a word with one of its mentions. This is what stands against a judge that
        was talked into not seeing: two empty lists would be a perfect score. Here braces and fences hide nothing, or a
        report could be put between them.

        Args:
            findings: All that was listed for the report, in words.
        """
        listed = frozenset().union(*map(content_words, findings))
        told: dict[str, bool] = {}
        for mention in extract_findings(self._report):
            if mention.presence == "present" and mention.concept not in _UNTOLD:
                told[mention.concept] = told.get(mention.concept, False) or bool(content_words(mention.text) & listed)
        return sum(told.values()) >= COVERAGE * len(told)
