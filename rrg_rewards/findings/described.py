"""What the sentences of a report say of the findings of a question schema, attribute by attribute."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from rrg_rewards.findings.attributes import Span, attribute_reader
from rrg_rewards.findings.clauses import is_elsewhere, statements
from rrg_rewards.findings.engine import Mention, named_spans, report_units
from rrg_rewards.findings.extract import get_engine
from rrg_rewards.findings.scope import ABSENT, PRESENT
from rrg_rewards.findings.text import locate, pieces, tokenise
from rrg_rewards.functional.answer_words import Hit, answer_vocabulary
from rrg_rewards.functional.places import Place, places_in
from rrg_rewards.schemas import AttributeSpec, QuestionSchema

__all__ = ["Described", "Size", "describer"]

# Units remembered at most, and the longest unit worth remembering, in characters.
_MEMORY = 50_000
_MEMORABLE = 1_000
# A sentence that names no finding and begins so goes on about the last one.
_GOES_ON = re.compile(
    r"(?:(?:it|they|these|this|the largest|the larger|the biggest|largest|size|its|their|the described|the size)\b|"
    r"measur|located|localized)"
)
# Words that share the place of one finding with the next: "effusion with adjacent atelectasis".
_BESIDE = frozenset({"adjacent", "accompanying", "surrounding", "neighboring", "accompanied", "neighbouring"})
_JOINING = frozenset({"and", "or", ",", "/", "with", "some", "surrounding", "accompanying", "associated", "adjacent"})
_DENIALS = frozenset({"no", "not", "without", "non", "nor", "never"})
_DENIAL_REACH = 2
_NUMBER_REACH = 5
_FILLING = frozenset({"density", "like", "attenuation"})
# Without a comparison these are no change: "density increases", "similar nodules".
_COMPARED = frozenset(
    [
        "prior",
        "previous",
        "previously",
        "interval",
        "since",
        "compared",
        "comparison",
        "before",
        "earlier",
        "former",
        "progression",
        "regression",
    ]
)
_PERFECT = frozenset({"has", "have", "is", "are"})
_RELATIVE = re.compile(
    r"increas|decreas|similar|same|constant|improv|reduc|diminish|progress|persist|grow|larger|bigger|worse|resolv|regress|shrunk"
)
_HOUNSFIELD = re.compile(
    r"([-\u2212\u2013]?)\s*(\d+(?:\.\d+)?(?:\s*(?:-|to)\s*\d+)?)\s*(?:HU\b|Hounsfield)", re.IGNORECASE
)
_RATIO = re.compile(r"cardiothoracic\D{1,40}?(\d?\.\d+|\d{2}(?:\.\d+)?\s*%)", re.IGNORECASE)
_RANGE_BEFORE = re.compile(r"(\d+(?:\.\d+)?)\s*[-\u2013]\s*$")


class Size(NamedTuple):
    """A measure as the report writes it, and its largest dimension in mm or its value."""

    text: str
    largest: float


@dataclass(frozen=True, slots=True)
class Described:
    """One mention of a finding.

    Args:
        finding: Index of the finding in the schema; ``None`` for one that the schema does not have.
        presence: As the engine has it; ``None`` where a sentence goes on about what was named before.
        values: For each attribute that is stated, by index in the finding, its values: :class:`Size` for numbers,
            :class:`~rrg_rewards.functional.places.Place` for places, names for the rest.
    """

    finding: int | None
    presence: int | None
    values: tuple[tuple[int, tuple[object, ...]], ...] = ()


class _Sentence:
    """A sentence read once for all of its findings."""

    def __init__(self, piece: str, tokens: Sequence[str]) -> None:
        self.piece, self.tokens = piece, tokens
        self.hits = [hit for hit in answer_vocabulary().hits(tokens) if hit.meanings]
        self.sizes = attribute_reader().measures(tokens)
        self.is_compared = not _COMPARED.isdisjoint(tokens)
        self._offsets: list[tuple[int, int]] | None = None

    def size_text(self, start: int, end: int) -> str:
        """Words of a measure as the report writes them, with the lower end of a range."""
        if self._offsets is None:
            self._offsets = locate(self.piece, list(self.tokens))
        begin, stop = self._offsets[start][0], self._offsets[end - 1][1]
        before = _RANGE_BEFORE.search(self.piece[:begin])
        text = " ".join(self.piece[begin:stop].split())
        return f"{before[1]}-{text}" if before else text

    def denied(self, hit: Hit) -> bool:
        """Whether a word before a phrase takes it back."""
        return not _DENIALS.isdisjoint(self.tokens[max(0, hit.start - _DENIAL_REACH) : hit.start])


class _AttributeReader:
    """How the values of one attribute are read off a sentence."""

    def __init__(self, spec: AttributeSpec) -> None:
        vocabulary = answer_vocabulary()
        self.spec = spec
        self.parts: frozenset[str] = frozenset()
        self.details: frozenset[str] = frozenset()
        self.values: frozenset[str] = frozenset()
        if spec.answer_type == "location":
            roots = set(spec.values)
            self.parts = frozenset(
                part for part in vocabulary.parts if not roots or part in roots or vocabulary.within[part] & roots
            )
            # Segments are those of lungs and the like; what lies elsewhere has only the details that are named.
            details = vocabulary.wider_details
            numbered = frozenset(name for name in details if name.startswith("segment "))
            self.details = frozenset(roots & details.keys())
            if not roots or roots & {"lung", "kidney"}:
                self.details = frozenset(details.keys() - numbered)
            if "liver" in roots:
                self.details |= numbered
        elif spec.answer_type == "categorical":
            named = spec.values or _named(spec.examples)
            self.values = frozenset(value for name in named for value in vocabulary.groups.get(name, (name,)))
        self.is_change = "stable" in self.values
        self.is_number = "multiple" in self.values and "single" in self.values

    def read(
        self, sentence: _Sentence, hits: Sequence[Hit], owned: Iterable[int], span: Span | None
    ) -> tuple[object, ...]:
        """Values that the owned words of a sentence state."""
        if self.spec.answer_type == "numeric":
            return self._numbers(sentence, frozenset(owned))
        if self.spec.answer_type == "location":
            return self._places(sentence, hits)
        found: dict[object, None] = {}
        for hit in hits:
            for kind, name in hit.meanings:
                if kind == "value" and name in self.values and self._counts(sentence, hit, name, span):
                    found[name] = None
        return tuple(found)

    def _counts(self, sentence: _Sentence, hit: Hit, name: str, span: Span | None) -> bool:
        tokens = sentence.tokens
        if self.is_number:
            if tokens[hit.start].isdigit() or span is None:
                return False
            first = span.start if span.first is None else span.first
            return first - _NUMBER_REACH <= hit.start < span.end
        if self.is_change:
            if span is not None and span.first is not None and span.first <= hit.start < span.end:
                return False
            said = not _RELATIVE.match(tokens[hit.start]) or not _PERFECT.isdisjoint(
                tokens[max(0, hit.start - 2) : hit.start]
            )
            return sentence.is_compared or said
        if tokens[hit.start].endswith("ly") and any(other.start == hit.end for other in sentence.hits):
            # "slightly irregular" tells no degree of the finding.
            return name not in answer_vocabulary().groups["severity"]
        return name.startswith("non") or not sentence.denied(hit)

    def _numbers(self, sentence: _Sentence, owned: frozenset[int]) -> tuple[object, ...]:
        if self.spec.unit == "length":
            return tuple(
                Size(sentence.size_text(found.start, found.end), found.values[0][1])
                for found in sentence.sizes
                if found.start in owned
            )
        if self.spec.unit == "attenuation":
            found = _HOUNSFIELD.search(sentence.piece)
            if found is None:
                return ()
            sign = (
                "-" if found[1] and not sentence.piece[: found.start()].rstrip().endswith(tuple("0123456789")) else ""
            )
            return (Size(f"{sign}{found[2]} HU", float(re.match(r"[\d.]+", found[2])[0])),)  # type: ignore[index]
        found = _RATIO.search(sentence.piece)
        return () if found is None else (Size(found[1], 1.0),)

    def _places(self, sentence: _Sentence, hits: Sequence[Hit]) -> tuple[object, ...]:
        kept = []
        for hit in hits:
            meanings = tuple(
                (kind, name)
                for kind, name in hit.meanings
                if kind == "side"
                or name in (self.parts if kind == "part" else self.details if kind == "detail" else ())
            )
            if meanings and not sentence.denied(hit):
                kept.append(Hit(hit.start, hit.end, meanings))
        if not kept:
            return ()
        places = [place for place in places_in(sentence.tokens, kept) if place.side or place.details or _tells(place)]
        if "lung" in self.spec.values[:1]:
            # "Bilateral atelectasis" is in both lungs.
            places = [replace(place, part="lung") if place.side and not place.part else place for place in places]
        return tuple(places)


def _touches(tokens: Sequence[str], hit: Hit, span: Span) -> bool:
    """Whether a value stands right before a finding's name: "ground glass nodule", though that is one itself."""
    between = tokens[hit.end : span.start]
    return hit.end <= span.start and len(between) < 2 and _FILLING.issuperset(between)


