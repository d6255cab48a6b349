"""What can be done to the findings of a report: left out, moved, graded wrongly, or compared otherwise."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from rrg_rewards.findings.attributes import Modifier, Span, attribute_reader
from rrg_rewards.findings.comparisons import comparison_words
from rrg_rewards.findings.concepts import concept_graph
from rrg_rewards.findings.edits import Replacement, drop_sentence, without_item
from rrg_rewards.findings.errors import ErrorEdit
from rrg_rewards.findings.knowledge_base import read_knowledge
from rrg_rewards.findings.reading import Proposal, Reading
from rrg_rewards.findings.text import locate, tokenise

__all__ = ["PROPOSERS", "error_knowledge", "matching_case"]

_FACTORS = (2.0, 2.5, 3.0, 0.4)
# No size is wrong for certain by less than this, in mm.
_CLEAR_MM = 4.0
# What is smaller is seen on no radiograph.
_LEAST_MM = 2.0
_NUMBER = re.compile(r"\d*\.?\d+")
_WORD = re.compile(r"[A-Za-z]+")
# One-sided by nature, so that there is no other side to name.
_ONE_SIDED = frozenset({"middle", "rml", "lingula", "lingular", "retrocardiac"})
_LEVELS = frozenset({"upper", "middle", "lower"})
# A fluid lies where it falls.
_NEVER_RAISED = frozenset({"pleural_effusion", "empyema"})

Proposer = Callable[[Reading, int], Iterator[Proposal]]


@cache
def error_knowledge() -> dict[str, Any]:
    """Contents of ``knowledge/errors.yaml``, read once."""
    return read_knowledge("errors")


def matching_case(word: str, model: str) -> str:
    """A word in capitals, or with one, as the word that it replaces.

    Example:
        >>> matching_case("left", "Right"), matching_case("lul", "RUL")
        ('Left', 'LUL')
    """
    if model.isupper() and len(model) > 1:
        return word.upper()
    return word[:1].upper() + word[1:] if model[:1].isupper() else word


def dropped(reading: Reading, target: int) -> Iterator[Proposal]:
    """B: the finding is left out wherever the report tells it."""
    group, finding = reading.groups[target], reading.findings[target]
    if len(group) > 1 and finding.concept in error_knowledge()["umbrellas"]:
        return
    replacements: list[Replacement] = []
    places = reading.places_of(group)
    for place in places:
        sentence = reading.sentences[place]
        own = [mention for mention in sentence.abnormal if mention in group]
        if len(own) > 1:
            # "A granuloma in the left lung and hilar granulomas": one finding or two?
            return
        # What was merged with it, "opacity, likely atelectasis", goes with it.
        if any(mention not in group and mention.concept != finding.concept for mention in sentence.abnormal):
            item = without_item(sentence, own)
            changed = [] if item is None else [item]
        else:
            changed = drop_sentence(reading.sentences, place)
        if not changed:
            return
        replacements += [one for one in changed if one not in replacements]
    if places:
        edit = ErrorEdit("B", "dropped", finding.concept, (finding.start, finding.end))
        yield Proposal(edit, tuple(replacements), None, target)


def moved(reading: Reading, target: int) -> Iterator[Proposal]:
    """C: the other side, or another level of the lung."""
    said, finding = reading.findings[target].attributes, reading.findings[target]
    if finding.concept in error_knowledge()["unlocated"]:
        return
    if said.laterality in ("left", "right"):
        yield from _reworded(reading, target, "laterality", error_knowledge()["sides"])
    if _LEVELS.intersection(said.location) and finding.concept not in _NEVER_RAISED:
        yield from _reworded(reading, target, "location", error_knowledge()["levels"])


def _reworded(reading: Reading, target: int, kind: str, words: Mapping[str, str]) -> Iterator[Proposal]:
    finding = reading.findings[target]
    replacements: list[Replacement] = []
    for start, end, modifier in _modifiers(reading, target):
        values = dict(modifier.values)
        if kind not in values or (kind == "location" and values[kind] not in _LEVELS):
            continue
        text = reading.report[start:end]
        if kind == "laterality" and not _ONE_SIDED.isdisjoint(text.lower().split()):
            return
        changed = _WORD.sub(lambda found: matching_case(words.get(found[0].lower(), found[0]), found[0]), text)
        if changed == text:
            return
        replacements.append(Replacement(start, end, changed))
    if replacements:
        start, end, new = replacements[0]
        old, new = reading.report[start:end].lower(), new.lower()
        edit = ErrorEdit("C", "moved", f"{finding.concept}: {new} for {old}", (finding.start, finding.end))
        yield Proposal(edit, tuple(replacements), replacements[0][:2], target)


def _modifiers(reading: Reading, target: int) -> Iterator[tuple[int, int, Modifier]]:
    """Words that say something of a finding, wherever it is told, with their places in the report."""
    group = reading.groups[target]
    reader = attribute_reader()
    for place in reading.places_of(group):
        sentence = reading.sentences[place]
        tokens = tokenise(sentence.text)
        places = locate(sentence.text, tokens)
        ends = {sentence.start + end: i for i, (_, end) in enumerate(places)}
        named = {mention: ends.get(mention.end) for mention in sentence.mentions}
        spans = sorted({Span(i, i + 1) for i in named.values() if i is not None})
        own = {named[mention] for mention in sentence.mentions if mention in group}
        for modifier, owner in reader.owned(tokens, spans):
            if spans[owner].start in own:
                first, last = places[modifier.start][0], places[modifier.end - 1][1]
                yield sentence.start + first, sentence.start + last, modifier


def graded(reading: Reading, target: int) -> Iterator[Proposal]:
    """D: a severity two steps off, or another size."""
    finding = reading.findings[target]
    if finding.attributes.severity is not None:
        yield from _severity(reading, target)
    if finding.attributes.size_mm is not None:
        yield from _size(reading, target)


def _severity(reading: Reading, target: int) -> Iterator[Proposal]:
    finding, words = reading.findings[target], error_knowledge()["severities"]
    said = [span[:2] for span in _modifiers(reading, target) if "severity" in dict(span[2].values)]
    olds = [reading.report[start:end].lower() for start, end in said]
    # A finding may be "small" here and "tiny" there: each is exchanged for its own opposite.
    for option in range(min((len(words.get(old, ())) for old in olds), default=0)):
        news = [words[old][option] for old in olds]
        replacements = [
            Replacement(start, end, matching_case(new, reading.report[start:end]))
            for (start, end), new in zip(said, news, strict=True)
        ]
        edit = ErrorEdit("D", "severity", f"{finding.concept}: {news[0]} for {olds[0]}", (finding.start, finding.end))
        articles = _articles(reading, replacements)
        yield Proposal(edit, (*replacements, *articles), replacements[0][:2], target)


def _articles(reading: Reading, replacements: Sequence[Replacement]) -> list[Replacement]:
    """'A' before what is now 'extensive', 'an' before what is no more."""
    changed = []
    for start, _, text in replacements:
        found = re.search(r"\b(an?) $", reading.report[:start], re.IGNORECASE)
        if found:
            article = "an" if text[0].lower() in "aeiou" else "a"
            if article != found[1].lower():
                changed.append(Replacement(found.start(1), found.end(1), matching_case(article, found[1])))
    return changed


def _size(reading: Reading, target: int) -> Iterator[Proposal]:
    finding = reading.findings[target]
    size = finding.attributes.size_mm or 0.0
    said = [span[:2] for span in _modifiers(reading, target) if "size_mm" in dict(span[2].values)]
    for factor in _FACTORS if said else ():
        if abs(factor * size - size) <= _CLEAR_MM or factor * size < _LEAST_MM:
            continue
        texts = [reading.report[start:end] for start, end in said]
        scaled = [_NUMBER.sub(partial(_scaled, factor), text) for text in texts]
        replacements = [Replacement(start, end, text) for (start, end), text in zip(said, scaled, strict=True)]
        edit = ErrorEdit("D", "size", f"{finding.concept}: {scaled[0]} for {texts[0]}", (finding.start, finding.end))
        yield Proposal(edit, tuple(replacements), said[0], target)


def _scaled(factor: float, number: re.Match[str]) -> str:
    value = float(number[0]) * factor
    return f"{value:.1f}" if "." in number[0] or value < 1 else f"{value:.0f}"


def compared(reading: Reading, target: int) -> Iterator[Proposal]:
    """E: a change since an earlier examination, of a finding of which the report tells none."""
    finding, group = reading.findings[target], reading.groups[target]
    places = reading.places_of(group)
    if any(place in reading.comparing for place in places) or finding.attributes.change is not None:
        return
    for place in places:
        sentence = reading.sentences[place]
        following = reading.follows(place)
        # "Low volumes without consolidation, decreased": what is?
        plain = len(sentence.mentions) == 1 == len(sentence.abnormal)
        if plain and (following is None or not following.goes_on) and sentence.text[-1].isalnum():
            for text in error_knowledge()["comparison"]["added"]:
                edit = ErrorEdit("E", "comparison added", f"{finding.concept}{text}", (sentence.start, sentence.stop))
                added = Replacement(sentence.stop - 1, sentence.stop, sentence.text[-1] + text)
                yield Proposal(edit, (added,), (sentence.start, sentence.stop), target)


def uncompared(reading: Reading, target: int) -> Iterator[Proposal]:
    """F: what the report says of the finding's change since an earlier examination is left out."""
    finding, group = reading.findings[target], reading.groups[target]
    places = [place for place in reading.places_of(group) if place in reading.comparing]
    akin = partial(concept_graph().akin, finding.concept)
    others = (
        mention for place in reading.comparing.difference(places) for mention in reading.sentences[place].abnormal
    )
    if any(akin(mention.concept) for mention in others) or any(map(reading.compared_next, reading.places_of(group))):
        return
    replacements = []
    for place in places:
        sentence = reading.sentences[place]
        # One statement of change is about one thing, whatever its names.
        if not all(akin(mention.concept) for mention in sentence.abnormal):
            return
        found = next(comparison_words().without(sentence.text), None)
        if found is None:
            return
        start, end, text = found
        replacements.append(Replacement(sentence.start + start, sentence.start + end, text))
    if replacements:
        first = reading.sentences[places[0]]
        edit = ErrorEdit("F", "comparison dropped", finding.concept, (first.start, first.stop))
        yield Proposal(edit, tuple(replacements), (first.start, first.stop), target)


PROPOSERS: Mapping[str, Proposer] = {"B": dropped, "C": moved, "D": graded, "E": compared, "F": uncompared}
"""What can be done to one finding, by category."""
