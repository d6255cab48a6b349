"""Assign the words that state attributes to the findings of a sentence, and read the places of each finding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import Any, NamedTuple

from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge
from rrg_rewards.findings.reading.changes import share_changes, without_amounts
from rrg_rewards.findings.reading.finding import LUNG_LEVELS, LUNG_PARTS, Attributes, Place
from rrg_rewards.findings.reading.modifiers import PLACED, PLACING, VALUE_KINDS, Modifier, modifier_reader
from rrg_rewards.findings.reading.phrases import cue_bits
from rrg_rewards.findings.reading.statements import statement_numbers

# Attributes after the second of two joined findings that also belong to the first.
_SHARED = ("laterality", "location", "change", "device_position", "places", "place_words")
# Attributes before the first of several findings that belong to all of them.
_PLACE = ("laterality", "location", "places", "place_words")
# Words of a caller's vocabulary.
_WORDS = ("words", "place_words")
# Attributes of what the noun after them names.
_DESCRIBING = frozenset({"words", "severity", "morphology"})
# Words that may stand between a value and the name of the finding: "ground glass density nodule".
_VALUE_FILLERS = frozenset({"density", "like", "attenuation"})
# Nouns of things that are no findings.
_UNNAMED = frozenset({"area", "areas", "region", "regions", "zone", "zones", "shadow", "shadows", "focus", "foci"})
_NOTHING = Attributes()
_start = attrgetter("start")
# Number of words after the last finding in which "around it" ties it to the finding before.
_PRONOUN_REACH = 6
# Number of words before a place in which a word such as "largest" singles out a part of the finding.
_EMPHASIS_REACH = 8
# Largest difference in mm of two sizes that is no change, after the Fleischner Society.
_MEASUREMENT_ERROR = 2.0


class Span(NamedTuple):
    """Tokens ``start`` to ``end`` that name a finding; ``first`` is the start of its phrase if that is earlier."""

    start: int
    end: int
    first: int | None = None

    @property
    def phrase(self) -> tuple[int, int]:
        """Start and end of the phrase."""
        return self.start if self.first is None else self.first, self.end


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
        self._shared_by = self._joining | cue_words("connectives", "sharing")
        self._pronouns = cue_words("connectives", "sharing", "pronouns")
        self._partitive, self._parts_of = (cue_words("connectives", name) for name in ("partitive", "parts_of"))
        self._elsewhere = cue_bits("statements", "elsewhere")
        # Words that cannot be between the findings of a list.
        self._unlisted = self._verbs | self._denied | frozenset({":", "but"})
        self._separating = self._separators - frozenset(config["links"]["alternative"])
        self.links = {word: kind for kind, words in config["links"].items() for word in words}

    def owned(self, tokens: Sequence[str], spans: Sequence[Span]) -> list[tuple[Modifier, int]]:
        """Return the modifiers of the findings at distinct, ordered ``spans``, each with the index of its finding."""
        modifiers = self._modifiers(tokens)
        owners = self._owners(tokens, spans, _statements(tokens, spans)) if modifiers else []
        return [(modifier, owners[modifier.start]) for modifier in modifiers if owners[modifier.start] >= 0]

    def attributes(
        self, tokens: Sequence[str], spans: Sequence[Span], words: Sequence[Modifier] = ()
    ) -> list[Attributes]:
        """Return the attributes of the findings at ordered ``spans``, which may repeat.

        Args:
            tokens: Tokens of the sentence.
            spans: Spans of the findings.
            words: Words of a caller's vocabulary, which belong to findings by the same rules.
        """
        modifiers = self._modifiers(tokens)
        if not modifiers and not words:
            return [_NOTHING] * len(spans)
        distinct = spans if len(spans) == 1 else list({span.end: span for span in spans}.values())
        names = [span.phrase for span in distinct]
        modifiers = without_amounts(tokens, modifiers, names)
        numbers = _statements(tokens, distinct)
        named = [_Named(span) for span in distinct]
        owners = self._owners(tokens, distinct, numbers)
        has_unnamed = not _UNNAMED.isdisjoint(tokens)
        for modifier in sorted([*modifiers, *words], key=_start) if words else modifiers:
            one = named[owners[modifier.start]]
            if owners[modifier.start] >= 0 and not (has_unnamed and one.lacks(tokens, modifier)):
                one.own.append(modifier)
        if words and len(named) > 1:
            self._add_near(tokens, named, words)
        for one in named:
            if one.own:
                one.attributes, one.is_emphasis = _collect(tokens, one.own)
        result = [one.attributes for one in named]
        if len(distinct) > 1:
            self._share_trailing(tokens, distinct, named)
            self._share_leading(tokens, distinct, named, numbers)
            result = [one.attributes for one in named]
            share_changes(tokens, names, [_change(one.own) for one in named], result)
        by_end = dict(zip((span.end for span in distinct), result, strict=True))
        return [by_end[span.end] for span in spans]

    def _add_near(self, tokens: Sequence[str], named: Sequence["_Named"], words: Sequence[Modifier]) -> None:
        """Give findings the words directly before their names: "ground glass nodule" states no opacity alone."""
        ends = {word.end: word for word in words}
        for one in named:
            for end in (one.span.start - 1, one.span.start):
                word = ends.get(end)
                if word is not None and word not in one.own and _VALUE_FILLERS.issuperset(tokens[end : one.span.start]):
                    one.own = sorted([*one.own, word], key=_start)

    def _share_trailing(self, tokens: Sequence[str], spans: Sequence[Span], named: Sequence["_Named"]) -> None:
        """Share what follows the last finding of a list: "consolidation and effusion in the right lower lobe"."""
        following: Attributes | None = None
        for k in range(len(spans) - 2, -1, -1):
            join = self._join(tokens, spans, k, following is not None)
            if join is None:
                following = None
                continue
            trailing = [modifier for modifier in named[k + 1].own if modifier.start >= spans[k + 1].end]
            own, _ = _collect(tokens, trailing)
            following = own if following is None else own.filled(following)
            one = named[k]
            if one.is_emphasis and following.laterality:
                # "More prominent on the right, there are consolidation and atelectasis in both lungs."
                one.attributes = one.attributes._replace(laterality=None)
            if one.attributes.laterality in (None, following.laterality):
                one.attributes = _sharing(one.attributes, following, join)

    def _share_leading(
        self, tokens: Sequence[str], spans: Sequence[Span], named: Sequence["_Named"], numbers: Sequence[int]
    ) -> None:
        """Share what precedes the first of several findings: "on the right there are consolidation and effusion"."""
        leading = [self._leading(tokens, one) for one in named]
        for k in range(1, len(spans)):
            one, earlier, start = named[k], named[k - 1].attributes, spans[k - 1].end
            if one.attributes.laterality or not LUNG_PARTS.issuperset(one.attributes.location):
                continue
            between = tokens[start : spans[k].start]
            end = spans[k + 1].start if k + 1 < len(spans) else len(tokens)
            if leading[k - 1] and numbers[spans[k].start] == numbers[spans[k - 1].start]:
                place, _ = _collect(tokens, leading[k - 1])
                one.attributes = _placed_as(one.attributes, place)
                leading[k] = leading[k - 1]
            # "Bilateral pleural effusion and pleural thickening", "hypodense lesion in the left kidney (cyst?)"
            elif (earlier.laterality == "bilateral" and self._join(tokens, spans, k - 1, False) == _SHARED) or (
                "(" in between and ")" not in between
            ):
                one.attributes = _sharing(one.attributes, earlier, ("laterality",))
            # "The left lower bronchus is dilated, and opacities are seen around it."
            elif not self._pronouns.isdisjoint(tokens[start : min(end, spans[k].end + _PRONOUN_REACH)]):
                one.attributes = _placed_as(one.attributes, earlier)

    def _leading(self, tokens: Sequence[str], one: "_Named") -> list[Modifier]:
        """Return the modifiers of a finding that state a place ahead of it: "in the left and right lung, nodules"."""
        leading: list[Modifier] = []
        name, _ = one.span.phrase
        for modifier in one.own:
            start = modifier.start
            is_ahead = not PLACING.isdisjoint(tokens[max(0, start - 2) : start]) or ":" in tokens[start:name]
            is_next = leading and start < one.span.start and _are_joined(tokens, leading[-1].end, start)
            if (is_ahead and start < one.span.end) or is_next:
                leading.append(modifier)
        return leading

    def _join(self, tokens: Sequence[str], spans: Sequence[Span], k: int, is_chained: bool) -> tuple[str, ...] | None:
        """Return the names of the attributes after finding ``k + 1`` that also belong to finding ``k``, or ``None``.

        Findings with only words such as "and" between them share all of these. Other findings of a list share its
        place, also those joined by words such as "accompanied by". A comma alone makes no list without a verb:
        "emphysema, nodule in the right upper lobe".

        Args:
            tokens: Tokens of the sentence.
            spans: Spans of the findings.
            k: Index of the first of the two findings.
            is_chained: Whether finding ``k + 1`` is joined with the next.
        """
        first, second = spans[k], spans[k + 1]
        between = tokens[first.end : second.phrase[0]]
        if self._is_part(between):
            return _PLACE
        is_bare = "," in between and "and" not in between and not is_chained
        if is_bare and self._verbs.isdisjoint([*tokens[: spans[0].start], *tokens[second.end :]]):
            return None
        if all(token in self._joining or token in self._fillers for token in between):
            return _SHARED
        # "And", "accompanied by", or adjectives of one noun
        is_joined = not self._shared_by.isdisjoint(between) or self._linking.isdisjoint(between)
        if not is_joined or not self._unlisted.isdisjoint(between):
            return None
        has_place = any(PLACED.intersection(dict(modifier.values)) for modifier in self._modifiers(between))
        # "Cysts in the liver and lesions in the left kidney"
        has_place |= not PLACING.isdisjoint(between) and any(map(self._elsewhere.__getitem__, between))
        return None if has_place else _PLACE

    def _is_part(self, between: Sequence[str]) -> bool:
        """Whether the words between two findings make the second a part of the first: "some of which are"."""
        return "of" in between and any(
            first in self._partitive and of == "of" and last in self._parts_of
            for first, of, last in zip(between, between[1:], between[2:], strict=False)
        )

    def _owners(self, tokens: Sequence[str], spans: Sequence[Span], numbers: Sequence[int]) -> list[int]:
        """Return, for each token, the index of the finding that it belongs to, or -1.

        A finding owns words of its own statement only. Words about normal anatomy belong to no finding: "Opacity on the
        right and the left lung is clear".
        """
        is_one = not numbers or not numbers[-1]
        owners = [0] * len(tokens) if is_one and len(spans) == 1 else self._divided(tokens, spans, numbers)
        if self._normal.isdisjoint(tokens) and self._denied.isdisjoint(tokens):
            # No part says what is normal or absent.
            return owners
        named = {i for span in spans for i in range(span.start, span.end)}
        start, dividers = 0, self._dividers
        for i in [*[i for i, token in enumerate(tokens) if token in dividers], len(tokens)]:
            if named.isdisjoint(range(start, i)) and self._is_other(tokens[start:i]):
                owners[start:i] = [-1] * (i - start)
            start = i
        return owners

    def _divided(self, tokens: Sequence[str], spans: Sequence[Span], numbers: Sequence[int]) -> list[int]:
        """Return the index of each token's finding, as if no part said what is normal or absent."""
        starts = [self._boundary(tokens, spans[k - 1].end, spans[k].start) if k else 0 for k in range(len(spans))]
        owners = [-1] * len(tokens)
        for k, (start, end) in enumerate(pairwise([*starts, len(tokens)])):
            own = numbers[spans[k].end - 1] if spans[k].end else 0
            owners[start:end] = [k if number == own else -1 for number in numbers[start:end]]
        for k, span in enumerate(spans):
            # Words before the boundary that are in the statement of the second finding.
            i = starts[k] - 1
            while k and i >= spans[k - 1].end and numbers[i] == numbers[span.end - 1] != numbers[spans[k - 1].end - 1]:
                owners[i] = k
                i -= 1
        return owners

    def _is_other(self, part: Sequence[str]) -> bool:
        """Whether a part of a sentence without a finding says what is normal or absent."""
        if not self._normal.isdisjoint(part):
            return True
        first = next((k for k, token in enumerate(part) if token not in self._separators or token in self._denied), 0)
        return not self._denied.isdisjoint(part[first : first + 1]) and self._changes.isdisjoint(part)

    def _boundary(self, tokens: Sequence[str], start: int, end: int) -> int:
        """Return the index of the first token between two findings that belongs to the second."""
        for i in range(end - 1, start - 1, -1):
            if tokens[i] in self._separators:
                return i
        return end if start < len(tokens) and tokens[start] in self._prepositions else start

    def link(self, tokens: Sequence[str]) -> str | None:
        """Return the link between two findings: ``stated``, ``doubted``, ``alternative`` or ``None``.

        Alternatives are not separated: "opacity, peripheral/subpleural, with consolidation" names two findings.
        """
        kinds = {self.links[token] for token in tokens if token in self.links}
        if kind := next((kind for kind in ("doubted", "stated") if kind in kinds), None):
            return kind
        after = takewhile(lambda token: self.links.get(token) != "alternative", reversed(tokens))
        return "alternative" if kinds and self._separating.isdisjoint(after) else None


