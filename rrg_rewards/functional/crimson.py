"""CRIMSON: clinical significance of what a candidate report adds, misses and gets wrong (Baharoon et al., 2026)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrg_rewards.schemas import ATTRIBUTE_ERROR_TYPES, ATTRIBUTE_WEIGHTS, SIGNIFICANCE_WEIGHTS, UNKNOWN_WEIGHT

__all__ = [
    "CrimsonAttributeError",
    "CrimsonEvaluation",
    "CrimsonFinding",
    "CrimsonStatistics",
    "crimson_score",
    "crimson_score_from_statistics",
    "crimson_statistics",
]


# Keys of entries whose values are texts, where an entry has them.
_TEXTS = ("id", "ref_id", "pred_id", "finding", "clinical_significance", "severity", "explanation")


@dataclass(frozen=True, slots=True)
class CrimsonFinding:
    """An abnormal finding of one of the two reports.

    Args:
        id: Name of the finding in its evaluation, such as ``R1``.
        finding: The finding in words.
        clinical_significance: ``urgent``, ``actionable_not_urgent``, ``not_actionable_not_urgent`` or
            ``benign_expected``; anything else weighs 0.25.
    """

    id: str
    finding: str
    clinical_significance: str


@dataclass(frozen=True, slots=True)
class CrimsonAttributeError:
    """What is wrong about a finding that both reports hold.

    Args:
        ref_id: The reference finding.
        pred_id: The candidate's finding.
        severity: ``significant`` or ``negligible``; anything else weighs 0.25.
        error_types: Which attributes, of ``rrg_rewards.schemas.ATTRIBUTE_ERROR_TYPES``.
        explanation: In words.
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
        matched_findings: Pairs ``(reference id, candidate id)`` that are the same finding; either may occur several
            times.
        false_findings: Candidate ids without a match.
        missing_findings: Reference ids without a match.
        attribute_errors: What is wrong about matched findings.

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
        """Take an evaluation in the published JSON form; keys that it lacks are empty lists.

        Raises:
            ValueError: If it is not of that form: something is no list, no mapping, or an entry lacks one of its keys.
        """
        errors = _mapping("errors", evaluation.get("errors", {}))
        return cls(
            reference_findings=_findings("reference_findings", evaluation),
            predicted_findings=_findings("predicted_findings", evaluation),
            matched_findings=tuple(
                (match["ref_id"], match["pred_id"])
                for match in _entries("matched_findings", evaluation, ("ref_id", "pred_id"))
            ),
            false_findings=tuple(_list("false_findings", errors)),
            missing_findings=tuple(_list("missing_findings", errors)),
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
        """The evaluation in the published JSON form, which :meth:`from_dict` takes."""
        return {
            "reference_findings": [_finding_dict(finding) for finding in self.reference_findings],
            "predicted_findings": [_finding_dict(finding) for finding in self.predicted_findings],
            "matched_findings": [{"ref_id": ref_id, "pred_id": pred_id} for ref_id, pred_id in self.matched_findings],
            "errors": {
                "false_findings": list(self.false_findings),
                "missing_findings": list(self.missing_findings),
                "attribute_errors": [
                    {
                        "ref_id": error.ref_id,
                        "pred_id": error.pred_id,
                        "severity": error.severity,
                        "error_types": list(error.error_types),
                        "explanation": error.explanation,
                    }
                    for error in self.attribute_errors
                ],
            },
        }


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping, got {type(value).__name__}")
    return value


def _list(name: str, owner: Mapping[str, Any]) -> Sequence[Any]:
    value = owner.get(name, ())
    # A text is a sequence too, of letters.
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be a list, got {type(value).__name__}")
    return value


def _entries(name: str, owner: Mapping[str, Any], keys: Sequence[str]) -> list[Mapping[str, Any]]:
    """The mappings that a list holds, each with all of ``keys``."""
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


def _finding_dict(finding: CrimsonFinding) -> dict[str, str]:
    return {
        "id": finding.id,
        "finding": finding.finding,
        "clinical_significance": finding.clinical_significance,
    }


class CrimsonStatistics(NamedTuple):
    r"""What CRIMSON is made of, for ``N`` report pairs: float64 tensors ``(N,)``, and ``(N, 8)`` for error types.

    Attributes:
        credit: :math:`C`, weighted matches with their partial credit.
        reference_weight: :math:`W_{ref}`, summed weight of the reference's findings.
        false_weight: :math:`E_{false}`, summed weight of false findings.
        missing_weight: Summed weight of missing findings.
        attribute_weight: Summed weight of attribute errors.
        num_reference: Number of findings of the reference.
        num_predicted: Number of findings of the candidate.
        num_matched: Number of the reference's findings that are matched.
        num_false: Number of false findings.
        num_missing: Number of missing findings.
        num_attribute: Number of attribute errors.
        num_error_types: Attribute errors by type, in the order of ``rrg_rewards.schemas.ATTRIBUTE_ERROR_TYPES``; one
            with several types counts in each.
    """

    credit: Tensor
    reference_weight: Tensor
    false_weight: Tensor
    missing_weight: Tensor
    attribute_weight: Tensor
    num_reference: Tensor
    num_predicted: Tensor
    num_matched: Tensor
    num_false: Tensor
    num_missing: Tensor
    num_attribute: Tensor
    num_error_types: Tensor


def crimson_statistics(evaluations: Sequence[CrimsonEvaluation | Mapping[str, Any]]) -> CrimsonStatistics:
    r"""Weighted and plain counts of ``N`` evaluations.

    A matched reference finding of weight :math:`w_i` earns

    .. math::
        c_i = w_i \frac{w_i}{w_i + E_{attr,i}}, \qquad C = \sum_{i \in matched} c_i

    where :math:`E_{attr,i}` sums 0.5 for each significant and 0 for each negligible attribute error of it; one matched
    several times earns once. Weights are 1 for urgent, 0.5 for actionable, 0.25 for not actionable findings and 0 for
    benign or expected ones; a label that is none of these weighs 0.25, as in the published code.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Eq. 1 and Section 3.3.

    Args:
        evaluations: ``N`` evaluations, or mappings in the published JSON form.

    Raises:
        ValueError: If an id is unknown or not unique, or an evaluation is not of the published form, by row.

    Example:
        >>> finding = {"id": "R1", "finding": "mass", "clinical_significance": "actionable_not_urgent"}
        >>> statistics = crimson_statistics([{"reference_findings": [finding], "errors": {"missing_findings": ["R1"]}}])
        >>> statistics.reference_weight, statistics.missing_weight
        (tensor([0.5000], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    rows = []
    for row, evaluation in enumerate(evaluations):
        try:
            rows.append(_statistics_row(_as_evaluation(evaluation)))
        except ValueError as error:
            raise ValueError(f"evaluations[{row}]: {error}") from error
    scalars = len(CrimsonStatistics._fields) - 1
    table = torch.tensor(rows, dtype=torch.float64).view(len(rows), scalars + len(ATTRIBUTE_ERROR_TYPES))
    return CrimsonStatistics._make([*table[:, :scalars].unbind(1), table[:, scalars:]])


def _as_evaluation(evaluation: CrimsonEvaluation | Mapping[str, Any]) -> CrimsonEvaluation:
    if isinstance(evaluation, CrimsonEvaluation):
        return evaluation
    return CrimsonEvaluation.from_dict(_mapping("an evaluation", evaluation))


def _weights(kind: str, findings: Sequence[CrimsonFinding]) -> dict[str, float]:
    weights = {
        finding.id: SIGNIFICANCE_WEIGHTS.get(finding.clinical_significance, UNKNOWN_WEIGHT) for finding in findings
    }
    if len(weights) < len(findings):
        raise ValueError(f"{kind} must have different ids, got {[finding.id for finding in findings]}")
    return weights


def _check_known(name: str, ids: Iterable[str], weights: Mapping[str, float]) -> None:
    for finding in ids:
        if finding not in weights:
            raise ValueError(
                f"{name} holds the id {finding!r}, which no finding has; known: {', '.join(map(str, weights))}"
            )


def _check_ids(evaluation: CrimsonEvaluation, reference: Mapping[str, float], predicted: Mapping[str, float]) -> None:
    matches, errors = evaluation.matched_findings, evaluation.attribute_errors
    _check_known("matched_findings", (ref_id for ref_id, _ in matches), reference)
    _check_known("matched_findings", (pred_id for _, pred_id in matches), predicted)
    _check_known("attribute_errors", (error.ref_id for error in errors), reference)
    _check_known("attribute_errors", (error.pred_id for error in errors), predicted)
    _check_known("missing_findings", evaluation.missing_findings, reference)
    _check_known("false_findings", evaluation.false_findings, predicted)


def _statistics_row(evaluation: CrimsonEvaluation) -> list[float]:
    reference = _weights("reference_findings", evaluation.reference_findings)
    predicted = _weights("predicted_findings", evaluation.predicted_findings)
    _check_ids(evaluation, reference, predicted)
    matched = dict.fromkeys(ref_id for ref_id, _ in evaluation.matched_findings)
    wrong = dict.fromkeys(matched, 0.0)
    attribute_weight = 0.0
    types = [0] * len(ATTRIBUTE_ERROR_TYPES)
    for error in evaluation.attribute_errors:
        weight = ATTRIBUTE_WEIGHTS.get(error.severity, UNKNOWN_WEIGHT)
        attribute_weight += weight
        if error.ref_id in wrong:
            wrong[error.ref_id] += weight
        for index, name in enumerate(ATTRIBUTE_ERROR_TYPES):
            types[index] += name in error.error_types
    # A finding of no weight earns nothing, whatever is wrong about it.
    credit = sum(reference[id_] ** 2 / (reference[id_] + wrong[id_]) for id_ in matched if reference[id_])
    return [
        credit,
        sum(reference.values()),
        sum(predicted[id_] for id_ in evaluation.false_findings),
        sum(reference[id_] for id_ in evaluation.missing_findings),
        attribute_weight,
        len(reference),
        len(predicted),
        len(matched),
        len(evaluation.false_findings),
        len(evaluation.missing_findings),
        len(evaluation.attribute_errors),
        *types,
    ]


def crimson_score_from_statistics(credit: Tensor, reference_weight: Tensor, false_weight: Tensor) -> Tensor:
    r"""CRIMSON from the weight of what is right, of what was to be found, and of what is false.

    .. math::
        S = \begin{cases}
            (C - E_{false}) / W_{ref} & W_{ref} > 0 \\
            -E_{false} & W_{ref} = 0, E_{false} > 0 \\
            1 & W_{ref} = E_{false} = 0
        \end{cases}
        \qquad
        CRIMSON = \begin{cases}
            S & S \ge 0 \\
            -A / (1 + A), \; A = E_{false} - C & S < 0
        \end{cases}

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Eq. 2 and 3.

    Args:
        credit: :math:`C`, not negative and at most :math:`W_{ref}`; any shape.
        reference_weight: :math:`W_{ref}`, not negative; of the same shape.
        false_weight: :math:`E_{false}`, not negative; of the same shape.

    Returns:
        Scores in (-1, 1], in the arguments' shape and type; higher is better.

    Example:
        >>> import torch
        >>> credit, false_weight = torch.tensor([0.5, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0])
        >>> crimson_score_from_statistics(credit, torch.tensor([1.0, 1.0, 0.0]), false_weight)
        tensor([ 0.5000, -0.5000, 1.0000])
    """
    has_findings = reference_weight > 0
    # Where nothing was to be found, the divisor is not used.
    share = (credit - false_weight) / reference_weight.where(has_findings, torch.ones_like(reference_weight))
    share = share.where(has_findings, torch.ones_like(share))
    excess = (false_weight - credit).clamp(min=0)
    return share.where(excess == 0, -excess / (1 + excess))


def crimson_score(
    evaluations: Sequence[CrimsonEvaluation | Mapping[str, Any]] | CrimsonEvaluation | Mapping[str, Any],
) -> Tensor:
    r"""CRIMSON of judged report pairs.

    0 is what a normal report earns where there is something to find; 1 a report that holds everything and nothing
    else, and a normal report where there is nothing to find. Below 0 a report is worse than none. See
    :func:`crimson_statistics` and :func:`crimson_score_from_statistics` for the formulas.

    Source: Baharoon et al., "CRIMSON", arXiv:2603.06183, Eq. 1 to 3.

    Args:
        evaluations: ``N`` evaluations, or mappings in the published JSON form; or one of them.

    Returns:
        float64 tensor ``(N,)``, or a scalar for one evaluation; in (-1, 1], higher is better.

    Raises:
        ValueError: If an id is unknown or not unique, or an evaluation is not of the published form, by row.

    Example:
        >>> from rrg_rewards.functional import CrimsonEvaluation, CrimsonFinding, crimson_score
        >>> mass = CrimsonFinding("R1", "right lung mass", "actionable_not_urgent")
        >>> crimson_score([CrimsonEvaluation((mass,), missing_findings=("R1",)), CrimsonEvaluation()])
        tensor([0., 1.], dtype=torch.float64)
    """
    if isinstance(evaluations, CrimsonEvaluation | Mapping):
        return crimson_score([evaluations])[0]
    statistics = crimson_statistics(evaluations)
    return crimson_score_from_statistics(*statistics[:3])
