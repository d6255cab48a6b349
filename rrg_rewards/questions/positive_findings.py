"""Findings that the labels of a data set call positive, for questions about these findings only."""

from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.questions.schema import QAItem, QuestionSchema
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["FindingLabels", "check_finding_labels", "items_on", "positive_findings"]

FindingLabels = Mapping[str, float] | Sequence[float]
"""0 or 1 for each finding of a question schema: by the name of the label, or in the order of the findings."""


def positive_findings(labels: FindingLabels, schema: QuestionSchema, where: str = "labels") -> frozenset[str]:
    """Return the findings that a report's labels call positive.

    A finding belongs to the label of the same name, ignoring case. The findings of ``ct_rate`` and ``merlin`` are the
    labels of :data:`rrg_rewards.schemas.CT_RATE` and :data:`rrg_rewards.schemas.MERLIN`, in their order.

    Args:
        labels: 0 or 1 for each finding: a mapping from names of labels, which may have further labels, or a sequence in
            the order of the schema's findings.
        schema: The question schema.
        where: Name of the labels in messages.

    Returns:
        Names of the findings, as in the schema.

    Raises:
        TypeError: If the labels are neither a mapping nor a sequence.
        ValueError: If a finding has no label, a sequence has another length, or a label is not 0 or 1.

    Example:
        >>> from rrg_rewards.questions import get_question_schema
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
        if isinstance(label, str) or label not in (0, 1):
            raise ValueError(f"{where}: {finding!r} must be 0 or 1, got {label!r}; map uncertain labels first")
    return frozenset(finding for finding, label in values.items() if label)


def _by_finding(labels: Mapping[str, Any], findings: Sequence[str], schema: str, where: str) -> dict[str, Any]:
    given = {str(name).casefold(): label for name, label in labels.items()}
    for finding in findings:
        if finding.casefold() not in given:
            unknown = unknown_name_message("label", finding, [str(name) for name in labels])
            raise ValueError(f"{where}: question schema {schema!r} needs a label for each finding: {unknown}")
    return {finding: given[finding.casefold()] for finding in findings}


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
