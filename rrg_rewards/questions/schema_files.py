"""Question schemas as the text of YAML files, and the conversion of CT-FineBench's released attributes to schemas."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml

from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.measurements import NumberTooLongError, UnknownUnitError, read_measures
from rrg_rewards.questions.locations import read_places
from rrg_rewards.questions.schema import (
    AnswerType,
    AttributeSpec,
    FindingSpec,
    QuestionSchema,
    check_answer_type,
    get_question_schema,
    name_key,
)
from rrg_rewards.questions.stated import AttributeValues
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.yaml_files import is_yaml_path

EXISTENCE_NAMES = frozenset({"existence", "presence"})
"""Names under which data sets may have the existence of a finding as an attribute."""

_SHIPPED = ("ct_rate", "merlin")
_UNIT_OF_KIND = {"length": "length", "attenuation": "attenuation", "share": "ratio"}
# An example: brackets and quotes hold it together, and a comma between digits is a decimal point.
_EXAMPLE = re.compile(r"""(?:\([^)]*\)?|\[[^]]*\]|\{[^}]*\}|"[^"]*"|“[^”]*”|(?<=\d),(?=\d)|[^,;\n])+""")


def question_schema_yaml(schema: QuestionSchema) -> str:
    """Return the text of a YAML file from which :func:`get_question_schema` reads an equal schema.

    Args:
        schema: The schema.

    Example:
        >>> from rrg_rewards.questions import get_question_schema
        >>> text = question_schema_yaml(get_question_schema("merlin"))
        >>> yaml.safe_load(text)["lexicon"], len(yaml.safe_load(text)["findings"])
        ('abdomen', 30)
    """
    lexicon = str(Path(schema.lexicon).resolve()) if is_yaml_path(schema.lexicon) else schema.lexicon
    findings = {
        finding.name: {"ask": [{spec.name: _attribute_entry(spec)} for spec in finding.attributes]}
        for finding in schema.findings
    }
    content = {"name": schema.name, "lexicon": lexicon, "findings": findings}
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def _attribute_entry(spec: AttributeSpec) -> dict[str, Any]:
    fields = asdict(spec)
    entry: dict[str, Any] = {"type": fields["answer_type"]}
    for name in ("question", "explanation"):
        # Braces are placeholders in the file.
        entry[name] = fields[name].replace("{", "{{").replace("}", "}}")
    entry["examples"] = list(spec.examples)
    entry |= {"values": list(spec.values)} if spec.values else {}
    return entry | ({"unit": spec.unit} if spec.unit != "length" else {})


class ReleasedAttribute(NamedTuple):
    """A row of ``merlin_attributes.csv`` of CT-FineBench, or of its table for CT-RATE.

    Args:
        finding: ``Finding``, such as ``submucosal_edema``.
        feature: ``Feature``: name of the attribute.
        explanation: ``Explanation``.
        examples: ``Examples``: possible values, separated by commas, semicolons or line breaks, or a list of texts.
    """

    finding: str
    feature: str
    explanation: str
    examples: str


@dataclass(frozen=True)
class ReleasedSchema:
    """Result of :func:`convert_released_attributes`.

    Args:
        schema: The question schema.
        unread_findings: Findings that are no label of the lexicon, so that only a judge can make and answer questions
            on them.
        unread_attributes: Attributes of the other findings that the finding engine cannot read, with the reason, by
            finding and attribute.

    Example:
        >>> row = ReleasedAttribute("submucosal_edema", "Location", "Part of the gut.", "colon, small bowel, rectum")
        >>> convert_released_attributes([row]).schema.finding("Submucosal edema").attributes[1].examples
        ('colon', 'small bowel', 'rectum')
    """

    schema: QuestionSchema
    unread_findings: tuple[str, ...]
    unread_attributes: Mapping[tuple[str, str], str]

    def readable(self) -> QuestionSchema:
        """Return the part of the schema that the finding engine can read.

        Raises:
            ValueError: If it can read no finding.
        """
        findings = tuple(
            replace(
                finding,
                attributes=tuple(
                    spec for spec in finding.attributes if (finding.name, spec.name) not in self.unread_attributes
                ),
            )
            for finding in self.schema.findings
            if finding.name not in self.unread_findings
        )
        if not findings:
            raise ValueError(
                f"the lexicon {self.schema.lexicon} has none of the findings {', '.join(self.unread_findings)}; name a "
                "lexicon that has them, or leave them in the schema and use judges"
            )
        return replace(self.schema, findings=findings)


