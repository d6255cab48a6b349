"""Question schemas: the attributes of each finding, the question about each, and findings that labels call positive."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from typing_extensions import Self

from rrg_rewards.utilities.names import shown, unknown_name_message
from rrg_rewards.utilities.yaml_files import check_keys, is_yaml_path, package_yaml, package_yaml_names, read_user_yaml

SEVERAL_LESIONS = (
    "A report may describe several lesions of one finding. One question is about all of them together. A finding is "
    "present if any of its lesions is present; suspected lesions do not count beside a present one. The answer on a "
    "place or a category holds every place or value that the report states of any of the lesions, separated by "
    "semicolons. The answer on a number holds the greatest one."
)
"""What a question asks of several lesions of a finding: the rule of the finding engine, and part of judges' prompts."""

_SHIPPED = "rrg_rewards.questions.question_schemas"
_FIELDS = ("type", "question", "explanation", "examples", "values", "unit")
_UNITS = ("length", "attenuation", "ratio")

AnswerType = Literal["numeric", "categorical", "location", "existence"]
"""How answers are compared: as numbers with units, as values of a closed set, as places, or as yes or no."""

_ANSWER_TYPES = frozenset(get_args(AnswerType))

NOT_MENTIONED = -1
"""Label of a finding that a report does not mention, in Merlin's tables; it is not positive."""

FindingLabels = Mapping[str, float] | Sequence[float]
"""0, 1 or -1 (not mentioned) for each finding of a question schema: by name, or in the order of the findings."""


def name_key(name: str) -> str:
    """Return what spellings of the name of a finding or an attribute share.

    Case, underscores and repeated spaces do not count: data sets write ``submucosal_edema`` for ``Submucosal edema``.

    Example:
        >>> name_key("Submucosal_Edema")
        'submucosal edema'
    """
    return " ".join(name.replace("_", " ").casefold().split())


class Answer(str):
    """The text of an answer with the values that it was made from.

    Args:
        text: The text.
        values: Its values, which are graded instead of the text: places, names of values, or a measure.

    Example:
        >>> Answer("12 mm", (12,)) == "12 mm"
        True
    """

    values: tuple[Any, ...]

    def __new__(cls, text: str, values: Iterable[Any] = ()) -> Self:
        """Make an answer."""
        answer = super().__new__(cls, text)
        answer.values = tuple(values)
        return answer


def _check_fields(spec: "QAItem | AttributeSpec", texts: tuple[str, ...], owner: str = "") -> None:
    for name in texts:
        value = getattr(spec, name)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name}{owner} must be a text, got {shown(value)}")
    check_answer_type(spec.answer_type)


def check_answer_type(answer_type: str) -> None:
    """Raise a ValueError unless a type of answers is known."""
    if answer_type not in _ANSWER_TYPES:
        raise ValueError(unknown_name_message("answer_type", str(answer_type), get_args(AnswerType)))


