"""Assign the words that state attributes to the findings of a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.lexicon.cues import cue_words
from rrg_rewards.findings.reading.finding import Attributes
from rrg_rewards.findings.reading.modifiers import PLACING, Modifier, modifier_reader
from rrg_rewards.findings.reading.places import NOWHERE, Whereabouts, are_joined, whereabouts
from rrg_rewards.findings.reading.statements import statement_numbers

__all__ = ["AttributeReader", "Span", "attribute_reader"]

_TUPLES = ("location", "morphology")
# Attributes after the second of two joined findings that also belong to the first.
_SHARED = ("laterality", "location", "change", "device_position", "places")
# Attributes before the first of several findings that belong to all of them.
_PLACE = ("laterality", "location", "places")
_PLACED = frozenset({"laterality", "location", "segment", "implied"})
_NOTHING = Attributes()
# Parts of each lung; and those of them that every lobe has.
_LEVELS = frozenset({"upper", "middle", "lower", "central", "peripheral"})
_WITHIN_LOBES = frozenset({"central", "peripheral"})
# Number of words after the last finding in which "around it" ties it to the finding before.
_PRONOUN_REACH = 6


class Span(NamedTuple):
    """Tokens ``start`` to ``end`` that name a finding; ``first`` is the start of its phrase if that is earlier."""

    start: int
    end: int
    first: int | None = None


class AttributeReader:
    """Finds the attributes of the findings in a sentence.

    Args:
        config: Contents of ``knowledge/attributes.yaml``.

    Example:
        >>> reader = attribute_reader()
        >>> tokens = "small left effusion and 5 mm nodule in the right upper lobe".split()
        >>> reader.attributes(tokens, [Span(2, 3), Span(6, 7)])[1]
        Attributes(laterality='right', location=('upper',), size_mm=5.0)
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._modifiers = modifier_reader().modifiers
        self._separators, self._joining, self._fillers, self._prepositions = (
            cue_words("connectives", name) for name in ("separators", "joining", "fillers", "prepositions")
        )
        # A heading is a part of its statement: "left lung: clear".
        self._dividers = self._separators - {":"}
        self._normal = frozenset(config["normal"])
        self._denied, self._changes = frozenset(config["denied"]), frozenset(config["changes"])
        self._verbs = cue_words("statements", "verbs")
        # Without one of these between them, two findings are words of one noun phrase.
        self._linking = self._separators | self._prepositions | self._verbs | PLACING
        self._sharing_words = cue_words("connectives", "sharing")
        self._pronouns = cue_words("connectives", "sharing", "pronouns")
        self._partitive, self._parts_of = (cue_words("connectives", name) for name in ("partitive", "parts_of"))
        # Words that cannot be between the findings of a list.
        self._unlisted = self._verbs | self._denied | frozenset({":", "but"})
        self._separating = self._separators - frozenset(config["links"]["alternative"])
        self.links = {word: kind for kind, words in config["links"].items() for word in words}

    def owned(self, tokens: Sequence[str], places: Sequence[Span]) -> list[tuple[Modifier, int]]:
        """Return the modifiers of the findings at distinct, ordered ``places``, each with the index of its finding."""
        modifiers = self._modifiers(tokens)
        owners = self.owners(tokens, places) if modifiers else []
        return [(found, owners[found.start]) for found in modifiers if owners[found.start] >= 0]

    def attributes(self, tokens: Sequence[str], spans: Sequence[Span]) -> list[Attributes]:
        """Return the attributes of the findings at ordered ``spans``, which may repeat."""
        modifiers = self._modifiers(tokens)
        if not modifiers:
            return [_NOTHING] * len(spans)
        places = list({span.end: span for span in spans}.values())
        numbers = _statements(tokens, places)
        found: list[list[Modifier]] = [[] for _ in places]
        owners = self._owners(tokens, places, numbers)
        for modifier in modifiers:
            if owners[modifier.start] >= 0:
                found[owners[modifier.start]].append(modifier)
        where = [whereabouts(tokens, own) if own else NOWHERE for own in found]
        result = [_collect(own, at) if own else _NOTHING for own, at in zip(found, where, strict=True)]
        if len(places) > 1:
            self._share_trailing(tokens, places, result, where, found)
            self._share_leading(tokens, places, result, found, numbers)
        by_end = dict(zip((place.end for place in places), result, strict=True))
        return [by_end[span.end] for span in spans]

    def _share_trailing(
        self,
        tokens: Sequence[str],
        places: Sequence[Span],
        result: list[Attributes],
        where: Sequence[Whereabouts],
        found: Sequence[list[Modifier]],
    ) -> None:
        """Share what follows the last finding of a list: "consolidation and effusion in the right lower lobe"."""
        following: Attributes | None = None
        for k in range(len(places) - 2, -1, -1):
            join = self._join(tokens, places, k, following is not None)
            if join is None:
                following = None
                continue
            trailing = [modifier for modifier in found[k + 1] if modifier.start >= places[k + 1].end]
            own = _collect(trailing, whereabouts(tokens, trailing))
            following = own if following is None else own.filled(following)
            if where[k].is_emphasis and following.laterality:
                # "More prominent on the right, there are consolidation and atelectasis in both lungs."
                result[k] = replace(result[k], laterality=None)
            if result[k].laterality in (None, following.laterality):
                result[k] = _sharing(result[k], following, join)

    def _share_leading(
        self,
        tokens: Sequence[str],
        places: Sequence[Span],
        result: list[Attributes],
        found: Sequence[list[Modifier]],
        numbers: Sequence[int],
    ) -> None:
        """Share what precedes the first of several findings: "on the right there are consolidation and effusion"."""
        leading = [self._leading(tokens, own, place) for own, place in zip(found, places, strict=True)]
        for k in range(1, len(places)):
            if result[k].laterality or not _LEVELS.issuperset(result[k].location):
                continue
            if leading[k - 1] and numbers[places[k].start] == numbers[places[k - 1].start]:
                earlier = _collect(leading[k - 1], whereabouts(tokens, leading[k - 1]))
                result[k] = _placed_as(result[k], earlier)
                leading[k] = leading[k - 1]
            elif result[k - 1].laterality == "bilateral" and self._join(tokens, places, k - 1, False) == _SHARED:
                # "Bilateral pleural effusion and pleural thickening"
                result[k] = _sharing(result[k], result[k - 1], ("laterality",))
            elif self._is_in_parentheses(tokens, places, k):
                result[k] = _sharing(result[k], result[k - 1], ("laterality",))
            elif not self._pronouns.isdisjoint(self._surroundings(tokens, places, k)):
                # "The left lower bronchus is dilated, and opacities are seen around it."
                result[k] = _placed_as(result[k], result[k - 1])

    def _leading(self, tokens: Sequence[str], own: Sequence[Modifier], span: Span) -> list[Modifier]:
        """Return the modifiers of a finding that state a place ahead of it: "in the left and right lung, nodules"."""
        found: list[Modifier] = []
        for modifier in own:
            if self._introduces(tokens, modifier.start, span) or (
                found
                and modifier.start < span.start
                and not _WITHIN_LOBES.intersection(dict(modifier.values).get("location", ()))
                and are_joined(tokens, found[-1].end, modifier.start)
            ):
                found.append(modifier)
        return found

    def _is_in_parentheses(self, tokens: Sequence[str], places: Sequence[Span], k: int) -> bool:
        """Whether finding ``k`` is in parentheses after the finding before: "hypodense lesion in the liver (cyst?)"."""
        between = tokens[places[k - 1].end : places[k].start]
        return "(" in between and ")" not in between

    def _surroundings(self, tokens: Sequence[str], places: Sequence[Span], k: int) -> Sequence[str]:
        """Return the words around finding ``k`` that can tie it to the finding before."""
        stop = places[k + 1].start if k + 1 < len(places) else len(tokens)
        return tokens[places[k - 1].end : min(stop, places[k].end + _PRONOUN_REACH)]

    def _join(self, tokens: Sequence[str], places: Sequence[Span], k: int, is_chained: bool) -> tuple[str, ...] | None:
        """Return the names of the attributes after finding ``k + 1`` that also belong to finding ``k``, or ``None``.

        Findings with only words such as "and" between them share all of these. Other findings of a list share its
        place, also those joined by words such as "accompanied by". A comma alone makes no list without a verb:
        "emphysema, nodule in the right upper lobe".

        Args:
            tokens: Tokens of the sentence.
            places: Spans of the findings.
            k: Index of the first of the two findings.
            is_chained: Whether finding ``k + 1`` is joined with the next.
        """
        first, second = places[k], places[k + 1]
        between = tokens[first.end : second.start if second.first is None else second.first]
        if self._is_part(between):
            return _PLACE
        is_bare = "," in between and "and" not in between and not is_chained
        if is_bare and self._verbs.isdisjoint([*tokens[: places[0].start], *tokens[second.end :]]):
            return None
        if all(token in self._joining or token in self._fillers for token in between):
            return _SHARED
        if (
            not self._is_joined(between)
            or not self._unlisted.isdisjoint(between)
            or any(_PLACED.intersection(dict(found.values)) for found in self._modifiers(between))
        ):
            return None
        return _PLACE

    def _is_joined(self, between: Sequence[str]) -> bool:
        """Whether the words between two findings join them: "and", "accompanied by", or adjectives of one noun."""
        return (
            not self._joining.isdisjoint(between)
            or not self._sharing_words.isdisjoint(between)
            or self._linking.isdisjoint(between)
        )

    def _is_part(self, between: Sequence[str]) -> bool:
        """Whether the words between two findings make the second a part of the first: "some of which are"."""
        return not self._partitive.isdisjoint(between) and any(
            words[0] in self._partitive and words[1] == "of" and words[2] in self._parts_of
            for words in zip(between, between[1:], between[2:], strict=False)
        )

    def _introduces(self, tokens: Sequence[str], start: int, span: Span) -> bool:
        """Whether the place at a token is ahead of the statement: "in the right lung there is a nodule"."""
        if start >= span.end:
            return False
        begin = span.start if span.first is None else span.first
        return not PLACING.isdisjoint(tokens[max(0, start - 2) : start]) or ":" in tokens[start:begin]

    def owners(self, tokens: Sequence[str], spans: Sequence[Span]) -> list[int]:
        """Return, for each token, the index of the finding that it belongs to, or -1.

        A finding owns words of its own statement only. Words about normal anatomy belong to no finding: "Opacity on the
        right and the left lung is clear".

        Args:
            tokens: Tokens of one sentence.
            spans: Distinct spans of findings, in order.
        """
        return self._owners(tokens, spans, _statements(tokens, spans))

    def _owners(self, tokens: Sequence[str], spans: Sequence[Span], numbers: Sequence[int]) -> list[int]:
        starts = [self._boundary(tokens, spans[k - 1].end, spans[k].start) if k else 0 for k in range(len(spans))]
        owners = [-1] * len(tokens)
        # The numbers ascend.
        is_one = not numbers or not numbers[-1]
        for k, (first, stop) in enumerate(pairwise([*starts, len(tokens)])):
            if is_one:
                owners[first:stop] = [k] * (stop - first)
                continue
            own = numbers[spans[k].end - 1] if spans[k].end else 0
            owners[first:stop] = [k if number == own else -1 for number in numbers[first:stop]]
        for k, span in enumerate(spans):
            # Words before the boundary that are in the statement of the second finding.
            i = starts[k] - 1
            while k and i >= spans[k - 1].end and numbers[i] == numbers[span.end - 1] != numbers[spans[k - 1].end - 1]:
                owners[i] = k
                i -= 1
        named = {i for span in spans for i in range(span.start, span.end)}
        start, dividers = 0, self._dividers
        for i in [*[i for i, token in enumerate(tokens) if token in dividers], len(tokens)]:
            if named.isdisjoint(range(start, i)) and self._is_other(tokens[start:i]):
                owners[start:i] = [-1] * (i - start)
            start = i
        return owners

    def _is_other(self, part: Sequence[str]) -> bool:
        """Whether a part of a sentence without a finding says what is normal or absent."""
        if not self._normal.isdisjoint(part):
            return True
        if self._denied.isdisjoint(part):
            return False
        first = next((k for k, token in enumerate(part) if token not in self._separators or token in self._denied), 0)
        return not self._denied.isdisjoint(part[first : first + 1]) and self._changes.isdisjoint(part)

    def _boundary(self, tokens: Sequence[str], begin: int, stop: int) -> int:
        """Return the index of the first token between two findings that belongs to the second."""
        for i in range(stop - 1, begin - 1, -1):
            if tokens[i] in self._separators:
                return i
        return stop if begin < stop and tokens[begin] in self._prepositions else begin

    def link(self, tokens: Sequence[str]) -> str | None:
        """Return the link between two findings: ``stated``, ``doubted``, ``alternative`` or ``None``.

        Alternatives are not separated: "opacity, peripheral/subpleural, with consolidation" names two findings.
        """
        kinds = {self.links[token] for token in tokens if token in self.links}
        if "alternative" in kinds:
            last = max(i for i, token in enumerate(tokens) if self.links.get(token) == "alternative")
            if not self._separating.isdisjoint(tokens[last + 1 :]):
                kinds.discard("alternative")
        return next((kind for kind in ("doubted", "stated", "alternative") if kind in kinds), None)


