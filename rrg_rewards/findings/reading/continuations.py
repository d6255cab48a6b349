"""What a sentence without a finding says of the findings before it."""

from collections.abc import Sequence
from functools import partial

from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge
from rrg_rewards.findings.reading.attributes import Span, attribute_reader
from rrg_rewards.findings.reading.finding import LUNG_PARTS, Attributes, Finding
from rrg_rewards.findings.reading.merge_mentions import is_countable
from rrg_rewards.findings.reading.modifiers import modifier_reader
from rrg_rewards.findings.reading.schema_words import WordBook, stated_words, with_ranges

Further = tuple[Attributes | None, Attributes | None]
"""What a sentence adds to the last finding before it, and the attributes of a further lesion like that one."""

NOTHING_FURTHER: Further = (None, None)
# Attributes that the next sentence can state.
_CONTINUED = ("laterality", "size_mm", "short_axis_mm", "device_position", "location", "change")
# Units in which the size of a list item is stated.
_UNITS = ("mm", "cm")


def further_attributes(tokens: Sequence[str], sentence: str = "", vocabulary: WordBook | None = None) -> Further:
    """Return what a sentence without a finding says of others.

    Args:
        tokens: Tokens of the sentence.
        sentence: Its text, of which a vocabulary's words have the ends of ranges.
        vocabulary: Phrases of the caller.

    Example:
        >>> further_attributes("another of 3 mm in the left upper lobe".split())
        (None, Attributes(laterality='left', location=('upper',), size_mm=3.0))
    """
    if _continues(tokens):
        return _attributes(tokens, sentence, vocabulary), None
    if not _is_item(tokens):
        return NOTHING_FURTHER
    item = _attributes(tokens, sentence, vocabulary)
    has_place = item.laterality or item.location or "fissure" in tokens
    if item.size_mm is None or not has_place or not LUNG_PARTS.issuperset(item.location):
        return NOTHING_FURTHER
    # "The largest, subpleural in the left lower lobe, is about 6 mm."
    is_described = not cue_words("comparisons", "largest").isdisjoint(tokens[:2])
    return (item, None) if is_described else (None, item)


def _attributes(tokens: Sequence[str], sentence: str, vocabulary: WordBook | None) -> Attributes:
    words = stated_words(vocabulary, tokens) if vocabulary else ()
    (attributes,) = attribute_reader().attributes(tokens, [Span(0, 0)], words)
    return with_ranges(attributes, sentence) if attributes.words else attributes


def _continues(tokens: Sequence[str]) -> bool:
    """Whether a sentence describes the last finding: "It measures 5 mm", "The tip is in ...", "New since May"."""
    if not tokens:
        return False
    words = partial(cue_words, "continuations")
    has_article = tokens[0] in words("article")
    first, *after = tokens[has_article : has_article + 3] or [""]
    is_measured = first in words("measured") and not words("measuring").isdisjoint(after)
    is_change = tokens[0] in words("change") and words("changed").issuperset(tokens[1:2])
    return (has_article and first == "tip") or is_measured or is_change or tokens[0] in words("sentence")


def _continued(finding: Finding, more: Attributes) -> Finding:
    """Return a finding with the size, position, place and change that the next sentence states."""
    stated = Attributes(**{name: getattr(more, name) for name in _CONTINUED})
    if finding.presence == "absent" or more.change == "resolved":
        stated = stated._replace(change=None)
    own = finding.attributes
    if own.size_mm and more.size_mm and more.size_mm > own.size_mm:
        # "Nodules of 3-5 mm. The largest measures 9 mm."
        own = own._replace(size_mm=None, short_axis_mm=None)
    if own.laterality == "bilateral" and more.laterality in ("left", "right"):
        # "Nodules in both lungs. The largest is in the right lower lobe."
        stated = stated._replace(location=())
    if more.device_position == "malpositioned":
        # "The tip is in the right atrium. It should be withdrawn."
        own = own._replace(device_position=None)
    attributes = own.filled(stated)
    if more.words or more.place_words:
        attributes = attributes._replace(
            words=own.words + more.words,
            place_words=own.place_words + tuple(word.after(own.place_words) for word in more.place_words),
        )
    return finding._replace(attributes=attributes)


def add_further(
    findings: list[Finding],
    further: Further,
    is_open: bool,
    is_next: bool,
    sentence: int,
) -> bool:
    """Add to the last finding what a sentence says of it, or a further lesion like it; return whether it adds one.

    Args:
        findings: The findings of the sentences before; changed in place.
        further: What the sentence says, from :func:`further_attributes`.
        is_open: Whether the last finding is the one that the sentences before named last.
        is_next: Whether the sentence directly before named it.
        sentence: Index of the sentence.
    """
    last, (continuation, item) = findings[-1], further
    if continuation is not None:
        if is_open:
            findings[-1] = _continued(last, continuation)
        return False
    # The item leaves out the name of the lesion before, which is in the same list.
    if item is None or not is_next or last.presence == "absent" or not is_countable(last):
        return False
    findings.append(last._replace(sentence=sentence, attributes=item))
    return True


def _is_item(tokens: Sequence[str]) -> bool:
    """Whether a sentence can be a list item, which leaves out the name: "nodules: 4 mm in the RUL. 3 mm in the LUL".

    It states a size and a place in the lung, and nothing else.
    """
    if not any(token.endswith(_UNITS) for token in tokens):
        return False
    stated = {i for modifier in modifier_reader().modifiers(tokens) for i in range(modifier.start, modifier.end)}
    fillers = cue_words("continuations", "item").union(load_knowledge("attributes")["within_place"])
    return all(i in stated or token in fillers or token[0].isdigit() for i, token in enumerate(tokens))