def convert_released_attributes(
    rows: Iterable[ReleasedAttribute],
    name: str = "ct_finebench",
    lexicon: str | None = None,
    answer_types: Mapping[str, str] | None = None,
) -> ReleasedSchema:
    """Convert the attributes that the authors of CT-FineBench released to a question schema.

    - ``Finding`` becomes the label of the lexicon with the same name, ignoring case and underscores, or else the name
      with spaces.
    - ``Feature`` becomes the name of the attribute, in lower case with spaces.
    - ``Explanation`` is taken over, ``Examples`` is split into its values.

    The table has neither questions nor types of answers. The questions are "Where is the ...?" and "What is the ... of
    the ...?"; the type is ``numeric`` if more than half of the examples are measures with a unit, ``location`` if more
    than half are places, else ``categorical``. Each finding gets a question on its existence first, as in Section 3.2
    of the paper, with the type ``existence``, unless the table has an attribute ``existence`` or ``presence``.

    Args:
        rows: The rows.
        name: Name of the schema.
        lexicon: Lexicon of the finding engine. Default: ``chest_ct`` or ``abdomen``, whichever has more of the
            findings.
        answer_types: Types of the answers by attribute, for those that differ from the rule.

    Raises:
        ValueError: If there are no rows, a cell is blank, an attribute of a finding is repeated, or a type is unknown
            or is given for an attribute that no row has. The message names the row.

    Example:
        >>> row = ReleasedAttribute("renal_cyst", "Size", "Largest diameter.", "4 mm, 1.5 cm, 12 mm")
        >>> made = convert_released_attributes([row])
        >>> spec = made.schema.finding("Renal cyst").attribute("size")
        >>> made.schema.lexicon, spec.answer_type, spec.question
        ('abdomen', 'numeric', 'What is the size of the renal cyst?')
    """
    grouped = _by_finding(rows)
    if not grouped:
        raise ValueError("the table has no rows, so there is no attribute to convert")
    lexicon = lexicon or _likely_lexicon(list(grouped))
    types = {name_key(attribute): kind for attribute, kind in (answer_types or {}).items()}
    known = {attribute for attributes in grouped.values() for attribute in attributes}
    for attribute, kind in types.items():
        check_answer_type(kind)
        if attribute not in known:
            raise ValueError(f"answer_types: no row has the attribute {attribute!r}; known: {', '.join(sorted(known))}")
    labels = {name_key(label): label for label in load_lexicon(lexicon).labels}
    findings = tuple(
        _finding_spec(labels.get(finding, finding), attributes, types) for finding, attributes in grouped.items()
    )
    schema = QuestionSchema(name, findings, lexicon)
    unread = tuple(finding.name for finding in findings if name_key(finding.name) not in labels)
    reasons = {
        (finding.name, spec.name): reason
        for finding in findings
        if finding.name not in unread
        for spec in finding.attributes
        if (reason := _reader_problem(spec))
    }
    return ReleasedSchema(schema, unread, reasons)


