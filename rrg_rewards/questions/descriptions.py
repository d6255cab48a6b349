"""Read the attributes that a report states for the findings of a question schema."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from rrg_rewards.findings.lexicon.cues import cue_words
from rrg_rewards.findings.reading.attributes import Span
from rrg_rewards.findings.reading.engine import get_engine
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.mentions import Mention, named_spans
from rrg_rewards.findings.reading.modifiers import Modifier
from rrg_rewards.findings.reading.negation import ABSENT, PRESENT
from rrg_rewards.findings.reading.sentences import report_units, split_unit
from rrg_rewards.findings.reading.statements import statement_numbers
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.questions.attribute_values import AttributeValueReader, Sentence
from rrg_rewards.questions.owners import Owners, SharedValues
from rrg_rewards.questions.schema import QuestionSchema
from rrg_rewards.questions.vocabulary import Hit
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["Describer", "Description", "check_readable", "describer"]

# Maximum number of cached units, and maximum number of characters of a cached unit.
_CACHE_SIZE = 50_000
_MAX_CACHED_LENGTH = 1_000
# Words of "nodules, mainly with ground glass density".
_NODULES = frozenset({"nodule", "nodules"})
_DEGREES = frozenset({"mainly", "mostly", "predominantly", "partly", "a", "some", "pure"})
_DENSITIES = frozenset({"density", "densities", "attenuation"})


@dataclass(frozen=True, slots=True)
class Description:
    """One mention of a finding.

    Args:
        finding: Index of the finding in the schema; ``None`` for a finding outside the schema.
        presence: Presence from the finding engine; ``None`` if the sentence continues an earlier mention.
        values: Pairs of the index of an attribute and its stated values:
            :class:`~rrg_rewards.findings.reading.measurements.Size` for numbers,
            :class:`~rrg_rewards.questions.locations.Place` for locations, and names for other attributes.
    """

    finding: int | None
    presence: int | None
    values: tuple[tuple[int, tuple[object, ...]], ...] = ()


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
        self._readers = [[AttributeValueReader(spec) for spec in finding.attributes] for finding in schema.findings]
        self._in_lungs = frozenset(
            i
            for i, finding in enumerate(schema.findings)
            if any(spec.answer_type == "location" and "lung" in spec.values[:1] for spec in finding.attributes)
        )
        self._known: dict[str, tuple[tuple[Description, ...], ...]] = {}

    def sentences(self, report: str) -> Iterable[tuple[Description, ...]]:
        """Yield the descriptions in each sentence of a report."""
        known = self._known
        for unit in report_units(report):
            read = known.get(unit)
            if read is None:
                read = tuple(part for _, sentence in split_unit(unit) for part in self._sentence(sentence))
                if len(unit) <= _MAX_CACHED_LENGTH:
                    if len(known) >= _CACHE_SIZE:
                        # Replace the dict instead of clearing it, because another thread may be reading it.
                        self._known = known = {}
                    known[unit] = read
            yield from read

    def _sentence(self, text: str) -> tuple[tuple[Description, ...], ...]:
        """Return the descriptions that continue the last finding, if any, and those of the findings in a sentence."""
        tokens = tokenise(text)
        if not tokens:
            return ((),)
        named = named_spans(self.engine.lexicon, tokens)
        others = [] if self.others is None else named_spans(self.others.lexicon, tokens, exclusive=True)
        densities = _densities(tokens, [span for _, span in [*named, *others]])
        named, others = ([found for found in part if found[1] not in densities] for part in (named, others))
        continues = _continuation().match(" ".join(tokens[:3])) is not None
        if not named and not continues:
            return ((Description(None, others[-1][0].presence),) if others else (),)
        sentence = Sentence(text, tokens)
        spans = [span for _, span in [*named, *others]]
        numbers = statement_numbers(tokens, {i for span in spans for i in range(span.start, span.end)})
        read = []
        if continues and all(numbers[span.end - 1] for span in spans):
            read.append(self._continued(sentence, numbers.count(0)))
        if named:
            read.append(self._named(sentence, named, others, numbers))
        elif others:
            read.append((Description(None, others[-1][0].presence),))
        return tuple(read)

    def _continued(self, sentence: Sentence, end: int) -> tuple[Description, ...]:
        """Return the attributes in the tokens up to ``end``, read for each finding that the last finding can be."""
        hits = [hit for hit in sentence.hits if hit.start < end]
        if not hits and not sentence.sizes:
            return ()
        sizes = [size for size in sentence.sizes if size.start < end]
        return tuple(
            Description(finding, None, _values(readers, sentence, hits, sizes, None))
            for finding, readers in enumerate(self._readers)
        )

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
        owners = Owners(sentence, spans, numbers)
        shared = SharedValues(owners)
        found = []
        for mention, span in named:
            finding = self._findings[mention.concept]
            if finding in self._in_lungs and owners.is_elsewhere(span):
                found.append(Description(None, mention.presence))
            elif finding is None or mention.presence == ABSENT:
                found.append(Description(finding, mention.presence))
            else:
                values = self._attributes(self._readers[finding], owners, shared, span)
                found.append(Description(finding, mention.presence, values))
        if owners.index_of_end[named[-1][1].end] != len(owners.spans) - 1:
            found.append(Description(None, PRESENT))
        return tuple(found)

    def _concept_of_other(self, mention: Mention) -> str | None:
        return None if self.others is None else self.others.lexicon.concepts[mention.concept]

    def _attributes(
        self, readers: Sequence[AttributeValueReader], owners: Owners, shared: SharedValues, span: Span
    ) -> tuple[tuple[int, tuple[object, ...]], ...]:
        """Return the attributes of a finding, including a place and a change that it shares with its neighbours."""
        k = owners.index_of_end[span.end]
        values = dict(_values(readers, owners.sentence, owners.stated_hits(span), owners.sizes[k], span))
        for i, reader in enumerate(readers):
            is_place = reader.spec.answer_type == "location"
            own = values.get(i, ())
            if (is_place and owners.is_open(k, own)) or (reader.is_change and not own):
                own = (*shared.read(reader, k), *own)
            if own:
                values[i] = owners.with_sides(k, own) if is_place else own
        return tuple(values.items())


def _values(
    readers: Sequence[AttributeValueReader],
    sentence: Sentence,
    hits: Sequence[Hit],
    sizes: Sequence[Modifier],
    span: Span | None,
) -> tuple[tuple[int, tuple[object, ...]], ...]:
    read = ((i, reader.read(sentence, hits, sizes, span)) for i, reader in enumerate(readers))
    return tuple((i, values) for i, values in read if values)


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
