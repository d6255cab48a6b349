"""CRIMSON's input: a comparison of two reports finding by finding, and its published JSON form."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["CrimsonAttributeError", "CrimsonEvaluation", "CrimsonFinding"]

# Keys of entries whose values, if present, must be texts.
_TEXTS = ("id", "ref_id", "pred_id", "finding", "clinical_significance", "severity", "explanation")


@dataclass(frozen=True, slots=True)
class CrimsonFinding:
    """An abnormal finding of the reference or the candidate.

    Args:
        id: Identifier of the finding in the evaluation, such as ``R1``.
        finding: Text of the finding.
        clinical_significance: ``urgent``, ``actionable_not_urgent``, ``not_actionable_not_urgent`` or
            ``benign_expected``; any other value has the weight 0.25.
        spans: Where the report states the finding, if the judge knows it: pairs of the offset of the first character
            and the offset after the last one. They are not compared, and no part of the published form.
    """

    id: str
    finding: str
    clinical_significance: str
    spans: tuple[tuple[int, int], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class CrimsonAttributeError:
    """An error in the attributes of a finding that both reports contain.

    Args:
        ref_id: Identifier of the reference finding.
        pred_id: Identifier of the candidate finding.
        severity: ``significant`` or ``negligible``; any other value has the weight 0.25.
        error_types: Names of the wrong attributes, from ``rrg_rewards.schemas.ATTRIBUTE_ERROR_TYPES``.
        explanation: Description of the error.
    """

    ref_id: str
    pred_id: str
    severity: str
    error_types: tuple[str, ...]
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class CrimsonEvaluation:
    """A judge's comparison of a candidate with a reference report, finding by finding.

    Args:
        reference_findings: Abnormal findings of the reference.
        predicted_findings: Abnormal findings of the candidate.
        matched_findings: Pairs ``(reference id, candidate id)`` of matching findings; an id may occur several times.
        false_findings: Ids of candidate findings without a match.
        missing_findings: Ids of reference findings without a match.
        attribute_errors: Errors in the attributes of matched findings.

    Example:
        >>> finding = {"id": "R1", "finding": "mass", "clinical_significance": "actionable_not_urgent"}
        >>> answer = {"reference_findings": [finding], "errors": {"missing_findings": ["R1"]}}
        >>> CrimsonEvaluation.from_dict(answer).missing_findings
        ('R1',)
    """

    reference_findings: tuple[CrimsonFinding, ...] = ()
    predicted_findings: tuple[CrimsonFinding, ...] = ()
    matched_findings: tuple[tuple[str, str], ...] = ()
    false_findings: tuple[str, ...] = ()
    missing_findings: tuple[str, ...] = ()
    attribute_errors: tuple[CrimsonAttributeError, ...] = ()

    @classmethod
    def from_dict(cls, evaluation: Mapping[str, Any]) -> "CrimsonEvaluation":
        """Build an evaluation from the published JSON form; missing keys are read as empty lists.

        Raises:
            ValueError: If a value is not the required list or mapping, or an entry lacks a key.
        """
        _mapping("an evaluation", evaluation)
        errors = _mapping("errors", evaluation.get("errors", {}))
        return cls(
            reference_findings=_findings("reference_findings", evaluation),
            predicted_findings=_findings("predicted_findings", evaluation),
            matched_findings=tuple(
                (match["ref_id"], match["pred_id"])
                for match in _entries("matched_findings", evaluation, ("ref_id", "pred_id"))
            ),
            false_findings=_ids("false_findings", errors),
            missing_findings=_ids("missing_findings", errors),
            attribute_errors=tuple(
                CrimsonAttributeError(
                    ref_id=error["ref_id"],
                    pred_id=error["pred_id"],
                    severity=error.get("severity", ""),
                    error_types=tuple(_list("error_types", error)),
                    explanation=error.get("explanation", ""),
                )
                for error in _entries("attribute_errors", errors, ("ref_id", "pred_id"))
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation in the published JSON form, which :meth:`from_dict` reads."""
        return {
            "reference_findings": [_published(finding) for finding in self.reference_findings],
            "predicted_findings": [_published(finding) for finding in self.predicted_findings],
            "matched_findings": [{"ref_id": ref_id, "pred_id": pred_id} for ref_id, pred_id in self.matched_findings],
            "errors": {
                "false_findings": list(self.false_findings),
                "missing_findings": list(self.missing_findings),
                "attribute_errors": [
                    {**asdict(error), "error_types": list(error.error_types)} for error in self.attribute_errors
                ],
            },
        }


def _published(finding: CrimsonFinding) -> dict[str, str]:
    return {key: value for key, value in asdict(finding).items() if key != "spans"}


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping, got {type(value).__name__}")
    return value


def _list(name: str, owner: Mapping[str, Any]) -> Sequence[Any]:
    value = owner.get(name, ())
    # Not Sequence, because a text is also a sequence.
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be a list, got {type(value).__name__}")
    return value


def _ids(name: str, owner: Mapping[str, Any]) -> tuple[str, ...]:
    ids = tuple(_list(name, owner))
    for index, id_ in enumerate(ids):
        if not isinstance(id_, str):
            raise ValueError(f"{name}[{index}] must be the id of a finding, got {type(id_).__name__}")
    return ids


def _entries(name: str, owner: Mapping[str, Any], keys: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the mappings of a list, each checked to contain all of ``keys``."""
    entries = [_mapping(f"{name}[{index}]", entry) for index, entry in enumerate(_list(name, owner))]
    for index, entry in enumerate(entries):
        for key in keys:
            if key not in entry:
                raise ValueError(f"{name}[{index}] lacks {key!r}")
        for key in _TEXTS:
            if not isinstance(entry.get(key, ""), str):
                raise ValueError(f"{name}[{index}][{key!r}] must be a text, got {type(entry[key]).__name__}")
    return entries


def _findings(name: str, evaluation: Mapping[str, Any]) -> tuple[CrimsonFinding, ...]:
    return tuple(
        CrimsonFinding(entry["id"], entry.get("finding", ""), entry.get("clinical_significance", ""))
        for entry in _entries(name, evaluation, ("id",))
    )
