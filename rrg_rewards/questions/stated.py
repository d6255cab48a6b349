"""Take the values of a schema's attributes from the findings of reports."""

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial

from rrg_rewards.findings import Finding
from rrg_rewards.findings.reading.engine import FindingEngine
from rrg_rewards.findings.reading.finding import ELSEWHERE, Attributes
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.schema_words import LENGTH
from rrg_rewards.questions.locations import Place, places_in
from rrg_rewards.questions.schema import AttributeSpec, QuestionSchema
from rrg_rewards.questions.vocabulary import answer_vocabulary
from rrg_rewards.utilities.names import unknown_name_message

Values = tuple[tuple[int, tuple[object, ...]], ...]
"""Pairs of the index of an attribute and its stated values."""

# Parts that do not locate a finding without a side or details: an opacity of the lung is always in the lung.
_UNSPECIFIC_PARTS = (None, "lung", "coronary arteries", "kidney", "liver", "spleen", "prostate", "bone")
_SIDES = {"right": ("right",), "left": ("left",), "bilateral": ("right", "left")}
# "Millimetric plaques" states a size, and "faint opacity" a density; both have questions of their own.
_NO_DEGREES = frozenset({"millimetric", "faint"})
_COUNTS = ("multiple", "single", "two", "three", "four", "five")
_POSITIONS = {"satisfactory": "in place", "malpositioned": "malpositioned"}