def _tells(place: Place) -> bool:
    """Whether a part alone tells where something is: not that an opacity of the lung is in the lung."""
    return place.part not in (None, "lung", "coronary arteries", "kidney", "liver", "spleen", "prostate", "bone")


@lru_cache(maxsize=256)
def _named(examples: tuple[str, ...]) -> tuple[str, ...]:
    vocabulary = answer_vocabulary()
    return tuple(
        name
        for example in examples
        for hit in vocabulary.hits(tokenise(example))
        for kind, name in hit.meanings
        if kind == "value"
    )


class Describer:
    """Reads reports by the finding engine and the answer vocabulary.

    Args:
        schema: What is asked for.
    """

    def __init__(self, schema: QuestionSchema) -> None:
        self.schema = schema
        self.engine = get_engine(schema.lexicon)
        # What the labels' lexicon does not name must not lend them its attributes.
        self.others = get_engine("chest") if schema.lexicon == "chest_ct" else None
        places = {finding.name: place for place, finding in enumerate(schema.findings)}
        concepts = {
            concept: places[label]
            for label, members in self.engine.lexicon.labels.items()
            if label in places
            for concept in members
        }
        self._findings = [concepts.get(concept) for concept in self.engine.lexicon.concepts]
        self._readers = [[_AttributeReader(spec) for spec in finding.attributes] for finding in schema.findings]
        self._in_lungs = frozenset(
            place
            for place, finding in enumerate(schema.findings)
            if any(spec.answer_type == "location" and "lung" in spec.values[:1] for spec in finding.attributes)
        )
        self._known: dict[str, tuple[tuple[Described, ...], ...]] = {}

    def sentences(self, report: str) -> Iterable[tuple[Described, ...]]:
        """For each sentence of a report what it says."""
        known = self._known
        for unit in report_units(report):
            read = known.get(unit)
            if read is None:
                read = tuple(part for _, piece in pieces(unit) for part in self._sentence(piece))
                if len(unit) <= _MEMORABLE:
                    if len(known) >= _MEMORY:
                        # Replaced, not cleared: another thread may be reading the old one.
                        self._known = known = {}
                    known[unit] = read
            yield from read

    def _sentence(self, piece: str) -> tuple[tuple[Described, ...], ...]:
        """What a sentence says: of what was named before, where it begins so, and of what it names."""
        tokens = tokenise(piece)
        if not tokens:
            return ((),)
        named = named_spans(self.engine, tokens)
        others = [] if self.others is None else named_spans(self.others, tokens, exclusive=True)
        goes_on = _GOES_ON.match(" ".join(tokens[:3])) is not None
        if not named and not goes_on:
            return ((Described(None, others[-1][0].presence),) if others else (),)
        sentence = _Sentence(piece, tokens)
        spans = [span for _, span in [*named, *others]]
        numbers = statements(tokens, {i for span in spans for i in range(span.start, span.end)})
        read = []
        if goes_on and all(numbers[span.end - 1] for span in spans):
            read.append(self._continued(sentence, numbers.count(0)))
        if named:
            read.append(self._named(sentence, named, others, numbers))
        elif others:
            read.append((Described(None, others[-1][0].presence),))
        return tuple(read)

    def _continued(self, sentence: _Sentence, end: int) -> tuple[Described, ...]:
        """What the words up to ``end`` add to the last finding, for each finding that this may be."""
        hits = [hit for hit in sentence.hits if hit.start < end]
        if not hits and not sentence.sizes:
            return ()
        found = []
        for place, readers in enumerate(self._readers):
            values = self._values(readers, sentence, hits, range(end), None)
            found.append(Described(place, None, values))
        return tuple(found)

    @staticmethod
    def _values(
        readers: Sequence[_AttributeReader],
        sentence: _Sentence,
        hits: Sequence[Hit],
        owned: Iterable[int],
        span: Span | None,
    ) -> tuple[tuple[int, tuple[object, ...]], ...]:
        owned = tuple(owned)
        read = ((i, reader.read(sentence, hits, owned, span)) for i, reader in enumerate(readers))
        return tuple((i, values) for i, values in read if values)

    def _named(
        self,
        sentence: _Sentence,
        named: list[tuple[Mention, Span]],
        others: list[tuple[Mention, Span]],
        numbers: list[int],
    ) -> tuple[Described, ...]:
        tokens = sentence.tokens
        taken = {i for mention, _ in named for i in range(mention.start, mention.end)}
        spans = [span for _, span in named]
        spans += [span for mention, span in others if taken.isdisjoint(range(mention.start, mention.end))]
        distinct = sorted({span.end: span for span in reversed(spans)}.values(), key=lambda span: span.end)
        owners = [
            owner if owner < 0 or numbers[distinct[owner].end - 1] == number else -1
            for owner, number in zip(attribute_reader().owners(tokens, distinct), numbers, strict=True)
        ]
        place_of = {span.end: k for k, span in enumerate(distinct)}
        found = []
        for mention, span in named:
            finding = self._findings[mention.concept]
            if finding in self._in_lungs and self._lies_elsewhere(tokens, numbers, span):
                found.append(Described(None, mention.presence))
                continue
            if finding is None or mention.presence == ABSENT:
                found.append(Described(finding, mention.presence))
                continue
            k = place_of[span.end]
            hits = [hit for hit in sentence.hits if owners[hit.start] == k or _touches(tokens, hit, span)]
            owned = [i for i, owner in enumerate(owners) if owner == k]
            values = dict(self._values(self._readers[finding], sentence, hits, owned, span))
            self._share(values, finding, sentence, distinct, owners, k)
            found.append(Described(finding, mention.presence, tuple(values.items())))
        if len(distinct) and place_of[named[-1][1].end] != len(distinct) - 1:
            found.append(Described(None, PRESENT))
        return tuple(found)

    @staticmethod
    def _lies_elsewhere(tokens: Sequence[str], numbers: Sequence[int], span: Span) -> bool:
        number = numbers[span.end - 1]
        return is_elsewhere([token for token, own in zip(tokens, numbers, strict=True) if own == number])

    def _share(
        self,
        values: dict[int, tuple[object, ...]],
        finding: int,
        sentence: _Sentence,
        spans: Sequence[Span],
        owners: Sequence[int],
        k: int,
    ) -> None:
        """Add the place and change that a finding has in common with the next or the one before."""
        tokens = sentence.tokens
        last = k
        while last + 1 < len(spans):
            following = spans[last + 1]
            first = following.start if following.first is None else following.first
            if not _JOINING.issuperset(tokens[spans[last].end : max(spans[last].end, first)]):
                break
            last += 1
        lent = [hit for hit in sentence.hits if owners[hit.start] == last and hit.start >= spans[last].end]
        if last == k:
            lent = []
        beside = []
        if k and not _BESIDE.isdisjoint(token for token, owner in zip(tokens, owners, strict=True) if owner == k):
            beside = [hit for hit in sentence.hits if owners[hit.start] == k - 1]
        for i, reader in enumerate(self._readers[finding]):
            if i in values or not (reader.is_change or reader.spec.answer_type == "location"):
                continue
            own = reader.read(sentence, lent, (), None)
            if not own and not reader.is_change:
                own = reader.read(sentence, beside, (), None)
            if own:
                values[i] = own


@lru_cache(maxsize=16)
def describer(schema: QuestionSchema) -> Describer:
    """The describer of a schema, one per process so that its memory is shared."""
    return Describer(schema)