def _statements(tokens: Sequence[str], spans: Sequence[Span]) -> list[int]:
    """Return the number of each token's statement."""
    return statement_numbers(tokens, {i for span in spans for i in range(span.start, span.end)})


def _sharing(own: Attributes, other: Attributes, names: Sequence[str]) -> Attributes:
    """Return attributes with the named ones of another finding where the own ones are not stated."""
    missing = {name: value for name in names if not getattr(own, name) and (value := getattr(other, name))}
    return own._replace(**missing) if missing else own


def _collect(tokens: Sequence[str], modifiers: Sequence[Modifier]) -> tuple[Attributes, bool]:
    """Combine the modifiers of one finding; return also whether its side is only where it is most prominent."""
    where, is_emphasis = _whereabouts(tokens, modifiers)
    values: dict[str, Any] = {}
    numbers: list[tuple[str, float]] = []
    sizes: list[float] = []
    former = None
    for modifier in modifiers:
        for kind, value in modifier.values:
            if kind == "morphology":
                new = tuple(value) if isinstance(value, list) else (value,)
                old = values.get(kind, ())
                values[kind] = old + tuple(part for part in new if part not in old)
            elif kind == "size_mm":
                sizes.append(value)
                if value > values.get(kind, 0.0):
                    values.update({kind: value, "short_axis_mm": dict(modifier.values).get("short_axis_mm")})
            elif kind in _WORDS:
                values[kind] = (*values.get(kind, ()), value)
            elif kind in VALUE_KINDS:
                numbers.append((kind, value))
            elif kind == "former_mm":
                former = value
            elif kind == "change" and values.get(kind) == "stable":
                # "Again seen is an effusion, which has increased."
                values[kind] = value
            elif kind != "short_axis_mm" and kind not in PLACED:
                values.setdefault(kind, value)
    if former and "size_mm" in values:
        values.setdefault("change", _growth(former, values["size_mm"]))
    if len(sizes) > 1 or ("size" in dict(numbers)):
        numbers += [("size", size) for size in sizes]
    return where._replace(**values, values=tuple(sorted(numbers))), is_emphasis