@dataclass(frozen=True, slots=True)
class QAItem:
    """A question about one attribute of a finding, and the reference report's answer (CT-FineBench, Section 3.2).

    Args:
        finding: Name of the finding in its schema: ``Lung nodule``.
        attribute: Name of the attribute: ``size``, ``location``, ``existence``.
        question: The question. It does not contain the answer.
        answer: Short answer of the reference report.
        answer_type: Method by which answers are compared.
        explanation: Meaning of the attribute.
        examples: Possible answers.

    Raises:
        ValueError: If the finding, the attribute, the question or the answer is blank, or the type is unknown.

    Example:
        >>> item = QAItem("Lung nodule", "size", "What is the diameter of the lung nodule?", "12 mm", "numeric")
        >>> item.answer
        '12 mm'
    """

    finding: str
    attribute: str
    question: str
    answer: str
    answer_type: AnswerType
    explanation: str = ""
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_fields(self, ("finding", "attribute", "question", "answer"))


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute of a finding, and the question about it.

    Args:
        name: Name of the attribute, such as ``size``; ``existence`` for the presence of the finding.
        answer_type: How answers are compared: ``numeric``, ``categorical``, ``location`` or ``existence``.
        question: The question. It does not contain an answer.
        explanation: Meaning of the attribute, for people and language models.
        examples: Possible answers, at least one.
        values: For the finding engine: possible values of a categorical attribute, as names of groups or values in
            ``vocabulary.yaml``. Default: the values in the examples.
        unit: For the finding engine: the quantity of a numeric attribute: ``length``, ``attenuation`` in Hounsfield
            units, or ``ratio`` for the cardiothoracic ratio.

    Raises:
        ValueError: If a text is blank, the type or the unit is unknown, or there are too few examples.

    Example:
        >>> spec = AttributeSpec("density", "categorical", "What is the nodule's density?", "Whether it is solid.",
        ...                      ("solid", "part-solid", "ground-glass", "calcified", "cavitary"))
        >>> spec.answer_type
        'categorical'
    """

    name: str
    answer_type: AnswerType
    question: str
    explanation: str
    examples: tuple[str, ...]
    values: tuple[str, ...] = ()
    unit: str = "length"

    def __post_init__(self) -> None:
        object.__setattr__(self, "examples", tuple(self.examples))
        object.__setattr__(self, "values", tuple(self.values))
        _check_fields(self, ("name", "question", "explanation"), f" of attribute {self.name!r}")
        if not any(example.strip() for example in self.examples):
            raise ValueError(f"attribute {self.name!r} has no examples; it needs at least one possible answer")
        if self.unit not in _UNITS:
            raise ValueError(unknown_name_message("unit", str(self.unit), _UNITS))


@dataclass(frozen=True)
class FindingSpec:
    """A finding and its attributes.

    Args:
        name: Name of the finding in the label set.
        attributes: Its attributes, existence first.

    Raises:
        ValueError: If an attribute is repeated, or there is none.
    """

    name: str
    attributes: tuple[AttributeSpec, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        names = [attribute.name for attribute in self.attributes]
        if not names or len(set(map(name_key, names))) != len(names):
            raise ValueError(f"attributes of {self.name!r} must be different and at least one, got {names}")

    @cached_property
    def existence(self) -> tuple[AttributeSpec, ...]:
        """The attributes that ask for the existence of the finding."""
        return tuple(attribute for attribute in self.attributes if attribute.answer_type == "existence")

    def attribute(self, name: str) -> AttributeSpec:
        """Return an attribute by name, ignoring case and underscores.

        Raises:
            ValueError: If the name is unknown. The message names the nearest known one.
        """
        for attribute in self.attributes:
            if name_key(attribute.name) == name_key(name):
                return attribute
        known = [attribute.name for attribute in self.attributes]
        raise ValueError(unknown_name_message(f"attribute of {self.name}", name, known))


@dataclass(frozen=True)
class QuestionSchema:
    """Findings and their attributes.

    Args:
        name: Name of the schema.
        findings: The findings, in the order of the questions.
        lexicon: Lexicon of the finding engine, a name or the path of a ``.yaml`` file. Its labels include the findings.

    Raises:
        ValueError: If a finding is repeated, or there is none.

    Example:
        >>> schema = get_question_schema("ct_rate")
        >>> len(schema.findings), [spec.name for spec in schema.finding("Lung nodule").attributes][:3]
        (18, ['existence', 'location', 'size'])
    """

    name: str
    findings: tuple[FindingSpec, ...]
    lexicon: str = "chest_ct"
    _by_name: dict[str, FindingSpec] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", tuple(self.findings))
        names = [finding.name for finding in self.findings]
        if not names or len(set(map(name_key, names))) != len(names):
            raise ValueError(f"findings of {self.name!r} must be different and at least one, got {names}")
        # Most names are spelled as in the schema.
        self._by_name.update((spelled, spec) for spec in self.findings for spelled in (spec.name, name_key(spec.name)))

    def names(self, finding: str, attribute: str) -> tuple[str, str]:
        """Return the names of a finding and of one of its attributes as the schema spells them.

        Case and underscores are ignored.

        Raises:
            ValueError: If a name is unknown. The message names the nearest known one.
        """
        if (finding, attribute) in self.places:
            return finding, attribute
        spec = self.finding(finding)
        return spec.name, spec.attribute(attribute).name

    def finding(self, name: str) -> FindingSpec:
        """Return a finding by name, ignoring case and underscores.

        Raises:
            ValueError: If the name is unknown. The message names the nearest known one.
        """
        found = self._by_name.get(name) or self._by_name.get(name_key(name))
        if found is None:
            raise ValueError(unknown_name_message("finding", name, [finding.name for finding in self.findings]))
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._by_name or name_key(name) in self._by_name

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    @cached_property
    def places(self) -> dict[tuple[str, str], tuple[int, AttributeSpec]]:
        """The place of each question in the order of the schema, by finding and attribute, with its attribute."""
        pairs = [(finding.name, spec) for finding in self.findings for spec in finding.attributes]
        return {(name, spec.name): (place, spec) for place, (name, spec) in enumerate(pairs)}

    @cached_property
    def digest(self) -> str:
        """Short hash of the schema, for signatures."""
        # Without the folder of a lexicon. Signatures contain the digest of its contents, too.
        content = (self.name, self.findings, Path(self.lexicon).name)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:8]


def get_question_schema(name: str | Path | QuestionSchema) -> QuestionSchema:
    """Return a question schema by name, or read one from a YAML file; a schema is returned unchanged.

    ``ct_rate`` covers the 18 findings of CT-RATE, ``merlin`` the 30 findings of Merlin. ``docs/ct_finebench.md``
    describes the format of files.

    Args:
        name: ``ct_rate``, ``merlin``, the path of a ``.yaml`` file, or a schema.

    Raises:
        ValueError: If the schema is unknown (the message names the nearest known one), or an entry of the file is wrong
            (the message names the file and the entry).
        FileNotFoundError: If the file does not exist.

    Example:
        >>> len(get_question_schema("merlin").findings)
        30
    """
    if isinstance(name, QuestionSchema):
        return name
    if is_yaml_path(name):
        return _parse(read_user_yaml(name), str(name), Path(name).parent)
    known = package_yaml_names(_SHIPPED)
    if name not in known:
        raise ValueError(unknown_name_message("question schema", str(name), known))
    return _shipped(str(name))


@cache
def _shipped(name: str) -> QuestionSchema:
    return _parse(package_yaml(_SHIPPED, name), f"{name}.yaml", Path())


def _parse(content: Any, source: str, folder: Path) -> QuestionSchema:
    check_keys(source, content, ("name", "lexicon", "attributes", "findings"), required=("name", "findings"))
    shared, findings = content.get("attributes", {}), content["findings"]
    for section, entries in (("attributes", shared), ("findings", findings)):
        if not isinstance(entries, Mapping):
            raise ValueError(f"{source}, {section}: must be a mapping of names, got {shown(entries)}")
    for name, entry in shared.items():
        check_keys(f"{source}, attribute {name!r}", entry, _FIELDS)
    built = tuple(_finding(f"{source}, finding {name!r}", name, entry, shared) for name, entry in findings.items())
    lexicon = content.get("lexicon", "chest_ct")
    if not isinstance(content["name"], str) or not isinstance(lexicon, str):
        raise ValueError(f"{source}: name and lexicon must be texts, got {content['name']!r} and {lexicon!r}")
    try:
        return QuestionSchema(content["name"], built, str(folder / lexicon) if is_yaml_path(lexicon) else lexicon)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def _finding(where: str, name: Any, entry: Any, shared: Mapping[str, Any]) -> FindingSpec:
    if not isinstance(name, str):
        raise ValueError(f"{where}: the name must be a text; quote numbers, yes and no")
    check_keys(where, entry, ("called", "ask"), required=("ask",))
    if not isinstance(entry["ask"], list):
        raise ValueError(f"{where}, ask: must be a list of attributes, got {entry['ask']!r}")
    attributes, called = [], entry.get("called", name.lower())
    names = [next(iter(asked), None) if isinstance(asked, Mapping) else asked for asked in entry["ask"]]
    # Asked of every finding, and first, unless the finding has a question of its own.
    implied = [] if "existence" in names else ["existence"]
    for asked in [*implied, *entry["ask"]]:
        own: Any = {}
        if isinstance(asked, Mapping):
            if len(asked) != 1:
                raise ValueError(f"{where}, ask: {asked!r} must be one attribute with its fields")
            ((asked, own),) = asked.items()
        if not own and asked not in shared:
            raise ValueError(f"{where}, ask: {unknown_name_message('attribute', str(asked), shared)}")
        attributes.append(_attribute(f"{where}, attribute {asked!r}", asked, own, shared, called))
    try:
        return FindingSpec(name, tuple(attributes))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _attribute(where: str, name: str, own: Any, shared: Mapping[str, Any], called: str) -> AttributeSpec:
    fields = {**shared.get(name, {}), **check_keys(where, own, _FIELDS)}
    check_keys(where, fields, _FIELDS, required=("type", "question", "explanation", "examples"))
    try:
        return AttributeSpec(
            name=name,
            answer_type=fields["type"],
            question=fields["question"].format(finding=called),
            explanation=fields["explanation"].format(finding=called),
            examples=tuple(map(str, fields["examples"])),
            values=tuple(fields.get("values", ())),
            unit=fields.get("unit", "length"),
        )
    except (KeyError, IndexError) as error:
        raise ValueError(f"{where}: only {{finding}} may be in braces in question and explanation") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: {error}") from error


def positive_findings(labels: FindingLabels, schema: QuestionSchema, where: str = "labels") -> frozenset[str]:
    """Return the findings that a report's labels call positive.

    A finding belongs to the label of the same name, ignoring case and underscores. The findings of ``ct_rate`` and
    ``merlin`` are the labels of :data:`rrg_rewards.schemas.CT_RATE` and :data:`rrg_rewards.schemas.MERLIN`, in their
    order.

    Args:
        labels: 0 or 1 for each finding, or -1 for one that the report does not mention, as Merlin has it: a mapping
            from names of labels, which may have further labels, or a sequence in the order of the schema's findings.
        schema: The question schema.
        where: Name of the labels in messages.

    Returns:
        Names of the findings, as in the schema.

    Raises:
        TypeError: If the labels are neither a mapping nor a sequence.
        ValueError: If a finding has no label, a sequence has another length, or a label is not 0, 1 or -1.

    Example:
        >>> row = [0] * 18
        >>> row[9] = 1
        >>> positive_findings(row, get_question_schema("ct_rate"))
        frozenset({'Lung nodule'})
    """
    findings = [finding.name for finding in schema.findings]
    # Some readers return lists as arrays.
    given: Any = labels.tolist() if hasattr(labels, "tolist") else labels
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
        raise TypeError(f"{where} must be a mapping or a sequence of labels, got {type(given).__name__}")
    if isinstance(given, Mapping):
        values = _by_finding(given, findings, schema.name, where)
    else:
        if len(given) != len(findings):
            raise ValueError(
                f"{where} must have {len(findings)} values of 0 or 1, one for each finding of question schema "
                f"{schema.name!r} ({', '.join(findings)}); got {len(given)}. For other columns pass a mapping from "
                "the names of labels"
            )
        values = dict(zip(findings, given, strict=True))
    for finding, label in values.items():
        if isinstance(label, str) or label not in (0, 1, NOT_MENTIONED):
            raise ValueError(
                f"{where}: {finding!r} must be 0 or 1 (or -1: not mentioned), got {label!r}; map uncertain labels first"
            )
    return frozenset(finding for finding, label in values.items() if label == 1)


def _by_finding(labels: Mapping[str, Any], findings: Sequence[str], schema: str, where: str) -> dict[str, Any]:
    given = {name_key(str(name)): label for name, label in labels.items()}
    for finding in findings:
        if name_key(finding) not in given:
            unknown = unknown_name_message("label", finding, [str(name) for name in labels])
            raise ValueError(f"{where}: question schema {schema!r} needs a label for each finding: {unknown}")
    return {finding: given[name_key(finding)] for finding in findings}


def check_finding_labels(
    column: Sequence[FindingLabels | None], schema: QuestionSchema, name: str = "labels"
) -> list[frozenset[str] | None]:
    """Return the positive findings of each row of a column of labels; ``None`` for a row without labels.

    Raises:
        TypeError: As :func:`positive_findings`, with the number of the row.
        ValueError: Likewise.
    """
    return [
        None if labels is None else positive_findings(labels, schema, f"{name}[{row}]")
        for row, labels in enumerate(column)
    ]


def items_on(items: Sequence[QAItem], findings: frozenset[str] | None) -> tuple[QAItem, ...]:
    """Return the questions on some findings, or all questions if ``findings`` is ``None``."""
    if findings is None:
        return tuple(items)
    return tuple(item for item in items if item.finding in findings)
