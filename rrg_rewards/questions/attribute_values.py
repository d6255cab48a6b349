"""Read the values of one attribute from the words of a sentence."""

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache

from rrg_rewards.findings.knowledge.load import cue_words
from rrg_rewards.findings.reading.attributes import Span
from rrg_rewards.findings.reading.measurements import Size, attenuation_in, cardiothoracic_ratio_in, range_start
from rrg_rewards.findings.reading.modifiers import PLACING, Modifier, modifier_reader
from rrg_rewards.findings.reading.phrases import Memo, cue_bits
from rrg_rewards.findings.reading.tokens import locate, tokenise
from rrg_rewards.questions.locations import Place, places_in
from rrg_rewards.questions.schema import AttributeSpec
from rrg_rewards.questions.vocabulary import Hit, Meanings, answer_vocabulary
from rrg_rewards.utilities.names import unknown_name_message

# Maximum number of words between a denial and the phrase that it denies, and between a number and a finding's name.
_DENIAL_REACH = 2
_NUMBER_REACH = 5
# Maximum number of characters before a size that can state the lower end of its range.
_RANGE_REACH = 20
# Maximum number of words before a size that make it an upper bound: "not greater than about 5 mm".
_BOUND_REACH = 4
# Maximum number of words between "the largest" and its size.
_LARGEST_REACH = 40
_LOCALISED = frozenset({"localized", "localised"})
_LONE_UNIT = re.compile(r"(?<=\d) ?m\b(?! ?m)", re.IGNORECASE)
# Parts that do not locate a finding without a side or details: an opacity of the lung is always in the lung.
_UNSPECIFIC_PARTS = (None, "lung", "coronary arteries", "kidney", "liver", "spleen", "prostate", "bone")


class Sentence:
    """A sentence with its phrases and sizes, which are read once for all findings.

    Args:
        text: The sentence.
        tokens: Its tokens.
    """

    def __init__(self, text: str, tokens: Sequence[str]) -> None:
        self.text, self.tokens = text, tokens
        self.hits = [hit for hit in answer_vocabulary().hits(tokens) if hit.meanings]
        self.hit_at_start = {hit.start: hit for hit in self.hits}
        self.hit_at_end = {hit.end: hit for hit in self.hits}
        self.sizes = modifier_reader().measures(tokens)
        self.is_compared = not cue_words("comparisons", "earlier").isdisjoint(tokens)
        self._offsets: list[tuple[int, int]] | None = None

    def is_sign(self, start: int) -> bool:
        """Whether the phrase at a token is a sign of another finding: "consolidation with air bronchograms"."""
        signs = answer_vocabulary().groups["signs"]
        hit = self.hit_at_start.get(start)
        return hit is not None and any(kind == "value" and name in signs for kind, name in hit.meanings)

    @cached_property
    def attenuation(self) -> Size | None:
        """The first attenuation in the sentence."""
        return attenuation_in(self.text)

    @cached_property
    def cardiothoracic_ratio(self) -> Size | None:
        """The cardiothoracic ratio that the sentence states."""
        return cardiothoracic_ratio_in(self.text)

    def size_text(self, start: int, end: int) -> str:
        """Return the text of the measure in tokens ``start`` to ``end``, with the ends of a range."""
        if self._offsets is None:
            self._offsets = locate(self.text, list(self.tokens))
        text_start, text_end = self._offsets[start][0], self._offsets[end - 1][1]
        low = range_start(self.text[max(0, text_start - _RANGE_REACH) : text_start])
        # "6M" means millimetres.
        text = _LONE_UNIT.sub(" mm", " ".join(self.text[text_start:text_end].split()))
        if low:
            return f"{low}-{text}"
        return f"< {text}" if _is_bound(self.tokens[max(0, start - _BOUND_REACH) : start]) else text

    def largest(self, sizes: Sequence[Modifier]) -> Sequence[Modifier]:
        """Return the sizes that are called the largest, or else all: "nodules of 3-6 mm, the largest is 6 x 5 mm"."""
        ends = [0, *(size.end for size in sizes)]
        named = [
            size
            for end, size in zip(ends, sizes, strict=False)
            if any(self._is_largest(i) for i in range(max(end, size.start - _LARGEST_REACH), size.start))
        ]
        return named or sizes

    def _is_largest(self, i: int) -> bool:
        """Whether a word singles out the largest finding, and does not compare: "larger than"."""
        return self.tokens[i] in cue_words("comparisons", "largest") and self.tokens[i + 1 : i + 2] != ["than"]

    def denied(self, hit: Hit) -> bool:
        """Whether a word directly before a phrase, or one word earlier, denies it."""
        denials = cue_words("denials", "always", "in_series", "in_answers")
        return not denials.isdisjoint(self.tokens[max(0, hit.start - _DENIAL_REACH) : hit.start])


