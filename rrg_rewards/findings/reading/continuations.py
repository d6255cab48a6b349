"""Read sentences without a finding of their own: what they add to the finding before, and items of its list.

An item leaves out the name of the lesion: "nodules: 4 mm in the RUL. 3 mm in the LUL".
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.lexicon.cues import cue_words
from rrg_rewards.findings.reading.attributes import Span, attribute_reader
from rrg_rewards.findings.reading.finding import Attributes, Finding
from rrg_rewards.findings.reading.modifiers import modifier_reader
from rrg_rewards.findings.reading.references import is_countable

__all__ = ["continued", "further_attributes", "has_items"]

_UNITS = ("mm", "cm")
# The places of a lesion of the lung.
_PLACES = frozenset({"upper", "middle", "lower", "central", "peripheral"})


def further_attributes(tokens: Sequence[str]) -> tuple[list[Attributes], Attributes | None]:
    """Return what a sentence without a finding says of others.

    Returns:
        The attributes that it adds to the finding before, empty for none; and those of a further lesion like this one,
        ``None`` for none.

    Example:
        >>> further_attributes("another of 3 mm in the left upper lobe".split())
        ([], Attributes(laterality='left', location=('upper',), size_mm=3.0))
    """
    if _continues(tokens):
        return attribute_reader().attributes(tokens, [Span(0, 0)]), None
    item = _item(tokens)
    # "The largest, subpleural in the left lower lobe, is about 6 mm."
    if item is not None and not cue_words("comparisons", "largest").isdisjoint(tokens[:2]):
        return [item], None
    return [], item


def _continues(tokens: Sequence[str]) -> bool:
    """Whether a sentence describes the last finding: "It measures 5 mm", "The tip is in ..."."""
    if not tokens:
        return False
    has_article = tokens[0] in cue_words("continuations", "article")
    first, *after = tokens[has_article : has_article + 3] or [""]
    is_measured = first in cue_words("continuations", "measured") and not cue_words(
        "continuations", "measuring"
    ).isdisjoint(after)
    return (has_article and first == "tip") or is_measured or tokens[0] in cue_words("continuations", "sentence")


def continued(finding: Finding, more: Attributes) -> Finding:
    """Return a finding with the size, position and place that the next sentence states."""
    stated = Attributes(
        laterality=more.laterality,
        size_mm=more.size_mm,
        short_axis_mm=more.short_axis_mm,
        device_position=more.device_position,
        location=more.location,
    )
    if more.device_position == "malpositioned":
        # "The tip is in the right atrium. It should be withdrawn."
        return replace(finding, attributes=replace(finding.attributes, device_position=None).filled(stated))
    return replace(finding, attributes=finding.attributes.filled(stated))


def _item(tokens: Sequence[str]) -> Attributes | None:
    """Return the attributes of the item that a sentence is, or ``None`` if it is none.

    An item states a size and a place in the lung, and nothing else.
    """
    if not any(token.endswith(_UNITS) for token in tokens):
        return None
    stated = {i for found in modifier_reader().modifiers(tokens) for i in range(found.start, found.end)}
    if not all(i in stated or token in _fillers() or token[0].isdigit() for i, token in enumerate(tokens)):
        return None
    attributes = attribute_reader().attributes(tokens, [Span(0, 0)])[0]
    if attributes.size_mm is None or not _PLACES.issuperset(attributes.location):
        return None
    if not (attributes.laterality or attributes.location or "fissure" in tokens):
        return None
    return attributes


def has_items(finding: Finding, sentence: int) -> bool:
    """Whether a sentence can be an item of a list of lesions that this finding is in."""
    return finding.presence != "absent" and finding.sentence == sentence - 1 and is_countable(finding)


@cache
def _fillers() -> frozenset[str]:
    return cue_words("continuations", "item").union(load_knowledge("attributes")["within_place"])
