"""Read the attributes that a report states for the findings of a question schema."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise

from rrg_rewards.findings.knowledge.load import cue_words
from rrg_rewards.findings.reading.attributes import Span, attribute_reader
from rrg_rewards.findings.reading.engine import UnitMemory, get_engine
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.mention import Mention
from rrg_rewards.findings.reading.mentions import named_spans
from rrg_rewards.findings.reading.modifiers import PLACING, Modifier
from rrg_rewards.findings.reading.negation import ABSENT, PRESENT
from rrg_rewards.findings.reading.phrases import Memo
from rrg_rewards.findings.reading.sentences import report_units, split_unit
from rrg_rewards.findings.reading.statements import is_elsewhere, statement_numbers
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.questions.attribute_values import AttributeValueReader, Sentence
from rrg_rewards.questions.locations import Place, places_in
from rrg_rewards.questions.schema import FindingSpec, QuestionSchema
from rrg_rewards.questions.vocabulary import Hit, Meanings, answer_vocabulary
from rrg_rewards.utilities.names import unknown_name_message

# Maximum number of remembered units, and of remembered sentences.
_MEMORY = 50_000
_DIGIT = re.compile(r"\d")
# Words of "nodules, mainly with ground glass density".
_NODULES = frozenset({"nodule", "nodules"})
_DEGREES = frozenset({"mainly", "mostly", "predominantly", "partly", "a", "some", "pure"})
_DENSITIES = frozenset({"density", "densities", "attenuation"})
# Words that may occur between a value and the finding's name: "ground glass density nodule".
_FILLERS = frozenset({"density", "like", "attenuation"})
# Nouns of things that are no findings.
_UNNAMED = frozenset({"area", "areas", "region", "regions", "zone", "zones", "shadow", "shadows", "focus", "foci"})
# Parts of places that are no narrower than a lung.
_WHOLE_LUNGS = (None, "lung")
# Number of words after a finding in which "around it" refers to the finding before.
_PRONOUN_REACH = 6


Values = tuple[tuple[int, tuple[object, ...]], ...]
"""Pairs of the index of an attribute and its stated values."""


@dataclass(frozen=True, slots=True)
class Description:
    """One mention of a finding.

    Args:
        finding: Index of the finding in the schema; ``None`` for a finding outside the schema.
        presence: Presence from the finding engine.
        values: Pairs of the index of an attribute and its stated values:
            :class:`~rrg_rewards.findings.reading.measurements.Size` for numbers,
            :class:`~rrg_rewards.questions.locations.Place` for locations, and names for other attributes.
    """

    finding: int | None
    presence: int
    values: Values = ()


class Continuation:
    """The start of a sentence that continues the description of the last finding of the sentences before.

    Args:
        readers: Readers of the attributes of each finding.
        sentence: The sentence.
        hits: Phrases of the continuation.
        sizes: Sizes of the continuation.

    Attributes:
        values: The attributes that are stated if the last finding is the one of an index.
    """

    def __init__(
        self, readers: Sequence["_Readers"], sentence: Sentence, hits: Sequence[Hit], sizes: Sequence[Modifier]
    ) -> None:
        self.values = Memo[int, Values](lambda finding: _values(readers[finding], sentence, hits, sizes, None))


class _Readers:
    """The readers of the attributes of a finding.

    Most sentences state few attributes, so the readers are chosen by the meanings of phrases, one bit for each reader.

    Args:
        finding: The finding.
    """

    def __init__(self, finding: FindingSpec) -> None:
        self.all = [AttributeValueReader(spec) for spec in finding.attributes]
        # No phrase states these.
        self.numeric = sum(1 << i for i, reader in enumerate(self.all) if reader.names is None)
        # The attributes that findings of one sentence can share.
        self.sharable = [(i, reader) for i, reader in enumerate(self.all) if reader.is_place or reader.is_change]
        self._stating = Memo(self._bits)
        self._chosen = Memo(self._of_bits)

    def _bits(self, meanings: Meanings) -> int:
        """Return the bits of the attributes that a phrase can state."""
        names = {name for _, name in meanings}
        phrased = ((i, reader.names) for i, reader in enumerate(self.all) if reader.names is not None)
        return sum(1 << i for i, stated in phrased if not stated.isdisjoint(names))

    def _of_bits(self, bits: int) -> tuple[tuple[int, AttributeValueReader], ...]:
        return tuple((i, reader) for i, reader in enumerate(self.all) if bits >> i & 1)

    def of(self, hits: Iterable[Hit]) -> tuple[tuple[int, AttributeValueReader], ...]:
        """Return the readers, with the indices of their attributes, that phrases can concern."""
        bits = self.numeric
        for hit in hits:
            bits |= self._stating[hit.meanings]
        return self._chosen[bits]


def check_readable(schema: QuestionSchema) -> None:
    """Check that the finding engine can read the findings and attributes of a schema.

    Raises:
        ValueError: If the labels of the schema's lexicon lack a finding, or the answer vocabulary lacks the values of
            an attribute.
    """
    labels = load_lexicon(schema.lexicon).labels
    for finding in schema.findings:
        where = f"question schema {schema.name!r}"
        if finding.name not in labels:
            unknown = unknown_name_message(f"label of lexicon {schema.lexicon}", finding.name, labels)
            raise ValueError(
                f"{where}: {unknown}. Name the finding like a label, or a lexicon file that has such a label "
                "(lexicon: my_lexicon.yaml)"
            )
        for spec in finding.attributes:
            try:
                AttributeValueReader(spec)
            except ValueError as error:
                raise ValueError(f"{where}, finding {finding.name!r}, attribute {spec.name!r}: {error}") from error


class _Owners:
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
        of_token = attribute_reader().owners(sentence.tokens, self.spans)
        if numbers[-1]:
            of_token = [
                owner if owner < 0 or numbers[self.spans[owner].end - 1] == number else -1
                for owner, number in zip(of_token, numbers, strict=True)
            ]
        self.index_of_end = {span.end: k for k, span in enumerate(self.spans)}
        self.hits: list[list[Hit]] = [[] for _ in self.spans]
        self.sizes: list[list[Modifier]] = [[] for _ in self.spans]
        has_unnamed = not _UNNAMED.isdisjoint(sentence.tokens)
        for hit in sentence.hits:
            owner = of_token[hit.start]
            if owner >= 0 and not (has_unnamed and self._is_of_something_unnamed(hit, self.spans[owner])):
                self.hits[owner].append(hit)
        for size in sentence.sizes:
            if of_token[size.start] >= 0:
                self.sizes[of_token[size.start]].append(size)
        self.referring: set[int] = set()
        self._sharing: set[int] = set()
        if len(self.spans) > 1:
            sharing = cue_words("connectives", "sharing")
            owned = [(i, owner) for i, owner in enumerate(of_token) if owner > 0]
            if not cue_words("connectives", "pronouns").isdisjoint(sentence.tokens):
                self.referring = {owner for i, owner in owned if self._refers_back(i, self.spans[owner])}
            self._sharing = self.referring | {owner for i, owner in owned if sentence.tokens[i] in sharing}
        self._frame = self._frame_sides()
        self._last_joined = self._joined()

    def _joined(self) -> list[int]:
        """Return, for each finding, the last one of the list that it is in: "effusion and atelectasis"."""
        joining, tokens = _joining(), self.sentence.tokens
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
        tokens = self.sentence.tokens
        if tokens[0] not in PLACING:
            return frozenset()
        enders = cue_words("connectives", "enders") | cue_words("statements", "verbs")
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
        if not sides:
            return tuple(places)
        found: list[object] = []
        for place in places:
            is_lobe = isinstance(place, Place) and place.part and "lung" in vocabulary.within.get(place.part, ())
            if isinstance(place, Place) and is_lobe and sides and place.side is None:
                found += [place._replace(side=side) for side in sides]
            else:
                found.append(place)
        return tuple(found)

    def stated_hits(self, span: Span) -> list[Hit]:
        """Return the phrases of a finding, including a value of another finding directly before its name."""
        own = self.hits[self.index_of_end[span.end]]
        near = (self.sentence.hit_at_end.get(end) for end in (span.start - 1, span.start))
        more = [hit for hit in near if hit is not None and _directly_precedes(self.sentence.tokens, hit, span)]
        return sorted({*own, *more}) if more else own

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


def _elsewhere(tokens: Sequence[str], numbers: Sequence[int]) -> Memo[int, bool]:
    """Return whether the statement of a number is about an organ outside the lungs."""
    # Grouped once, so that time is linear in the number of statements.
    words: dict[int, list[str]] = {}
    for token, number in zip(tokens, numbers, strict=True):
        words.setdefault(number, []).append(token)
    return Memo(lambda number: is_elsewhere(words[number]))


class _SharedValues:
    """Reads the values that findings of one sentence share with their neighbours.

    All findings of a list share the words after its last one. They are read once for each attribute.

    Args:
        owners: The owners of the sentence's tokens.
    """

    def __init__(self, owners: _Owners) -> None:
        self._owners = owners
        self._read: dict[tuple[AttributeValueReader, int], tuple[object, ...]] = {}

    def read(self, reader: AttributeValueReader, k: int) -> tuple[object, ...]:
        """Return the values that finding ``k`` shares with the findings after it, or else with the one before it."""
        owners, last = self._owners, self._owners.following(k)
        values: tuple[object, ...] = ()
        if last is not None:
            shared = self._read.get((reader, last))
            if shared is None:
                shared = reader.read(owners.sentence, owners.trailing_hits(last), (), None)
                self._read[reader, last] = shared
            values = shared
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


_Reading = tuple[Description, ...] | Continuation


class Describer:
    """Describes the findings of reports with the finding engine and the answer vocabulary.

    Args:
        schema: The findings and attributes to read.

    Raises:
        ValueError: If the engine cannot read a finding or an attribute; see :func:`check_readable`.
    """

    def __init__(self, schema: QuestionSchema) -> None:
        check_readable(schema)
        self.schema = schema
        self.engine = get_engine(schema.lexicon)
        # Also read findings that the labels' lexicon lacks. Otherwise their attributes would be assigned to others.
        self.others = get_engine("chest") if self.engine.lexicon.base == "chest_ct" else None
        indices = {finding.name: i for i, finding in enumerate(schema.findings)}
        concepts = {
            concept: indices[label]
            for label, members in self.engine.lexicon.labels.items()
            if label in indices
            for concept in members
        }
        self._findings = [concepts.get(concept) for concept in self.engine.lexicon.concepts]
        self._readers = [_Readers(finding) for finding in schema.findings]
        self._in_lungs = frozenset(
            i
            for i, finding in enumerate(schema.findings)
            if any(spec.answer_type == "location" and "lung" in spec.values[:1] for spec in finding.attributes)
        )
        self._units: UnitMemory[str, tuple[_Reading, ...]] = UnitMemory(_MEMORY)
        self._sentences: UnitMemory[tuple[str, ...], tuple[_Reading, ...]] = UnitMemory(_MEMORY)

    def sentences(self, report: str) -> Iterable["_Reading"]:
        """Yield the descriptions in each sentence of a report, and what it says of the last finding before."""
        for unit in report_units(report):
            read = self._units.results.get(unit)
            if read is None:
                read = tuple(part for _, sentence in split_unit(unit) for part in self._sentence(sentence))
                self._units.add(unit, read)
            yield from read

    def _sentence(self, text: str) -> tuple["_Reading", ...]:
        """Return the continuation of the last finding, if any, and the descriptions of the findings in a sentence.

        Sentences without numbers that differ in case and punctuation only are read once.
        """
        tokens = tokenise(text)
        if _DIGIT.search(text):
            return self._read(text, tokens)
        key = tuple(tokens)
        read = self._sentences.results.get(key)
        if read is None:
            read = self._read(text, tokens)
            self._sentences.add(key, read)
        return read

    def _read(self, text: str, tokens: Sequence[str]) -> tuple["_Reading", ...]:
        if not tokens:
            return ((),)
        named = named_spans(self.engine.lexicon, tokens)
        continues = _continuation().match(" ".join(tokens[:3])) is not None
        if not continues:
            if not named:
                # Findings outside the schema alone have no questions, and nothing can continue them.
                return ((),)
            if self._is_denial(tokens, named):
                return (self._denied(tokens, named),)
        others = []
        if self.others is not None:
            # Only the presence of findings that can be the last ones is used.
            others = named_spans(self.others.lexicon, tokens, exclusive=True, with_presence=continues)
        if not (_NODULES.isdisjoint(tokens) or _DENSITIES.isdisjoint(tokens)):
            densities = _densities(tokens, [span for _, span in [*named, *others]])
            named, others = ([found for found in part if found[1] not in densities] for part in (named, others))
            if not named and not continues:
                return ((),)
        sentence = Sentence(text, tokens)
        spans = [span for _, span in [*named, *others]]
        numbers = statement_numbers(tokens, {i for span in spans for i in range(span.start, span.end)})
        read: list[_Reading] = []
        if continues and all(numbers[span.end - 1] for span in spans):
            read.append(self._continued(sentence, numbers.count(0)))
        if named:
            read.append(self._named(sentence, named, others, numbers))
        elif others:
            read.append((Description(None, others[-1][0].presence),))
        return tuple(read)

    def _is_denial(self, tokens: Sequence[str], named: Sequence[tuple[Mention, Span]]) -> bool:
        """Whether a sentence of one statement only denies findings, or names findings without questions."""
        return all(
            mention.presence == ABSENT or self._findings[mention.concept] is None for mention, _ in named
        ) and cue_words("connectives", "enders").isdisjoint(tokens)

    def _denied(self, tokens: Sequence[str], named: Sequence[tuple[Mention, Span]]) -> tuple[Description, ...]:
        """Return the descriptions of the findings that a sentence of one statement denies."""
        elsewhere = _elsewhere(tokens, [0] * len(tokens))
        return tuple(self._without_values(mention, 0, elsewhere) for mention, _ in named)

    def _without_values(self, mention: Mention, number: int, elsewhere: Memo[int, bool]) -> Description:
        finding = self._findings[mention.concept]
        is_other = finding in self._in_lungs and elsewhere[number]
        return Description(None if is_other else finding, mention.presence)

    def _continued(self, sentence: Sentence, end: int) -> "_Reading":
        """Return what the tokens up to ``end`` say of the last finding; nothing if they state no attribute."""
        hits = [hit for hit in sentence.hits if hit.start < end]
        if not hits and not sentence.sizes:
            return ()
        return Continuation(self._readers, sentence, hits, [size for size in sentence.sizes if size.start < end])

    def _named(
        self,
        sentence: Sentence,
        named: list[tuple[Mention, Span]],
        others: list[tuple[Mention, Span]],
        numbers: list[int],
    ) -> tuple[Description, ...]:
        """Return the descriptions of the findings that a sentence names."""
        taken = {i for mention, _ in named for i in range(mention.start, mention.end)}
        spans = [span for _, span in named]
        concepts = {self.engine.lexicon.concepts[mention.concept] for mention, _ in named}
        for mention, span in others:
            if mention.rule.needs and self._concept_of_other(mention) in concepts:
                # "And the coronaries" is a finding only with "calcified", which the schema's lexicon reads as its name.
                continue
            words = range(mention.start, mention.end)
            if taken.isdisjoint(words):
                if not sentence.is_sign(mention.start):
                    spans.append(span)
            else:
                # "Ground-glass density areas" is one name, also if two of its parts are names that overlap.
                taken.update(words)
        owners, elsewhere = _Owners(sentence, spans, numbers), _elsewhere(sentence.tokens, numbers)
        shared = _SharedValues(owners)
        found = []
        for mention, span in named:
            described = self._without_values(mention, numbers[span.end - 1], elsewhere)
            if described.finding is not None and mention.presence != ABSENT:
                values = self._attributes(described.finding, owners, shared, span)
                described = Description(described.finding, mention.presence, values)
            found.append(described)
        if owners.index_of_end[named[-1][1].end] != len(owners.spans) - 1:
            found.append(Description(None, PRESENT))
        return tuple(found)

    def _concept_of_other(self, mention: Mention) -> str | None:
        return None if self.others is None else self.others.lexicon.concepts[mention.concept]

    def _attributes(self, finding: int, owners: _Owners, shared: _SharedValues, span: Span) -> Values:
        """Return the attributes of a finding, including a place and a change that it shares with its neighbours."""
        k = owners.index_of_end[span.end]
        readers, sizes = self._readers[finding], owners.sizes[k]
        values = dict(_values(readers, owners.sentence, owners.stated_hits(span), sizes, span))
        for i, reader in readers.sharable:
            own = values.get(i, ())
            if (reader.is_place and owners.is_open(k, own)) or (reader.is_change and not own):
                own = (*shared.read(reader, k), *own)
            if own:
                values[i] = owners.with_sides(k, own) if reader.is_place else own
        return tuple(values.items())


def _values(
    readers: _Readers, sentence: Sentence, hits: Sequence[Hit], sizes: Sequence[Modifier], span: Span | None
) -> Values:
    return tuple(
        [(i, values) for i, reader in readers.of(hits) if (values := reader.read(sentence, hits, sizes, span))]
    )


@cache
def _joining() -> frozenset[str]:
    """Return the words between the findings of a list."""
    # "Of" as in "consolidation and areas of ground glass".
    return frozenset(cue_words("connectives", "joining", "fillers") | _DENSITIES | {"of"})


def _densities(tokens: Sequence[str], spans: Sequence[Span]) -> set[Span]:
    """Return the names that only state the density of the nodules before them."""
    found = set()
    before: Span | None = None
    for span in sorted(spans):
        if before is not None and _is_density(tokens, before, span):
            found.add(span)
        else:
            before = span
    return found


def _is_density(tokens: Sequence[str], before: Span, span: Span) -> bool:
    """Whether a name only states the density of the nodule before it: "nodules, mainly with ground glass density"."""
    if tokens[before.end - 1] not in _NODULES or _DENSITIES.isdisjoint(tokens[span.end - 1 : span.end + 1]):
        return False
    i = (span.start if span.first is None else span.first) - 1
    while i >= before.end and tokens[i] in _DEGREES:
        i -= 1
    return i >= before.end and (tokens[i] == "with" or (tokens[i] in ("of", "in") and i == before.end))


@cache
def _continuation() -> re.Pattern[str]:
    """Return the pattern of the first words of a sentence that continues the description of the last finding."""
    starts = sorted(cue_words("continuations", "description"))
    return re.compile("|".join(start[:-1] if start.endswith("*") else rf"{start}\b" for start in starts))


@lru_cache(maxsize=16)
def describer(schema: QuestionSchema) -> Describer:
    """Return the describer of a schema. All callers share it and its cache."""
    return Describer(schema)