class AttributeValueReader:
    """Reads the values of one attribute from sentences.

    Args:
        spec: The attribute.

    Raises:
        ValueError: If the answer vocabulary lacks a value of the attribute, or contains none of its examples.
    """

    def __init__(self, spec: AttributeSpec) -> None:
        vocabulary = answer_vocabulary()
        places = {**vocabulary.parts, **vocabulary.wider_details}
        known = places if spec.answer_type == "location" else {*vocabulary.groups, *vocabulary.values}
        for name in spec.values:
            if name not in known:
                raise ValueError(unknown_name_message("value", name, known))
        self.spec = spec
        self.parts: frozenset[str] = frozenset()
        self.details: frozenset[str] = frozenset()
        self.values: frozenset[str] = frozenset()
        if spec.answer_type == "location":
            roots = set(spec.values)
            self.parts = frozenset(
                part for part in vocabulary.parts if not roots or part in roots or vocabulary.within[part] & roots
            )
            # Numbered segments belong to the liver. Only findings of the lungs and kidneys may have any other detail.
            details = vocabulary.wider_details
            numbered = frozenset(name for name in details if name.startswith("segment "))
            self.details = frozenset(roots & details.keys())
            if not roots or roots & {"lung", "kidney"}:
                self.details = frozenset(details.keys() - numbered)
            if "liver" in roots:
                self.details |= numbered
        elif spec.answer_type == "categorical":
            named = spec.values or _values_named_by(spec.examples)
            if not named:
                raise ValueError(
                    "the answer vocabulary contains none of its examples, so the finding engine cannot read it; name "
                    "values or groups of rrg_rewards/questions/vocabulary.yaml, or use a judge as builder and answerer"
                )
            self.values = frozenset(value for name in named for value in vocabulary.groups.get(name, (name,)))
        self.is_change = "stable" in self.values
        self.is_number = {"multiple", "single"} <= self.values
        self.is_place = spec.answer_type == "location"
        # Names in the meanings of the phrases that can state the attribute; None if they are no phrases.
        self.names: frozenset[str] | None = self.values
        if self.is_place:
            self.names = frozenset(("right", "left", "both", *self.parts, *self.details))
        elif spec.answer_type == "numeric":
            self.names = None
        # Meanings of a phrase without those that state no place of the attribute.
        self._placed = Memo(self._place_meanings)

    def read(
        self, sentence: Sentence, hits: Sequence[Hit], sizes: Sequence[Modifier], span: Span | None
    ) -> tuple[object, ...]:
        """Return the values that a sentence states for one finding.

        Args:
            sentence: The sentence.
            hits: Phrases of the finding.
            sizes: Sizes of the finding.
            span: Span of the finding's name; ``None`` if an earlier sentence names the finding.
        """
        if self.names is None:
            return self._numbers(sentence, sizes)
        if self.is_place:
            return self._places(sentence, hits) if hits else ()
        found: dict[object, None] = {}
        for hit in hits:
            for kind, name in hit.meanings:
                if kind == "value" and name in self.values and self._is_stated(sentence, hit, name, span):
                    found[name] = None
        return tuple(found)

    def _is_stated(self, sentence: Sentence, hit: Hit, name: str, span: Span | None) -> bool:
        """Whether a phrase states the value ``name`` for the finding."""
        tokens = sentence.tokens
        if self.is_number:
            if tokens[hit.start].isdigit() or span is None:
                return False
            first = span.start if span.first is None else span.first
            return first - _NUMBER_REACH <= hit.start < span.end
        if self.is_change:
            if span is not None and span.first is not None and span.first <= hit.start < span.end:
                return False
            before = tokens[max(0, hit.start - 2) : hit.start]
            is_perfect = not cue_words("comparisons", "perfect").isdisjoint(before)
            # Some words state a change only with an earlier examination or a verb in the perfect tense.
            return sentence.is_compared or is_perfect or not cue_bits("comparisons", "relative")[tokens[hit.start]]
        if tokens[hit.start] in _LOCALISED and self._is_located(sentence, hit):
            return False
        if tokens[hit.start].endswith("ly") and hit.end in sentence.hit_at_start:
            # "slightly" in "slightly irregular" does not state the severity of the finding.
            return name not in answer_vocabulary().groups["severity"]
        return name.startswith("non") or not sentence.denied(hit)

    def _is_located(self, sentence: Sentence, hit: Hit) -> bool:
        """Whether "localized" only says where a finding is: "subpleural localized", "localized in the left lung"."""
        before = sentence.hit_at_end.get(hit.start)
        is_placed = before is not None and all(kind != "value" for kind, _ in before.meanings)
        return is_placed or not PLACING.isdisjoint(sentence.tokens[hit.end : hit.end + 1])

    def _numbers(self, sentence: Sentence, sizes: Sequence[Modifier]) -> tuple[object, ...]:
        if self.spec.unit == "length":
            if not sizes:
                return ()
            return tuple(
                Size(sentence.size_text(found.start, found.end), found.values[0][1])
                for found in sentence.largest(sizes)
            )
        size = sentence.attenuation if self.spec.unit == "attenuation" else sentence.cardiothoracic_ratio
        return () if size is None else (size,)

    def _places(self, sentence: Sentence, hits: Sequence[Hit]) -> tuple[Place, ...]:
        kept = []
        for hit in hits:
            meanings = self._placed[hit.meanings]
            if meanings and not sentence.denied(hit):
                kept.append(Hit(hit.start, hit.end, meanings))
        if not kept:
            return ()
        places = [
            place
            for place in places_in(sentence.tokens, kept)
            if place.side or place.details or place.part not in _UNSPECIFIC_PARTS
        ]
        if "lung" in self.spec.values[:1]:
            # "Bilateral atelectasis" means atelectasis in both lungs.
            places = [
                Place(place.side, "lung", place.details) if place.side and not place.part else place for place in places
            ]
        return tuple(places)

    def _place_meanings(self, meanings: Meanings) -> Meanings:
        """Return the meanings of a phrase that state a place of the attribute."""
        known = {"part": self.parts, "detail": self.details}
        return tuple((kind, name) for kind, name in meanings if kind == "side" or name in known.get(kind, ()))


def _is_bound(before: Sequence[str]) -> bool:
    """Whether the words before a size make it an upper bound: "less than", "not greater than"."""
    words = [word for word in before if word not in cue_words("comparisons", "about")]
    if words[-1:] != ["than"]:
        is_denied = not cue_words("denials", "always").isdisjoint(words[-2:-1])
        return words[-1:] in (["below"], ["under"]) or (is_denied and words[-1].startswith(("exceed", "reach")))
    kinds = {kind for kind in ("less", "more") if words[-2:-1] and words[-2] in cue_words("comparisons", kind)}
    is_denied = not cue_words("denials", "always").isdisjoint(words[-3:-2])
    return "less" in kinds or ("more" in kinds and is_denied)


@lru_cache(maxsize=256)
def _values_named_by(examples: tuple[str, ...]) -> tuple[str, ...]:
    vocabulary = answer_vocabulary()
    return tuple(
        name
        for example in examples
        for hit in vocabulary.hits(tokenise(example))
        for kind, name in hit.meanings
        if kind == "value"
    )
