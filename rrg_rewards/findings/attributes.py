"""Which words of a sentence say what about which of its findings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from rrg_rewards.findings.knowledge_base import read_knowledge
from rrg_rewards.findings.types import Attributes

__all__ = ["AttributeReader", "Modifier", "Span", "attribute_reader"]

_KINDS = tuple(Attributes.__slots__)
_TUPLES = ("location", "morphology")
_MILLIMETRES = {"mm": 1.0, "millimeter": 1.0, "millimeters": 1.0, "millimetre": 1.0, "cm": 10.0, "centimeter": 10.0}
_MILLIMETRES |= {"centimeters": 10.0, "centimetre": 10.0, "centimetres": 10.0, "millimetres": 1.0}
_NUMBER = re.compile(r"((?:\d+(?:\.\d+)?|\.\d+)(?:x(?:\d+(?:\.\d+)?|\.\d+))*)(mm|cm)?")
_NUMBERS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8}
_NUMBERS |= {"ninth": 9, "tenth": 10, "eleventh": 11, "twelfth": 12}
_NUMBERS |= {f"{n}{'st' if n == 1 else 'nd' if n == 2 else 'rd' if n == 3 else 'th'}": n for n in range(1, 13)}
_VERTEBRA = re.compile(r"[tlc](\d{1,2})")
# The words remembered are capped, as numbers and misspellings never end.
_MAX_STARTS = 50_000
# Words before a measure by which it may be of another time: "was previously 8 mm", "decreased from the former 12 mm".
_FORMER_REACH = 2
# Words between a denial and what it denies: "without significant displacement".
_DENIAL_REACH = 2
# What a denial does not take back: "not changed" is a change, "cannot exclude" a doubt.
_UNDENIED = frozenset({"change", "certainty", "size_mm", "location"})
# An endotracheal tube this far above the carina, in mm, is well placed.
_TUBE_RANGE = (20.0, 75.0)
# What parts the words of one finding from those of the next.
_SEPARATORS = frozenset({",", "and", "with", "but", "without", ":", "/", "also", "plus", "however", "including", "or"})
# Between two findings nothing but these: what follows the second is said of both.
_JOINING = frozenset({"and", "or", ",", "/", "with", "surrounding", "accompanying", "associated", "adjacent", "some"})
# What ties the words after a finding to it, also without a separator.
_PREPOSITIONS = frozenset(
    {"in", "at", "of", "on", "within", "along", "involving", "measuring", "is", "are", "was", "has", "have", "which"}
    | {"that", "(", "to", "over", "overlying", "projecting", "terminating", "tip", "terminates", "projects", "near"}
)


class Modifier(NamedTuple):
    """Tokens ``start`` to ``end`` of a sentence and the attributes that they state."""

    start: int
    end: int
    values: tuple[tuple[str, Any], ...]


class Span(NamedTuple):
    """Tokens ``start`` to ``end`` of a sentence that name a finding; ``first`` begins its whole phrase, if earlier."""

    start: int
    end: int
    first: int | None = None


@dataclass(frozen=True, slots=True)
class _Phrase:
    """Words that state attributes: for each its exact forms, its stems, and how many words may stand before it."""

    words: tuple[tuple[frozenset[str], tuple[str, ...], int], ...]
    values: tuple[tuple[str, Any], ...]

    def end(self, tokens: Sequence[str], start: int) -> int:
        """Token after the phrase that starts at ``start``, or 0."""
        position = start
        for exact, stems, gap in self.words:
            for place in range(position, min(len(tokens), position + gap + 1)):
                if tokens[place] in exact or (stems and tokens[place].startswith(stems)):
                    position = place + 1
                    break
            else:
                return 0
        return position


def _phrase(text: str, values: Iterable[tuple[str, Any]]) -> _Phrase:
    words, gap = [], 0
    for part in text.split():
        if part.startswith("<"):
            gap = int(part[1:-1])
            continue
        choices = part.split("|")
        exact = frozenset(choice for choice in choices if not choice.endswith("*"))
        stems = tuple(choice[:-1] for choice in choices if choice.endswith("*"))
        words.append((exact, stems, gap))
        gap = 0
    return _Phrase(tuple(words), tuple(values))


def _phrases(config: Mapping[str, Any]) -> Iterable[_Phrase]:
    for entry in config["joint"]:
        values = [(kind, value) for kind, value in entry.items() if kind != "phrase"]
        for text in entry["phrase"]:
            yield _phrase(text, values)
    for text in config["ignored"]:
        yield _phrase(text, ())
    for kind in _KINDS:
        for value, texts in config.get(kind, {}).items():
            for text in texts:
                yield _phrase(text, [(kind, value)])


class AttributeReader:
    """Finds the words of a sentence that state attributes, and whose they are.

    Args:
        config: Contents of ``knowledge/attributes.yaml``, which explains itself.

    Example:
        >>> reader = attribute_reader()
        >>> tokens = "small left effusion and 5 mm nodule in the right upper lobe".split()
        >>> reader.attributes(tokens, [Span(2, 3), Span(6, 7)])[1]
        Attributes(laterality='right', location=('upper',), size_mm=5.0)
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        # Longer phrases first, and of equals the first: joint ones, then what is to be ignored.
        self._phrases = sorted(_phrases(config), key=lambda phrase: -len(phrase.words))
        self._starts: dict[str, tuple[_Phrase, ...]] = {}
        self._distance, self._toward = frozenset(config["distance"]), frozenset(config["toward"])
        self._not_sizes, self._denials = frozenset(config["not_sizes"]), frozenset(config["denials"])
        self._normal = frozenset(config["normal"])
        self.links = {word: kind for kind, words in config["links"].items() for word in words}

    def _starting_with(self, token: str) -> tuple[_Phrase, ...]:
        found = self._starts.get(token)
        if found is None:
            found = tuple(
                phrase
                for phrase in self._phrases
                if token in phrase.words[0][0] or (phrase.words[0][1] and token.startswith(phrase.words[0][1]))
            )
            if len(self._starts) < _MAX_STARTS:
                self._starts[token] = found
        return found

    def modifiers(self, tokens: Sequence[str]) -> list[Modifier]:
        """What the words of a sentence state, in order."""
        found, i = [], 0
        while i < len(tokens):
            modifier = self._measure(tokens, i) if tokens[i][0] in "0123456789." else self._phrase_at(tokens, i)
            if modifier is None:
                modifier = _level(tokens, i)
            if modifier is None:
                i += 1
                continue
            if modifier.values and not self._is_denied(tokens, modifier):
                found.append(modifier)
            i = modifier.end
        return found

    def measures(self, tokens: Sequence[str]) -> list[Modifier]:
        """Sizes that a sentence states, in order; not distances, nor what was measured earlier.

        Example:
            >>> attribute_reader().measures("nodule of 5 x 8 mm , previously 4 mm".split())
            [Modifier(start=2, end=6, values=(('size_mm', 8.0),))]
        """
        found, i = [], 0
        while i < len(tokens):
            modifier = self._measure(tokens, i) if tokens[i][0] in "0123456789." else None
            i = i + 1 if modifier is None else modifier.end
            if modifier is not None and modifier.values and modifier.values[0][0] == "size_mm":
                found.append(modifier)
        return found

    def owners(self, tokens: Sequence[str], spans: Sequence[Span]) -> list[int]:
        """For each token the index of the finding that it speaks of, or -1; spans must be distinct and in order."""
        return self._owners(tokens, spans)

    def _is_denied(self, tokens: Sequence[str], modifier: Modifier) -> bool:
        if all(kind in _UNDENIED for kind, _ in modifier.values):
            return False
        return not self._denials.isdisjoint(tokens[max(0, modifier.start - _DENIAL_REACH) : modifier.start])

    def _phrase_at(self, tokens: Sequence[str], i: int) -> Modifier | None:
        for phrase in self._starting_with(tokens[i]):
            end = phrase.end(tokens, i)
            if end:
                return Modifier(i, end, phrase.values)
        return None

    def _measure(self, tokens: Sequence[str], start: int) -> Modifier | None:
        """A size such as "2.5 x 3 cm", or the distance of a tube from the carina."""
        largest, end, unit = 0.0, start, 0.0
        i = start
        while i < len(tokens) and (number := _NUMBER.fullmatch(tokens[i])):
            largest = max(largest, *map(float, number[1].split("x")))
            i += 1
            found = number[2] or (tokens[i] if i < len(tokens) else "")
            if found in _MILLIMETRES:
                unit = _MILLIMETRES[found]
                i += not number[2]
            end = i
            joins = tokens[i : i + 1]
            if joins not in (["x"], ["by"]) and not (joins in (["to"], ["and"]) and unit == 0.0):
                break
            i += 1
        if not unit or not largest:
            return None
        if not self._not_sizes.isdisjoint(tokens[max(0, start - _FORMER_REACH) : start]):
            return Modifier(start, end, ())
        size, after = largest * unit, tokens[end : end + 2]
        if "carina" in tokens[end : end + 6] and after and after[0] in ("above", "from"):
            good = _TUBE_RANGE[0] <= size <= _TUBE_RANGE[1]
            return Modifier(start, end, (("device_position", "satisfactory" if good else "malpositioned"),))
        if after and (after[0] in self._distance or (after[0] in self._toward and after[1:] in (["to"], ["the"]))):
            return Modifier(start, end, ())
        return Modifier(start, end, (("size_mm", size),))

    def owned(self, tokens: Sequence[str], places: Sequence[Span]) -> list[tuple[Modifier, int]]:
        """Modifiers of the findings named at ``places``, distinct and in order, each with its finding's index."""
        owners = self._owners(tokens, places)
        return [(found, owners[found.start]) for found in self.modifiers(tokens) if owners[found.start] >= 0]

    def attributes(self, tokens: Sequence[str], spans: Sequence[Span]) -> list[Attributes]:
        """Attributes of the findings named at ``spans``, which must be in order; equal ones share theirs."""
        places = list({span.end: span for span in spans}.values())
        found: list[list[Modifier]] = [[] for _ in places]
        trailing: list[list[Modifier]] = [[] for _ in places]
        for modifier, owner in self.owned(tokens, places):
            (trailing if modifier.start >= places[owner].end else found)[owner].append(modifier)
        result = [_collect(own + later) for own, later in zip(found, trailing, strict=True)]
        for k in range(len(places) - 2, -1, -1):
            # "consolidation with surrounding ground glass in the right lower lobe"
            following = places[k + 1].start if places[k + 1].first is None else places[k + 1].first
            if _JOINING.issuperset(tokens[places[k].end : following]):
                trailing[k] = trailing[k] + trailing[k + 1]
                where = _collect(trailing[k + 1])
                shared = Attributes(
                    laterality=where.laterality,
                    location=where.location,
                    change=where.change,
                    device_position=where.device_position,
                )
                result[k] = result[k].filled(shared)
        by_end = dict(zip((place.end for place in places), result, strict=True))
        return [by_end[span.end] for span in spans]

    def _owners(self, tokens: Sequence[str], spans: Sequence[Span]) -> list[int]:
        """For each token the index of the finding that it speaks of, or -1."""
        owners = [-1] * len(tokens)
        for k, span in enumerate(spans):
            first = 0 if k == 0 else _split(tokens, spans[k - 1].end, span.start)
            owners[first:] = [k] * (len(tokens) - first)
        named = {i for span in spans for i in range(span.start, span.end)}
        start = 0
        for i in [*(i for i, token in enumerate(tokens) if token in _SEPARATORS), len(tokens)]:
            # "opacity on the right and the left lung is clear": what is normal has attributes of its own
            if named.isdisjoint(range(start, i)) and not self._normal.isdisjoint(tokens[start:i]):
                owners[start:i] = [-1] * (i - start)
            start = i
        return owners

    def link(self, tokens: Sequence[str]) -> str | None:
        """How the words between two findings tie them: ``stated``, ``doubted``, ``alternative`` or not at all."""
        kinds = {self.links[token] for token in tokens if token in self.links}
        for kind in ("doubted", "stated", "alternative"):
            if kind in kinds:
                return kind
        return None


