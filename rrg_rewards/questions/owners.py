"""Assign the words of a sentence to its findings, and find what several findings share."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from rrg_rewards.findings.lexicon.cues import cue_words
from rrg_rewards.findings.reading.attributes import Span, attribute_reader
from rrg_rewards.findings.reading.modifiers import PLACING, Modifier
from rrg_rewards.findings.reading.statements import is_elsewhere
from rrg_rewards.questions.attribute_values import AttributeValueReader, Sentence
from rrg_rewards.questions.locations import Place, places_in
from rrg_rewards.questions.vocabulary import Hit, answer_vocabulary

__all__ = ["Owners", "SharedValues"]

# Words that may occur between a value and the finding's name: "ground glass density nodule".
_FILLERS = frozenset({"density", "like", "attenuation"})
_DENSITIES = frozenset({"density", "densities", "attenuation"})
# Nouns of things that are no findings.
_UNNAMED = frozenset({"area", "areas", "region", "regions", "zone", "zones", "shadow", "shadows", "focus", "foci"})
# Parts of places that are no narrower than a lung.
_WHOLE_LUNGS = (None, "lung")
# Number of words after a finding in which "around it" refers to the finding before.
_PRONOUN_REACH = 6


class Owners:
    """Assigns the tokens of a sentence to its findings.

    Args:
        sentence: The sentence.
        spans: Spans of the findings' names. Of spans with the same end, the first is used.
        numbers: For each token, the number of its statement.

    Attributes:
        referring: Findings that are where the finding before them is: "ground glass around it".
    """

    def __init__(self, sentence: Sentence, spans: Sequence[Span], numbers: Sequence[int]) -> None:
        self.sentence, self.numbers = sentence, numbers
        self.spans = sorted({span.end: span for span in reversed(spans)}.values(), key=lambda span: span.end)
        of_token = [
            owner if owner < 0 or numbers[self.spans[owner].end - 1] == number else -1
            for owner, number in zip(attribute_reader().owners(sentence.tokens, self.spans), numbers, strict=True)
        ]
        self.index_of_end = {span.end: k for k, span in enumerate(self.spans)}
        self.hits: list[list[Hit]] = [[] for _ in self.spans]
        self.sizes: list[list[Modifier]] = [[] for _ in self.spans]
        for hit in sentence.hits:
            owner = of_token[hit.start]
            if owner >= 0 and not self._is_of_something_unnamed(hit, self.spans[owner]):
                self.hits[owner].append(hit)
        for size in sentence.sizes:
            if of_token[size.start] >= 0:
                self.sizes[of_token[size.start]].append(size)
        sharing = cue_words("connectives", "sharing")
        owned = [(i, owner) for i, owner in enumerate(of_token) if owner > 0]
        self.referring = {owner for i, owner in owned if self._refers_back(i, self.spans[owner])}
        self._sharing = self.referring | {owner for i, owner in owned if sentence.tokens[i] in sharing}
        self._frame = self._frame_sides()
        self._last_joined = self._joined()
        self._elsewhere: dict[int, bool] = {}
        self._statements: dict[int, list[str]] = {}
        for token, number in zip(sentence.tokens, numbers, strict=True):
            self._statements.setdefault(number, []).append(token)

    def _joined(self) -> list[int]:
        """Return, for each finding, the last one of the list that it is in: "effusion and atelectasis"."""
        # "Of" as in "consolidation and areas of ground glass".
        joining, tokens = cue_words("connectives", "joining", "fillers") | _DENSITIES | {"of"}, self.sentence.tokens
        last = list(range(len(self.spans)))
        for k in range(len(self.spans) - 2, -1, -1):
            following = self.spans[k + 1]
            begin = following.start if following.first is None else following.first
            if joining.issuperset(tokens[self.spans[k].end : begin]):
                last[k] = last[k + 1]
        return last

    def _is_of_something_unnamed(self, hit: Hit, span: Span) -> bool:
        """Whether a value before a finding describes something else: "a low density area and a nodule".

        Also "small air duct shadows can be seen in the consolidation".
        """
        if any(kind != "value" for kind, _ in hit.meanings):
            return False
        between = self.sentence.tokens[hit.end : span.start if span.first is None else span.first]
        enders = cue_words("statements", "verbs") | {"and"}
        return any(word in _UNNAMED and after in enders for word, after in pairwise(between))

    def _refers_back(self, i: int, span: Span) -> bool:
        """Whether the word at ``i`` puts a finding where the one before is: "ground glass around it"."""
        is_near = span.end <= i < span.end + _PRONOUN_REACH
        return is_near and self.sentence.tokens[i] in cue_words("connectives", "pronouns")

    def _frame_sides(self) -> frozenset[str]:
        """Return the sides of the lungs that the sentence is about: both for "In both lungs, nodules are seen"."""
        tokens, enders = self.sentence.tokens, cue_words("connectives", "enders") | cue_words("statements", "verbs")
        if tokens[0] not in PLACING:
            return frozenset()
        first = min(span.start if span.first is None else span.first for span in self.spans)
        stop = next((i for i in range(first) if tokens[i] in enders | {"there"}), first)
        places = places_in(tokens, [hit for hit in self.sentence.hits if hit.start < stop])
        if any(place.part not in _WHOLE_LUNGS or place.side is None for place in places):
            return frozenset()
        return frozenset(place.side for place in places if place.side)

    def _sides_of(self, k: int) -> frozenset[str]:
        """Return the sides at the start of the statement that contains finding ``k``."""
        return self._frame if self.numbers[self.spans[k].end - 1] == self.numbers[0] else frozenset()

    def is_open(self, k: int, own: Iterable[object]) -> bool:
        """Whether the places of finding ``k`` leave open where in the lungs it is, so that a list can share its place.

        "Peripheral" leaves this open in "peripheral consolidation and ground glass in the left lung", and so does the
        start of the statement in "in both lungs, consolidation and ground glass in the upper lobes".
        """
        sides = self._sides_of(k)
        return all(
            isinstance(place, Place)
            and (place.side in sides if place.side else not place.part)
            and place.part in _WHOLE_LUNGS
            for place in own
        )

    def with_sides(self, k: int, places: Iterable[object]) -> tuple[object, ...]:
        """Return places with the sides of their statement: "in both lungs, nodules in the lower lobes"."""
        sides, vocabulary = sorted(self._sides_of(k), reverse=True), answer_vocabulary()
        found: list[object] = []
        for place in places:
            is_lobe = isinstance(place, Place) and place.part and "lung" in vocabulary.within.get(place.part, ())
            if isinstance(place, Place) and is_lobe and sides and place.side is None:
                found += [replace(place, side=side) for side in sides]
            else:
                found.append(place)
        return tuple(found)

    def stated_hits(self, span: Span) -> list[Hit]:
        """Return the phrases of a finding, including a value of another finding directly before its name."""
        own = self.hits[self.index_of_end[span.end]]
        near = (self.sentence.hit_at_end.get(end) for end in (span.start - 1, span.start))
        more = [hit for hit in near if hit is not None and _directly_precedes(self.sentence.tokens, hit, span)]
        return sorted({*own, *more}) if more else own

    def is_elsewhere(self, span: Span) -> bool:
        """Whether the statement of a finding is about an organ outside the lungs."""
        number = self.numbers[span.end - 1]
        if number not in self._elsewhere:
            self._elsewhere[number] = is_elsewhere(self._statements[number])
        return self._elsewhere[number]

    def following(self, k: int) -> int | None:
        """Return the last finding of the list that finding ``k`` is in, or ``None`` if that is ``k`` itself.

        "On the left" applies to both findings of "effusion and atelectasis on the left".
        """
        return self._last_joined[k] if self._last_joined[k] > k else None

    def trailing_hits(self, k: int) -> list[Hit]:
        """Return the phrases of finding ``k`` after its name."""
        return [hit for hit in self.hits[k] if hit.start >= self.spans[k].end]

    def hits_before(self, k: int) -> list[Hit]:
        """Return the phrases that finding ``k`` shares with the one before: "right effusion, adjacent atelectasis"."""
        return self.hits[k - 1] if k in self._sharing else []


class SharedValues:
    """Reads the values that findings of one sentence share with their neighbours.

    All findings of a list share the words after its last one. They are read once for each attribute.

    Args:
        owners: The owners of the sentence's tokens.
    """

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._read: dict[tuple[AttributeValueReader, int], tuple[object, ...]] = {}

    def read(self, reader: AttributeValueReader, k: int) -> tuple[object, ...]:
        """Return the values that finding ``k`` shares with the findings after it, or else with the one before it."""
        owners, last = self._owners, self._owners.following(k)
        values: tuple[object, ...] = ()
        if last is not None:
            known = self._read.get((reader, last))
            if known is None:
                known = reader.read(owners.sentence, owners.trailing_hits(last), (), None)
                self._read[reader, last] = known
            values = known
        if not values and not reader.is_change:
            values = reader.read(owners.sentence, owners.hits_before(k), (), None)
            if k in owners.referring:
                # A detail alone, such as "posterior", is no place that "around it" can mean.
                values = tuple(found for found in values if not isinstance(found, Place) or found.side or found.part)
        return values


def _directly_precedes(tokens: Sequence[str], hit: Hit, span: Span) -> bool:
    """Whether a value directly precedes a finding's name: "ground glass nodule" states no ground-glass opacity."""
    between = tokens[hit.end : span.start]
    return hit.end <= span.start and len(between) < 2 and _FILLERS.issuperset(between)