class AttributeValues:
    """The possible values of an attribute, and those that a finding states.

    Args:
        spec: The attribute.

    Attributes:
        values: Names of the values of a category.

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
        self._spec = spec
        self._places: dict[str, frozenset[str]] = {}
        self.values: frozenset[str] = frozenset()
        if spec.answer_type == "location":
            self._places = _possible_places(frozenset(spec.values))
        elif spec.answer_type == "categorical":
            named = spec.values or _values_named_by(spec.examples)
            if not named:
                raise ValueError(
                    "the answer vocabulary contains none of its examples, so the finding engine cannot read it; name "
                    "values or groups of rrg_rewards/questions/vocabulary.yaml, or use a judge as builder and answerer"
                )
            self.values = frozenset(value for name in named for value in vocabulary.groups.get(name, (name,)))

    def of(self, attributes: Attributes) -> tuple[object, ...]:
        """Return the values that the attributes of a finding state."""
        if self._spec.answer_type == "location":
            return self._places_of(attributes)
        if self._spec.answer_type == "numeric":
            return self._numbers_of(attributes)
        names = [word.name for word in attributes.words]
        is_no_degree = attributes.severity == "minimal" and not _NO_DEGREES.isdisjoint(names)
        severity = None if is_no_degree else attributes.severity
        position = _POSITIONS.get(attributes.device_position or "")
        stated = [severity, attributes.change, _number(attributes), position, *names]
        return tuple(dict.fromkeys(name for name in stated if name in self.values))

    def _numbers_of(self, attributes: Attributes) -> tuple[str, ...]:
        if self._spec.unit == "length":
            return tuple(word.name for word in attributes.words if word.kind == LENGTH)
        unit = " HU" if self._spec.unit == "attenuation" else ""
        return tuple(f"{value:g}{unit}" for kind, value in attributes.values if kind == self._spec.unit)

    def _places_of(self, attributes: Attributes) -> tuple[Place, ...]:
        known = self._places
        places = places_in([word for word in attributes.place_words if word.name in known[word.kind]])
        sides = _SIDES.get(attributes.laterality or "", ())
        if sides and (places or not attributes.place_words) and not any(place.side for place in places):
            # The side that the finding shares with others. Without places, that of words such as "right liver" is none.
            places = tuple(placed for place in places or (Place(),) for placed in place.on(sides))
        places = tuple(place for place in places if place.side or place.details or place.part not in _UNSPECIFIC_PARTS)
        if "lung" in self._spec.values[:1]:
            # "Bilateral atelectasis" means atelectasis in both lungs.
            places = tuple(place._replace(part="lung") if place.side and not place.part else place for place in places)
        return places


def _possible_places(roots: frozenset[str]) -> dict[str, frozenset[str]]:
    """Return the sides, parts and details that can state the place of a finding within some parts."""
    vocabulary = answer_vocabulary()
    parts = frozenset(
        part for part in vocabulary.parts if not roots or part in roots or vocabulary.within[part] & roots
    )
    # Numbered segments belong to the liver. Only findings of the lungs and kidneys may have any other detail.
    known = vocabulary.wider_details.keys()
    numbered = frozenset(name for name in known if name.startswith("segment "))
    details = known - numbered if not roots or roots & {"lung", "kidney"} else roots & known
    return {
        "side": frozenset(("right", "left", "both")),
        "part": parts,
        "detail": frozenset(details) | (numbered if "liver" in roots else frozenset()),
    }


def _number(attributes: Attributes) -> str | None:
    """Return the number of lesions that a finding states: a count up to five, or several."""
    count = next((int(value) for kind, value in attributes.values if kind == "count"), None)
    if count is not None:
        return _COUNTS[count] if 0 < count < len(_COUNTS) else _COUNTS[0]
    return "multiple" if attributes.extent == "multiple" else None


@lru_cache(maxsize=256)
def _values_named_by(examples: tuple[str, ...]) -> tuple[str, ...]:
    vocabulary = answer_vocabulary()
    return tuple(word.name for example in examples for word in vocabulary.answer_words(example) if word.kind == "value")


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
                AttributeValues(spec)
            except ValueError as error:
                raise ValueError(f"{where}, finding {finding.name!r}, attribute {spec.name!r}: {error}") from error


class SchemaFindings:
    """The findings of a schema in reports, with the values of their attributes.

    Args:
        schema: The findings and attributes to read.

    Raises:
        ValueError: If the engine cannot read a finding or an attribute; see :func:`check_readable`.
    """

    def __init__(self, schema: QuestionSchema) -> None:
        check_readable(schema)
        lexicon = load_lexicon(schema.lexicon)
        self._engine = FindingEngine(lexicon, vocabulary=answer_vocabulary().report_words)
        indices = {finding.name: i for i, finding in enumerate(schema.findings)}
        self._indices = {
            concept: indices[label]
            for label, members in lexicon.labels.items()
            if label in indices
            for concept in members
        }
        specs = [[AttributeValues(spec) for spec in finding.attributes] for finding in schema.findings]
        self._values = [lru_cache(maxsize=1 << 14)(partial(_values, attributes)) for attributes in specs]
        self._in_lungs = frozenset(
            i
            for i, finding in enumerate(schema.findings)
            if any(spec.answer_type == "location" and "lung" in spec.values[:1] for spec in finding.attributes)
        )

    def of(self, report: str) -> Iterable[tuple[int, Finding, Values]]:
        """Yield each finding of a report with its index in the schema and, if it is not absent, its values.

        Raises:
            TypeError: If ``report`` is not a string.
        """
        if not isinstance(report, str):
            raise TypeError(f"report must be a report text, got {type(report).__name__}")
        indices, values = self._indices, self._values
        for finding in self._engine.stated(report):
            index = indices.get(finding.concept)
            if index is not None and (finding.organ != ELSEWHERE or index not in self._in_lungs):
                yield index, finding, () if finding.presence == "absent" else values[index](finding.attributes)


def _values(readers: Sequence[AttributeValues], attributes: Attributes) -> Values:
    return tuple([(i, values) for i, reader in enumerate(readers) if (values := reader.of(attributes))])


@lru_cache(maxsize=16)
def schema_findings(schema: QuestionSchema) -> SchemaFindings:
    """Return the findings of a schema. All callers share them and the memory of their engine."""
    return SchemaFindings(schema)
