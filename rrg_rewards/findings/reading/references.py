"""Decide whether a mention refers to a finding that was mentioned before: "a nodule", "the largest nodule"."""

import re
from functools import cache, lru_cache
from typing import Literal

from rrg_rewards.findings.lexicon.cues import cue_words
from rrg_rewards.findings.reading.finding import Attributes, Finding
from rrg_rewards.findings.reading.tokens import tokenise

__all__ = ["is_countable", "is_group", "is_part_of", "reference_to"]

# Number of characters to search before a mention, and number of words.
_SEARCHED = 80
_REACH = 6
# Number of characters after a mention that can contain "size".
_FOLLOWING = 16
# Number of characters before an apposition that can contain "the largest".
_APPOSED = 150
_END = re.compile(r"[.,;:()\n]")
_PLURALS, _SINGULARS = ("s", "ae"), ("ss", "is", "us")


def reference_to(finding: Finding, report: str) -> Literal["definite", "indefinite"] | None:
    """Return whether the words around a mention say that its finding was mentioned before, or that it was not.

    Example:
        >>> from rrg_rewards.findings import extract_findings
        >>> report = "A nodule is seen. The largest nodule is on the left. Calcified nodule."
        >>> [reference_to(finding, report) for finding in extract_findings(report)]
        ['indefinite', 'definite', None]
    """
    before = _END.split(report[max(0, finding.start - _SEARCHED) : finding.start])[-1]
    after = _END.split(report[finding.end : finding.end + _FOLLOWING], maxsplit=1)[0]
    found = _reference(before, after)
    if found is None and _is_apposition(report[max(0, finding.start - _APPOSED) : finding.start], before):
        return "definite"
    return found


def _is_apposition(text: str, before: str) -> bool:
    """Whether a name without an article describes the lesion before: "the largest is on the right, solid nodule"."""
    sentence = text.rpartition(". ")[2]
    place = sentence.rfind("largest")
    if place < 0 or not sentence.removesuffix(before).rstrip().endswith((",", ")")):
        return False
    return "and" not in tokenise(sentence[place:]) and cue_words("adjectives", "descriptive").issuperset(
        tokenise(before)
    )


# Reports repeat their sentences.
@lru_cache(maxsize=1 << 16)
def _reference(text_before: str, text_after: str) -> Literal["definite", "indefinite"] | None:
    sizes = cue_words("references", "sizes")
    if not sizes.isdisjoint(tokenise(text_after)[:1]):
        return "definite"
    before = tokenise(text_before)
    places = cue_words("references", "places")
    has_place = False
    for k in range(len(before) - 1, max(-1, len(before) - 1 - _REACH), -1):
        word = before[k]
        if word in cue_words("references", "indefinite"):
            return "indefinite"
        if word in cue_words("references", "definite"):
            is_of_place = has_place and k and before[k - 1] in cue_words("references", "placing")
            return None if is_of_place else "definite"
        if word == "of":
            return "definite" if k and before[k - 1] in sizes else None
        if word in cue_words("references", "ends"):
            return None
        has_place = has_place or word in places
    return None


@cache
def _countable() -> tuple[str, ...]:
    return tuple(stem.rstrip("*") for stem in cue_words("references", "countable"))


def is_countable(finding: Finding) -> bool:
    """Whether a mention names lesions that can be counted, such as nodules."""
    return _names_countable(finding.text)


@lru_cache(maxsize=1 << 12)
def _names_countable(text: str) -> bool:
    return any(word.startswith(_countable()) for word in tokenise(text))


def is_group(finding: Finding) -> bool:
    """Whether a mention names several lesions."""
    attributes, text = finding.attributes, finding.text.lower()
    is_plural = text.endswith(_PLURALS) and not text.endswith(_SINGULARS)
    return is_plural or attributes.extent == "multiple" or attributes.laterality == "bilateral"


def is_part_of(attributes: Attributes, group: Finding) -> bool:
    """Whether a lesion with these attributes can be one of a group."""
    own = group.attributes
    return (
        is_group(group)
        and is_countable(group)
        and own.laterality in (None, "bilateral", attributes.laterality or own.laterality)
        and (
            own.laterality == "bilateral"
            or not own.location
            or not attributes.location
            or not set(own.location).isdisjoint(attributes.location)
        )
    )