def _growth(former: float, size: float) -> str:
    """Return the change that two sizes of a finding state: a difference within the error of a measurement is none."""
    return "stable" if abs(size - former) <= _MEASUREMENT_ERROR else "increased" if size > former else "decreased"


def _change(modifiers: Sequence[Modifier]) -> Modifier | None:
    """Return the first of some modifiers that states a change."""
    return next((modifier for modifier in modifiers if modifier.values[0][0] == "change"), None)


def _placed_as(own: Attributes, other: Attributes) -> Attributes:
    """Return attributes with the place of another finding; a stated level keeps its own, and has the other's side."""
    return _sharing(own, other, ("laterality",) if own.location else _PLACE)


@cache
def attribute_reader() -> AttributeReader:
    """Return the reader of the attributes in ``knowledge/attributes.yaml``, one per process."""
    return AttributeReader(load_knowledge("attributes"))


@dataclass(slots=True)
class _Named:
    """A finding while it is read: the modifiers that it owns, and what they state."""

    span: Span
    own: list[Modifier] = field(default_factory=list)
    attributes: Attributes = _NOTHING
    is_emphasis: bool = False

    def lacks(self, tokens: Sequence[str], modifier: Modifier) -> bool:
        """Whether a word describes something without a name before the finding: "a low density area and a nodule"."""
        if modifier.values[0][0] not in _DESCRIBING:
            return False
        between = tokens[modifier.end : self.span.phrase[0]]
        verbs = cue_words("statements", "verbs")
        return any(noun in _UNNAMED and (word in verbs or word == "and") for noun, word in pairwise(between))


