"""Read the places of a finding from its modifiers: which side, level and size belong together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.finding import Place
from rrg_rewards.findings.reading.modifiers import Modifier

__all__ = ["NOWHERE", "Whereabouts", "are_joined", "whereabouts"]

_KINDS = frozenset({"laterality", "location", "segment", "implied"})
# Number of words before a place in which a word such as "largest" singles out a part of the finding.
_EMPHASIS_REACH = 8


class Whereabouts(NamedTuple):
    """Where a finding is.

    Attributes:
        laterality: Its side.
        location: Its location.
        places: Its places, if it has several with different sides.
        is_emphasis: Whether the side is only where the finding is largest or most prominent.
    """

    laterality: str | None
    location: tuple[str, ...]
    places: tuple[Place, ...] = ()
    is_emphasis: bool = False


NOWHERE = Whereabouts(None, ())
"""Where a finding is of which no place is stated."""


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
    def levels(self) -> list[str]:
        """Its location, from the segments if no lobe is named."""
        return self.location if _LEVELS.intersection(self.location) else self.segments + self.location


_LEVELS = frozenset({"upper", "middle", "lower"})


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(load_knowledge("attributes")[name])


def whereabouts(tokens: Sequence[str], modifiers: Iterable[Modifier]) -> Whereabouts:
    """Return where a finding is.

    Args:
        tokens: Tokens of the sentence.
        modifiers: The modifiers of the finding, in any order.

    Example:
        >>> from rrg_rewards.findings.reading.modifiers import modifier_reader
        >>> tokens = "nodules in the right upper and left lower lobe".split()
        >>> found = whereabouts(tokens, modifier_reader().modifiers(tokens))
        >>> found.laterality, found.location, [place.location for place in found.places]
        ('bilateral', ('upper', 'lower'), [('upper',), ('lower',)])
    """
    ordered = sorted(modifiers, key=lambda found: found.start)
    parts = _parts(tokens, ordered)
    if not parts:
        return NOWHERE
    _complete(tokens, parts)
    if len(parts) == 1:
        (part,) = parts
        return Whereabouts(part.side, tuple(dict.fromkeys(part.levels)), (), part.side is None or part.is_emphasised)
    stated = [part for part in parts if not part.is_emphasised]
    # "Nodules in the lungs, the largest on the right": the emphasised place says what the others leave open.
    sided = [part for part in stated if part.side] or [part for part in parts if part.side]
    sides = {part.side for part in sided}
    if "bilateral" not in sides:
        # "Stones in the right kidney, the largest in the left": an emphasised place on the other side adds its side.
        sided = [part for part in parts if part.side and (part in sided or part.side not in sides)]
        sides = {part.side for part in sided}
    located = stated if any(part.levels for part in stated) else parts
    location = tuple(dict.fromkeys(level for part in located for level in part.levels))
    side = None if not sides else sides.copy().pop() if len(sides) == 1 else "bilateral"
    is_emphasis = all(part.is_emphasised for part in sided)
    if len(sides) < 2:
        return Whereabouts(side, location, (), is_emphasis)
    sizes = _sizes(sided, ordered)
    places = tuple(
        Place(part.side or "", tuple(dict.fromkeys(part.levels)), size) for part, size in zip(sided, sizes, strict=True)
    )
    informative = any(place.location or place.size_mm for place in places)
    return Whereabouts(side, location, places if informative else (), is_emphasis)


def _parts(tokens: Sequence[str], modifiers: Sequence[Modifier]) -> list[_Part]:
    """Return the places in the order of the text."""
    parts: list[_Part] = []
    for modifier in modifiers:
        for kind, _ in modifier.values:
            if kind in _KINDS:
                break
        else:
            continue
        values = dict(modifier.values)
        gap = tokens[parts[-1].end : modifier.start] if parts else None
        if gap is None or not _words("within_place").issuperset(gap) or not parts[-1].fits(values):
            part = _Part(modifier.start, modifier.end)
            part.is_emphasised = _is_emphasised(tokens, parts[-1] if parts else None, modifier.start)
            parts.append(part)
        parts[-1].add(values, modifier.end)
    return parts


def _is_emphasised(tokens: Sequence[str], previous: _Part | None, start: int) -> bool:
    """Whether a place is where a finding is largest or most prominent, and not where it is."""
    begin = max(0, start - _EMPHASIS_REACH, previous.end if previous else 0)
    gap = tokens[begin:start]
    if previous is not None and previous.is_emphasised and are_joined(tokens, previous.end, start):
        return True
    # "right more than left" compares two places.
    return not _words("emphasis").isdisjoint(gap) and "than" not in gap


def are_joined(tokens: Sequence[str], begin: int, stop: int) -> bool:
    """Whether only words such as "and" and "lobe of the" are between two places."""
    gap = tokens[begin:stop]
    return all(token in _words("within_place") or token in _words("between_places") for token in gap)


def _complete(tokens: Sequence[str], parts: Sequence[_Part]) -> None:
    """Give places the side or level that they leave out: "right upper and lower lobe", "right and left lower lobe"."""
    for part in parts:
        part.side = part.side or part.implied
    if len(parts) == 1:
        return
    for before, part in pairwise(parts):
        if part.side is None and part.levels and are_joined(tokens, before.end, part.start):
            part.side = before.side
    for part, after in reversed(list(pairwise(parts))):
        gap = tokens[part.end : after.start]
        if part.side is None and part.levels and are_joined(tokens, part.end, after.start):
            part.side = after.side
        elif part.side and after.side and not part.levels and _words("between_places").issuperset(gap):
            part.location = list(after.location)
            part.segments = list(after.segments)


def _sizes(parts: Sequence[_Part], modifiers: Sequence[Modifier]) -> list[float | None]:
    """Return the size at each place: "4 mm in the right and 6 mm in the left lung"."""
    sizes = [
        (modifier.start, dict(modifier.values)["size_mm"])
        for modifier in modifiers
        if "size_mm" in dict(modifier.values)
    ]
    starts = [part.start for part in parts]
    order = sorted([(start, False) for start in starts] + [(start, True) for start, _ in sizes])
    is_alternating = all(first[1] != second[1] for first, second in pairwise(order))
    if len(sizes) != len(parts) or not is_alternating:
        return [None] * len(parts)
    return [size for _, size in sizes]
