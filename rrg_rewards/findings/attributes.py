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
_NUMBER = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(mm|cm)?")
_NUMBERS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8}
_NUMBERS |= {"ninth": 9, "tenth": 10, "eleventh": 11, "twelfth": 12}
_NUMBERS |= {f"{n}{'st' if n == 1 else 'nd' if n == 2 else 'rd' if n == 3 else 'th'}": n for n in range(1, 13)}
_VERTEBRA = re.compile(r"[tlc](\d{1,2})")
# Words between a measure and what makes it a distance: "5 cm above", "2 cm distal to".
_DISTANCE_REACH = 2
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
    """Tokens ``start`` to ``end`` of a sentence that name a finding."""

    start: int
    end: int


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
        self._distance = frozenset(config["distance"])
        self.links = {word: kind for kind, words in config["links"].items() for word in words}

    def _starting_with(self, token: str) -> tuple[_Phrase, ...]:
        found = self._starts.get(token)
        if found is None:
            found = tuple(
                phrase
                for phrase in self._phrases
                if token in phrase.words[0][0] or (phrase.words[0][1] and token.startswith(phrase.words[0][1]))
            )
            if len(self._starts) < 50_000:
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
            if modifier.values:
                found.append(modifier)
            i = modifier.end
        return found

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
            largest = max(largest, float(number[1]))
            i += 1
            found = number[2] or (tokens[i] if i < len(tokens) else "")
            if found in _MILLIMETRES:
                unit = _MILLIMETRES[found]
                i += not number[2]
            end = i
            if (i < len(tokens) and tokens[i] in ("x", "by", "*") and i + 1 < len(tokens)) or (
                i + 1 < len(tokens) and tokens[i] in ("to", "and") and unit == 0.0
            ):
                i += 1
            else:
                break
        if not unit or not largest:
            return None
        size = largest * unit
        after = tokens[end : end + _DISTANCE_REACH]
        if self._distance.isdisjoint(after):
            return Modifier(start, end, (("size_mm", size),))
        if ("above" in after or "from" in after) and "carina" in tokens[end : end + 6]:
            good = _TUBE_RANGE[0] <= size <= _TUBE_RANGE[1]
            return Modifier(start, end, (("device_position", "satisfactory" if good else "malpositioned"),))
        return Modifier(start, end, ())

    def owned(self, tokens: Sequence[str], places: Sequence[Span]) -> list[tuple[Modifier, int]]:
        """Modifiers of the findings named at ``places``, distinct and in order, each with its finding's index."""
        owners = _owners(tokens, places)
        return [(found, owners[found.start]) for found in self.modifiers(tokens) if owners[found.start] >= 0]

    def attributes(self, tokens: Sequence[str], spans: Sequence[Span]) -> list[Attributes]:
        """Attributes of the findings named at ``spans``, which must be in order; equal ones share theirs."""
        places = list(dict.fromkeys(spans))
        found: list[list[Modifier]] = [[] for _ in places]
        trailing: list[list[Modifier]] = [[] for _ in places]
        for modifier, owner in self.owned(tokens, places):
            (trailing if modifier.start >= places[owner].end else found)[owner].append(modifier)
        result = [_collect(own + later) for own, later in zip(found, trailing, strict=True)]
        for k in range(len(places) - 2, -1, -1):
            # "consolidation with surrounding ground glass in the right lower lobe"
            if _JOINING.issuperset(tokens[places[k].end : places[k + 1].start]):
                trailing[k] = trailing[k] + trailing[k + 1]
                where = _collect(trailing[k + 1])
                result[k] = result[k].filled(Attributes(laterality=where.laterality, location=where.location))
        by_place = dict(zip(places, result, strict=True))
        return [by_place[span] for span in spans]

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


def _owners(tokens: Sequence[str], spans: Sequence[Span]) -> list[int]:
    """For each token the index of the finding that it speaks of, or -1."""
    owners = [-1] * len(tokens)
    for k, span in enumerate(spans):
        first = 0 if k == 0 else _split(tokens, spans[k - 1].end, span.start)
        owners[first:] = [k] * (len(tokens) - first)
    return owners


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