@dataclass(slots=True)
class _Part:
    """One place while it is read, from token ``start`` to ``end``."""

    start: int
    end: int
    side: str | None = None
    implied: str | None = None
    location: list[str] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)
    is_emphasised: bool = False

    def fits(self, values: dict[str, Any]) -> bool:
        """Whether the values can be of this place: it has one side."""
        return self.side is None or values.get("laterality", self.side) == self.side

    def add(self, values: dict[str, Any], end: int) -> None:
        """Add the values of a modifier that ends at token ``end``."""
        self.end = end
        self.side = self.side or values.get("laterality")
        self.implied = self.implied or values.get("implied")
        if "segment" in values:
            self.segments.append(values["segment"])
        location = values.get("location", ())
        self.location += [location] if isinstance(location, str) else location

    @property
    def levels(self) -> tuple[str, ...]:
        """Its location, from the segments if no lobe is named."""
        has_level = LUNG_LEVELS.intersection(self.location)
        return tuple(dict.fromkeys(self.location if has_level else self.segments + self.location))


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(load_knowledge("attributes")[name])


def _whereabouts(tokens: Sequence[str], modifiers: Sequence[Modifier]) -> tuple[Attributes, bool]:
    """Return where a finding is, and whether that is only where it is largest or most prominent.

    Args:
        tokens: Tokens of the sentence.
        modifiers: The modifiers of the finding, in order.

    Example:
        >>> tokens = "nodules in the right upper and left lower lobe".split()
        >>> where, _ = _whereabouts(tokens, modifier_reader().modifiers(tokens))
        >>> where.laterality, where.location, [place.location for place in where.places]
        ('bilateral', ('upper', 'lower'), [('upper',), ('lower',)])
    """
    parts = _parts(tokens, modifiers)
    if not parts:
        return _NOTHING, False
    _complete(tokens, parts)
    stated = [part for part in parts if not part.is_emphasised]
    # "Nodules in the lungs, the largest on the right": the emphasised place says what the others leave open.
    sided = [part for part in stated if part.side]
    sides = {part.side for part in sided}
    if "bilateral" not in sides:
        # "Stones in the right kidney, the largest in the left": an emphasised place on the other side adds its side.
        sided = [part for part in parts if part.side and (part in sided or part.side not in sides)]
        sides = {part.side for part in sided}
    located = stated if any(part.levels for part in stated) else parts
    location = tuple(dict.fromkeys(level for part in located for level in part.levels))
    side = None if not sides else sides.copy().pop() if len(sides) == 1 else "bilateral"
    sizes = _sizes(sided, modifiers)
    places = [Place(part.side or "", part.levels, size) for part, size in zip(sided, sizes, strict=True)]
    is_told = len(sides) > 1 and any(place.location or place.size_mm for place in places)
    where = Attributes(side, location, places=tuple(places) if is_told else ())
    return where, all(part.is_emphasised for part in sided)