def _level(tokens: Sequence[str], i: int) -> Modifier | None:
    """A rib or vertebra by its number."""
    token = tokens[i]
    if token in _NUMBERS and any(word in ("rib", "ribs") for word in tokens[i + 1 : i + 7]):
        return Modifier(i, i + 1, (("location", f"rib_{_NUMBERS[token]}"),))
    if _VERTEBRA.fullmatch(token):
        return Modifier(i, i + 1, (("location", token),))
    return None


def _split(tokens: Sequence[str], begin: int, stop: int) -> int:
    """Where the words between two findings stop to be the first one's and begin to be the second's."""
    for i in range(stop - 1, begin - 1, -1):
        if tokens[i] in _SEPARATORS:
            return i
    return stop if begin < stop and tokens[begin] in _PREPOSITIONS else begin


def _collect(modifiers: Sequence[Modifier]) -> Attributes:
    values: dict[str, Any] = {}
    sides = set()
    for modifier in modifiers:
        for kind, value in modifier.values:
            if kind == "laterality":
                sides.add(value)
            elif kind in _TUPLES:
                new = tuple(value) if isinstance(value, list) else (value,)
                old = values.get(kind, ())
                values[kind] = old + tuple(part for part in new if part not in old)
            elif kind == "size_mm":
                values[kind] = max(value, values.get(kind, 0.0))
            else:
                values.setdefault(kind, value)
    if sides:
        values["laterality"] = sides.pop() if len(sides) == 1 else "bilateral"
    return Attributes(**values)


@cache
def attribute_reader() -> AttributeReader:
    """The reader of the package's own attribute words, one per process."""
    return AttributeReader(read_knowledge("attributes"))
