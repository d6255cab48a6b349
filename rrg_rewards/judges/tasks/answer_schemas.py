"""Pydantic models of judges' answers (forms), and strict parsing of answers.

A form checks keys and types. The ``parse`` of the task checks whether an answer agrees with itself and the reports.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rrg_rewards.judges.base import AnswerError
from rrg_rewards.judges.tasks.answer_json import read_json
from rrg_rewards.judges.tasks.json_repair import repair_json
from rrg_rewards.schemas import AttributeErrorType
from rrg_rewards.schemas.errors import ErrorCategory

__all__ = [
    "AnswersForm",
    "AttributeErrorAnswer",
    "CompactCrimsonAnswer",
    "CompactFinding",
    "CompactMatchedFinding",
    "CountsForm",
    "CrimsonAnswer",
    "ErrorsAnswer",
    "FindingAnswer",
    "GradesForm",
    "ItemsForm",
    "LabelAnswer",
    "LabelsForm",
    "MatchAnswer",
    "ParaphraseForm",
    "PublishedCrimsonAnswer",
    "ReplacementForm",
    "StrictAnswer",
    "TriplesForm",
    "read_answer",
    "read_published_answer",
]


class StrictAnswer(BaseModel):
    """Base class of forms: every key is required, no other key is allowed, and no value is converted."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @classmethod
    @cache
    def json_schema(cls) -> Mapping[str, Any]:
        """JSON schema of the answer, without references and patterns, which some servers do not support."""
        schema = cls.model_json_schema()
        return dict(_inline(schema, schema.pop("$defs", {})))


Form = TypeVar("Form", bound=StrictAnswer)


class FindingAnswer(StrictAnswer):
    """A finding of one report."""

    id: str
    finding: str
    clinical_significance: Literal["urgent", "actionable_not_urgent", "not_actionable_not_urgent", "benign_expected"]


class MatchAnswer(StrictAnswer):
    """A reference finding and a candidate finding that match."""

    ref_id: str
    pred_id: str


class AttributeErrorAnswer(StrictAnswer):
    """An error in an attribute of a matched finding."""

    ref_id: str
    pred_id: str
    severity: Literal["significant", "negligible"]
    error_types: list[AttributeErrorType]
    explanation: str


class ErrorsAnswer(StrictAnswer):
    """False findings, missing findings and attribute errors of the candidate."""

    false_findings: list[str]
    missing_findings: list[str]
    attribute_errors: list[AttributeErrorAnswer]


class CrimsonAnswer(StrictAnswer):
    """Answer of :class:`rrg_rewards.judges.tasks.crimson.CrimsonTask`, in CRIMSON's published form.

    Example:
        >>> CrimsonAnswer.json_schema()["required"]
        ['reference_findings', 'predicted_findings', 'matched_findings', 'errors']
    """

    reference_findings: list[FindingAnswer]
    predicted_findings: list[FindingAnswer]
    matched_findings: list[MatchAnswer]
    errors: ErrorsAnswer


class CompactFinding(StrictAnswer):
    """A reference finding in the short form."""

    finding: str
    level: Literal["urgent", "actionable", "minor", "expected"]


_NegligibleErrorType = Literal[
    "negligible location",
    "negligible severity",
    "negligible descriptor",
    "negligible measurement",
    "negligible certainty",
    "negligible unspecific",
    "negligible overinterpretation",
    "negligible temporal",
]


class CompactMatchedFinding(CompactFinding):
    """A candidate finding in the short form, with the numbers of the reference findings that it matches."""

    matches: list[int]
    errors: list[AttributeErrorType | _NegligibleErrorType]


class CompactCrimsonAnswer(StrictAnswer):
    """Answer of ``CrimsonTask(prompt="compact")``; missing and false findings follow from the matches.

    Example:
        >>> CompactCrimsonAnswer.json_schema()["required"]
        ['reference', 'candidate']
    """

    reference: list[CompactFinding]
    candidate: list[CompactMatchedFinding]


class PublishedFinding(FindingAnswer):
    """A finding with any label of significance, as the published code accepts it."""

    clinical_significance: str  # type: ignore[assignment]


class PublishedAttributeError(AttributeErrorAnswer):
    """An error with any severity and types, and perhaps without an explanation."""

    severity: str  # type: ignore[assignment]
    error_types: list[str]  # type: ignore[assignment]
    explanation: str = ""


class PublishedErrors(ErrorsAnswer):
    """Errors as the published code accepts them."""

    attribute_errors: list[PublishedAttributeError]  # type: ignore[assignment]


class PublishedCrimsonAnswer(CrimsonAnswer):
    """Answer of the published judge: unknown labels are accepted, and get the published weight for unknown ones."""

    reference_findings: list[PublishedFinding]  # type: ignore[assignment]
    predicted_findings: list[PublishedFinding]  # type: ignore[assignment]
    errors: PublishedErrors


class StatedAttribute(StrictAnswer):
    """An attribute of a finding that a report states."""

    attribute: str
    answer: str


class StatedFinding(StrictAnswer):
    """A finding that a report states, with its attributes."""

    finding: str
    quote: str
    attributes: list[StatedAttribute]