def _statements(tokens: Sequence[str], spans: Sequence[Span]) -> list[int]:
    """Return the number of each token's statement."""
    return statement_numbers(tokens, {i for span in spans for i in range(span.start, span.end)})


def _sharing(own: Attributes, other: Attributes, names: Sequence[str]) -> Attributes:
    """Return attributes with the named ones of another finding where the own ones are not stated."""
    missing = {name: value for name in names if not getattr(own, name) and (value := getattr(other, name))}
    return replace(own, **missing) if missing else own


def _collect(modifiers: Sequence[Modifier], where: Whereabouts) -> Attributes:
    """Combine the modifiers of one finding."""
    values: dict[str, Any] = {}
    for modifier in modifiers:
        for kind, value in modifier.values:
            if kind in _TUPLES:
                new = tuple(value) if isinstance(value, list) else (value,)
                old = values.get(kind, ())
                values[kind] = old + tuple(part for part in new if part not in old)
            elif kind == "size_mm":
                if value > values.get(kind, 0.0):
                    values["short_axis_mm"] = None
                    values.update(modifier.values)
            elif kind not in ("short_axis_mm", "laterality", "segment", "implied"):
                values.setdefault(kind, value)
    values["laterality"] = where.laterality
    values["location"] = where.location
    values["places"] = where.places
    return Attributes(**values)


def _placed_as(own: Attributes, other: Attributes) -> Attributes:
    """Return attributes with the place of another finding; a stated level keeps its own, and has the other's side."""
    return _sharing(own, other, ("laterality",) if own.location else _PLACE)


@cache
def attribute_reader() -> AttributeReader:
    """Return the reader of the attributes in ``knowledge/attributes.yaml``, one per process."""
    return AttributeReader(load_knowledge("attributes"))