def _by_finding(rows: Iterable[ReleasedAttribute]) -> dict[str, dict[str, tuple[str, tuple[str, ...]]]]:
    """Return explanation and examples by finding and attribute, both by their keys."""
    found: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {}
    for number, row in enumerate(rows, start=1):
        if blank := [field for field, text in row._asdict().items() if not text.strip()]:
            raise ValueError(f"data row {number}: {' and '.join(blank)} must not be blank")
        finding, attribute = name_key(row.finding), name_key(row.feature)
        attribute = "existence" if attribute in EXISTENCE_NAMES else attribute
        attributes = found.setdefault(finding, {})
        if attribute in attributes:
            raise ValueError(f"data row {number}: {row.finding!r} already has the feature {row.feature!r}")
        try:
            attributes[attribute] = (" ".join(row.explanation.split()), split_examples(row.examples))
        except ValueError as error:
            raise ValueError(f"data row {number}: {error}") from None
    return found


def _likely_lexicon(findings: Sequence[str]) -> str:
    lexicons = [get_question_schema(name).lexicon for name in _SHIPPED]
    return max(
        lexicons, key=lambda name: sum(finding in {*map(name_key, load_lexicon(name).labels)} for finding in findings)
    )


def _finding_spec(
    name: str, attributes: Mapping[str, tuple[str, tuple[str, ...]]], types: Mapping[str, str]
) -> FindingSpec:
    called = name[0].lower() + name[1:]
    existence = (f"Whether {called} is present.", ("yes",))
    specs = []
    for attribute, (explanation, examples) in {"existence": existence, **attributes}.items():
        kind = "existence" if attribute == "existence" else types.get(attribute) or _likely_type(examples)
        question = {
            "existence": f"Does the report describe {called}?",
            "location": f"Where is the {called}?" if attribute == "location" else None,
        }.get(kind)
        verb = "are" if attribute.endswith("s") and not attribute.endswith(("is", "ss", "us")) else "is"
        question = question or f"What {verb} the {attribute} of the {called}?"
        unit = _unit(examples) if kind == "numeric" else "length"
        specs.append(AttributeSpec(attribute, cast(AnswerType, kind), question, explanation, examples, unit=unit))
    return FindingSpec(name, tuple(specs))


def _likely_type(examples: Sequence[str]) -> str:
    if 2 * sum(_kind_of_measure(example) is not None for example in examples) > len(examples):
        return "numeric"
    return "location" if 2 * sum(bool(read_places(example)) for example in examples) > len(examples) else "categorical"


def _kind_of_measure(example: str) -> str | None:
    try:
        return next((measure.kind for measure in read_measures(example) if measure.kind), None)
    except (UnknownUnitError, NumberTooLongError):
        return None


def _unit(examples: Sequence[str]) -> str:
    kinds = [kind for example in examples if (kind := _kind_of_measure(example)) in _UNIT_OF_KIND]
    return _UNIT_OF_KIND[max(kinds, key=kinds.count)] if kinds else "length"


def _reader_problem(spec: AttributeSpec) -> str:
    """Return why the finding engine cannot read an attribute, ``""`` if it can."""
    try:
        AttributeValues(spec)
    except ValueError as error:
        return str(error)
    return ""


def split_examples(text: str) -> tuple[str, ...]:
    """Split the examples of a released attribute, each once.

    Commas, semicolons and line breaks separate examples, except inside of brackets and quotes; a comma between digits
    is a decimal point. The text may also be a list in JSON or Python.

    Raises:
        ValueError: If there is no example, or the list is none of texts.

    Example:
        >>> split_examples('mild, "moderate, diffuse"; severe (grade 3, 4), 1,5 cm')
        ('mild', 'moderate, diffuse', 'severe (grade 3, 4)', '1,5 cm')
        >>> split_examples("['mild', 'severe']")
        ('mild', 'severe')
    """
    parts = _listed(text) if text.strip().startswith("[") else _EXAMPLE.findall(text)
    found = tuple(dict.fromkeys(part for part in (each.strip().strip("\"'“”").strip() for each in parts) if part))
    if not found:
        raise ValueError(f"examples must contain a value, got {shown(text)}")
    return found


def _listed(text: str) -> list[str]:
    try:
        listed = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        listed = None
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise ValueError(f"examples that begin with '[' must be a list of texts, got {shown(text)}")
    return listed