def _parts(tokens: Sequence[str], modifiers: Sequence[Modifier]) -> list[_Part]:
    """Return the places in the order of the text."""
    parts: list[_Part] = []
    for modifier in modifiers:
        values = dict(modifier.values)
        if PLACED.isdisjoint(values):
            continue
        gap = tokens[parts[-1].end : modifier.start] if parts else None
        if gap is None or not _words("within_place").issuperset(gap) or not parts[-1].fits(values):
            is_emphasised = _is_emphasised(tokens, parts[-1] if parts else None, modifier.start)
            parts.append(_Part(modifier.start, modifier.end, is_emphasised=is_emphasised))
        parts[-1].add(values, modifier.end)
    return parts


def _is_emphasised(tokens: Sequence[str], previous: _Part | None, start: int) -> bool:
    """Whether a place is where a finding is largest or most prominent, and not where it is."""
    gap = tokens[max(0, start - _EMPHASIS_REACH, previous.end if previous else 0) : start]
    if previous is not None and previous.is_emphasised and _are_joined(tokens, previous.end, start):
        return True
    # "right more than left" compares two places.
    return not _words("emphasis").isdisjoint(gap) and "than" not in gap


def _are_joined(tokens: Sequence[str], start: int, end: int) -> bool:
    """Whether only words such as "and" and "lobe of the" are between two places."""
    return all(token in _words("within_place") or token in _words("between_places") for token in tokens[start:end])


def _complete(tokens: Sequence[str], parts: Sequence[_Part]) -> None:
    """Give places the side or level that they leave out: "right upper and lower lobe", "right and left lower lobe"."""
    for part in parts:
        part.side = part.side or part.implied
    for before, part in pairwise(parts):
        if part.side is None and part.levels and _are_joined(tokens, before.end, part.start):
            part.side = before.side
    for part, after in reversed(list(pairwise(parts))):
        gap = tokens[part.end : after.start]
        if part.side is None and part.levels and _are_joined(tokens, part.end, after.start):
            part.side = after.side
        elif part.side and after.side and not part.levels and _words("between_places").issuperset(gap):
            part.location = list(after.location)
            part.segments = list(after.segments)


def _sizes(parts: Sequence[_Part], modifiers: Sequence[Modifier]) -> list[float | None]:
    """Return the size at each place: "4 mm in the right and 6 mm in the left lung"."""
    stated = [(modifier.start, dict(modifier.values).get("size_mm")) for modifier in modifiers]
    sizes = [(start, size) for start, size in stated if size]
    order = sorted([(part.start, 0.0) for part in parts] + sizes)
    is_alternating = all(bool(first) != bool(second) for (_, first), (_, second) in pairwise(order))
    return [size for _, size in sizes] if len(sizes) == len(parts) and is_alternating else [None] * len(parts)