class ItemsForm(StrictAnswer):
    """Answer of :class:`rrg_rewards.judges.tasks.finebench.ItemsTask`."""

    findings: list[StatedFinding]


class QuestionAnswer(StrictAnswer):
    """The answer to one question; ``None`` if the report does not state it."""

    question: str
    answer: str | None


class AnswersForm(StrictAnswer):
    """Answer of :class:`rrg_rewards.judges.tasks.finebench.AnswersTask`."""

    answers: list[QuestionAnswer]


class LabelAnswer(StrictAnswer):
    """Whether a report states a label, with the words that say so."""

    quote: str | None
    state: Literal["positive", "negative", "uncertain"]


class LabelsForm(StrictAnswer):
    """Answer of :class:`rrg_rewards.judges.tasks.labels.LabelsTask`: an answer by label."""

    labels: dict[str, LabelAnswer]


class PairGrade(StrictAnswer):
    """The grade of one pair of answers."""

    pair: str
    grade: Literal["right", "partial", "wrong"]


class GradesForm(StrictAnswer):
    """Answer of :class:`rrg_rewards.judges.tasks.finebench.GradesTask`."""

    grades: list[PairGrade]


class StatedTriple(StrictAnswer):
    """An attribute of a finding with its value, and the words of the report that state it."""

    quote: str
    finding: str
    attribute: str
    value: str


class TriplesForm(StrictAnswer):
    """Answer of :class:`rrg_rewards.judges.tasks.finebench_mining.TriplesTask`."""

    triples: list[StatedTriple]


class ParaphraseForm(StrictAnswer):
    """Answer of :class:`rrg_rewards.judges.tasks.rewriting.ParaphraseTask`."""

    report: str


class ReplacementForm(StrictAnswer):
    """Answer of :class:`rrg_rewards.judges.tasks.rewriting.WrongDetailTask`."""

    before: str
    after: str


class MatchedQuotes(StrictAnswer):
    """The quotes of a finding that both reports state without an error."""

    reference_quote: str
    candidate_quote: str


class QuotedError(StrictAnswer):
    """An error of the candidate, with quotes; ``None`` if a report does not mention the matter."""

    explanation: str
    category: ErrorCategory
    significant: bool
    reference_quote: str | None
    candidate_quote: str | None


class CountsForm(StrictAnswer):
    """Answer of :class:`rrg_rewards.judges.tasks.counting.CountingTask`."""

    matched_findings: list[MatchedQuotes]
    errors: list[QuotedError]


_PUBLISHED_KEYS = tuple(
    dict.fromkeys(
        key
        for form in (PublishedCrimsonAnswer, PublishedErrors, PublishedFinding, MatchAnswer, PublishedAttributeError)
        for key in form.model_fields
    )
)


def _inline(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Replace references with their definitions, and remove titles and descriptions."""
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    kept = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: _inline(entry, definitions) for name, entry in value.items()}
        elif key not in ("title", "description"):
            kept[key] = _inline(value, definitions)
    return kept


def read_answer(answer: str, form: type[Form]) -> Form:
    """Parse a judge's answer.

    Args:
        answer: Text of the answer, as in :func:`~rrg_rewards.judges.tasks.answer_json.read_json`.
        form: Class of the form.

    Raises:
        AnswerError: ``malformed``, with the key of the first error and without text of the answer.

    Example:
        >>> read_answer('{"reference_findings": []}', CrimsonAnswer)
        Traceback (most recent call last):
        ...
        rrg_rewards.judges.base.AnswerError: predicted_findings: Field required (and 2 more)
    """
    content = read_json(answer)
    try:
        return form.model_validate(content)
    except ValidationError as error:
        raise AnswerError("malformed", _first_error(error)) from None


def read_published_answer(answer: str) -> PublishedCrimsonAnswer:
    """Parse an answer of the published CRIMSON judge, with the repairs of :func:`repair_json` if it is not JSON.

    Raises:
        AnswerError: ``malformed``; see :func:`read_answer`.

    Example:
        >>> lists = '"reference_findings": [], "predicted_findings": [], "matched_findings": []'
        >>> errors = 'errors": {"false_findings": [], "missing_findings": [], "attribute_errors": []}'
        >>> read_published_answer("{" + lists + ", " + errors + "}").errors.false_findings
        []
    """
    try:
        return read_answer(answer, PublishedCrimsonAnswer)
    except AnswerError as error:
        repaired = repair_json(answer, _PUBLISHED_KEYS, ("finding", "explanation"))
        if repaired == answer:
            raise error from None
        return read_answer(repaired, PublishedCrimsonAnswer)


def _first_error(error: ValidationError) -> str:
    """Describe the first error without a value or an unknown key of the answer, which may quote a report."""
    errors = error.errors(include_input=False, include_url=False, include_context=False)
    known = {name for model in StrictAnswer.__subclasses__() for name in model.model_fields}
    where = ".".join(str(part) if isinstance(part, int) or part in known else "?" for part in errors[0]["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where or 'the answer'}: {errors[0]['msg']}{more}"
