"""Read places in the body, each a side, a part and details, and grade one place against another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from rrg_rewards.findings.reading.schema_words import HARD, Word
from rrg_rewards.questions.vocabulary import AnswerVocabulary, answer_vocabulary

_SIDES = ("right", "left")
# Paired organs that a side alone can mean: "bilateral" for both lungs.
_PAIRED = frozenset({"lung", "kidney"})


class Place(NamedTuple):
    """A place in the body: a side (``right`` or ``left``), a part, and details such as ``subpleural``, all optional."""

    side: str | None = None
    part: str | None = None
    details: frozenset[str] = frozenset()

    def on(self, sides: Iterable[str]) -> "tuple[Place, ...]":
        """Return the place on each of some sides; a place in the midline, or with a side of its own, is as it is."""
        vocabulary = answer_vocabulary()
        if self.side or self.part in vocabulary.midline:
            return (self,)
        return tuple(self._replace(side=side) for side in sides)


@dataclass(slots=True)
class _Fragment:
    """The sides, parts and details between two separators. A ``hard`` fragment shares nothing with the previous one."""

    sides: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    details: frozenset[str] = frozenset()
    hard: bool = False
    # Whether a side comes first: "right hilar".
    leads: bool = False


@lru_cache(maxsize=1 << 14)
def read_places(text: str) -> tuple[Place, ...]:
    """Return the places that an answer names.

    Example:
        >>> [(place.side, place.part) for place in read_places("both lower lobes")]
        [('right', 'lower lobe'), ('left', 'lower lobe')]
    """
    return places_in([word for word in answer_vocabulary().answer_words(text) if word.kind != "value"])


def places_in(words: Sequence[Word]) -> tuple[Place, ...]:
    """Return the places that words of the vocabulary name, in order, each once."""
    if not words:
        return ()
    places = [_expanded(part.sides, part.parts, part.details) for part in _attached(_fragments(words))]
    return places[0] if len(places) == 1 else tuple(dict.fromkeys(chain.from_iterable(places)))


def _fragments(words: Sequence[Word]) -> list[_Fragment]:
    fragments: list[_Fragment] = []
    section = -HARD
    for kind, name, own in words:
        if own != section:
            fragments.append(_Fragment(hard=own // HARD != section // HARD))
            section = own
        current = fragments[-1]
        if kind == "side":
            current.leads = current.leads or not (current.parts or current.details)
            current.sides += _SIDES if name == "both" else (name,)
        elif kind == "part":
            current.parts += (name,)
        else:
            current.details |= {name}
    return fragments


def _attached(fragments: list[_Fragment]) -> list[_Fragment]:
    """Return the fragments with the sides and parts of their neighbours: "right" in "right and left lower lobes"."""
    kept: list[_Fragment] = []
    for fragment in fragments:
        is_detail = fragment.details and not (fragment.sides or fragment.parts or fragment.hard)
        if is_detail and kept and (kept[-1].sides or kept[-1].parts):
            # The detail in "right upper lobe, subpleural" belongs to the place before it.
            kept[-1].details |= fragment.details
            continue
        kept.append(fragment)
    for i in range(len(kept) - 2, -1, -1):
        here, following = kept[i], kept[i + 1]
        if following.hard:
            continue
        if not here.parts and not here.details and here.sides and following.sides and following.parts:
            here.parts, here.details = following.parts, following.details
        elif here.details and not here.sides and not here.parts:
            here.sides, here.parts = following.sides, following.parts
        elif (
            here.parts
            and not here.sides
            and following.sides
            # "Right" in "paratracheal, right hilar" belongs to the hilum alone.
            and not (following.leads and "mediastinum" in answer_vocabulary().within.get(here.parts[0], ()))
            and not any(f.sides for f in kept[: i + 1])
            # The lungs are wider than a place in one of them: "in the lungs, the largest in the left upper lobe".
            and not (here.parts == ("lung",) and following.parts)
        ):
            here.sides = following.sides
    for i in range(1, len(kept)):
        before, here = kept[i - 1], kept[i]
        if here.hard:
            continue
        if not here.sides and here.parts and before.sides:
            here.sides = before.sides
        elif here.sides and not here.parts and before.parts:
            here.parts = before.parts
    return [fragment for fragment in kept if fragment.sides or fragment.parts or fragment.details]


@lru_cache(maxsize=1 << 14)
def _expanded(sides: tuple[str, ...], parts: tuple[str, ...], details: frozenset[str]) -> tuple[Place, ...]:
    """Return a place for each side and part, each once, without parts that contain another of the parts."""
    vocabulary = answer_vocabulary()
    parts = tuple(dict.fromkeys(parts))
    implied = [vocabulary.implied[detail] for detail in sorted(details) if detail in vocabulary.implied]
    if implied and all(part == "lung" for part in parts):
        parts = (implied[0],)
    kept = [part for part in parts if not any(part in vocabulary.within.get(other, ()) for other in parts)]
    narrow = frozenset(
        detail for detail in details if not any(detail in vocabulary.wider_details.get(other, ()) for other in details)
    )
    places: list[Place] = []
    chosen: list[str | None] = [*kept] or [None]
    for part in chosen:
        own = None if part is None else vocabulary.parts[part].side
        chosen_sides: tuple[str | None, ...] = tuple(dict.fromkeys(sides)) or (own,)
        if part in vocabulary.midline:
            chosen_sides = (None,)
        elif own is not None and len(chosen_sides) == 2:
            # "Middle lobes of both lungs" means the right middle lobe, because the left lung has none.
            chosen_sides = (own,)
        places += [Place(side, part, narrow) for side in chosen_sides]
    return tuple(dict.fromkeys(places))


def grade_place(target: Place, said: Place) -> float:
    """Grade a place: 1 if it equals the target or is within it, 0.5 if it contains the target, else 0."""
    vocabulary = answer_vocabulary()
    if target.side and said.side and target.side != said.side:
        return 0.0
    grade = 1.0
    if target.side and not said.side:
        grade = 0.5
    if target.part != said.part and target.part is not None:
        if said.part is None and said.side and target.part in _PAIRED:
            # "Bilateral" means both lungs.
            pass
        elif said.part is None or said.part in vocabulary.within.get(target.part, ()):
            grade = 0.5
        elif target.part not in vocabulary.within.get(said.part, ()):
            return 0.0
    only_details = not (target.side or target.part) or not (said.side or said.part)
    if only_details and not _share_details(target, said, vocabulary):
        return 0.0
    for detail in target.details:
        if detail in said.details or any(detail in vocabulary.wider_details.get(own, ()) for own in said.details):
            continue
        if _conflict(detail, said.details - target.details, vocabulary):
            return 0.0
        grade = 0.5
    return grade


def lobes_of(place: Place) -> frozenset[tuple[str, str]]:
    """Return the lobes, with their sides, that a place in the lungs contains or lies in; none for another place.

    Example:
        >>> sorted(lobes_of(Place("left", "lung")))
        [('left', 'lower lobe'), ('left', 'upper lobe')]
    """
    vocabulary = answer_vocabulary()
    if place.part is None:
        return frozenset(one for one in vocabulary.lobes if one[0] == place.side)
    around = {place.part, *vocabulary.within.get(place.part, ())}
    if "lung" not in around:
        return frozenset()
    named = {lobe for _, lobe in vocabulary.lobes} & around
    return frozenset(
        (side, lobe) for side, lobe in vocabulary.lobes if place.side in (None, side) and (not named or lobe in named)
    )


def opposed_details(target: Place, said: Place) -> frozenset[str]:
    """Return the details of a place that exclude a detail of the target, such as ``central`` for ``peripheral``."""
    vocabulary = answer_vocabulary()
    return frozenset(
        own
        for own in said.details - target.details
        if any(_conflict(detail, frozenset({own}), vocabulary) for detail in target.details)
    )


def _conflict(detail: str, said: frozenset[str], vocabulary: AnswerVocabulary) -> bool:
    """Whether details such as ``posterobasal`` and ``anterobasal`` exclude each other."""
    wider = vocabulary.wider_details.get(detail, frozenset()) | {detail}
    return any(
        (one, other) in vocabulary.opposed_details
        for own in said
        for other in vocabulary.wider_details.get(own, frozenset()) | {own}
        for one in wider - vocabulary.wider_details.get(own, frozenset())
        if other not in wider
    )


def _share_details(target: Place, said: Place, vocabulary: AnswerVocabulary) -> bool:
    """Whether two places have a detail in common, or one contains a detail of the other."""
    wider = vocabulary.wider_details
    mine, theirs = (place.details.union(*(wider.get(d, ()) for d in place.details)) for place in (target, said))
    return not mine.isdisjoint(theirs)


@lru_cache(maxsize=1 << 14)
def places_text(places: tuple[Place, ...]) -> str:
    """Return places as text that :func:`read_places` can read.

    Example:
        >>> places_text(read_places("the left lung upper lobe and the lower lobe of the right lung"))
        'left upper lobe; right lower lobe'
    """
    texts, done = [], set()
    for place in places:
        if place in done:
            continue
        other = place._replace(side="left" if place.side == "right" else "right")
        both = place.side is not None and other in places
        done |= {place, other} if both else {place}
        details = " ".join(sorted(place.details))
        part = place.part or ""
        if both:
            side = "both" if part else "bilateral"
            part = f"{part}s" if part.endswith(("lung", "lobe", "kidney")) else part
        else:
            side = place.side or ""
        texts.append(" ".join(word for word in (side, part, details) if word))
    return "; ".join(texts)
