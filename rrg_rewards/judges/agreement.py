"""Agreement of a judge for CRIMSON with another judge on the same report pairs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from rrg_rewards.functional.agreement import agreement_interval, human_agreement
from rrg_rewards.functional.crimson import crimson_score_from_statistics, crimson_statistics
from rrg_rewards.functional.crimson_evaluation import CrimsonEvaluation
from rrg_rewards.judges.base import JudgeFailure

__all__ = ["judge_agreement"]

_DIGITS = 9


def judge_agreement(
    teacher: Sequence[CrimsonEvaluation], results: Sequence[CrimsonEvaluation | JudgeFailure], num_resamples: int = 1000
) -> dict[str, Any]:
    """Compare the results of a judge with the evaluations of another one.

    Args:
        teacher: ``N`` evaluations of the other judge.
        results: ``N`` results of the judge.
        num_resamples: Number of bootstrap draws of report pairs.

    Returns:
        ``pairs``: ``N``. ``valid``: number of pairs with an evaluation. ``failures``: failures by kind. ``agreement``:
        for ``score`` (CRIMSON), ``false_findings``, ``missing_findings``, ``attribute_errors`` and ``errors`` (their
        sum), over the valid pairs: Kendall's ``tau`` with the ends ``low`` and ``high`` of its percentile bootstrap 95
        % interval, the mean absolute difference ``mae``, and the share of pairs that are ``equal``. A value that is
        undefined, because one side is constant or there is no valid pair, is ``None``.

    Raises:
        ValueError: If lengths differ.

    Example:
        >>> empty = CrimsonEvaluation()
        >>> found = judge_agreement([empty] * 2, [empty, JudgeFailure("malformed", "no JSON")])
        >>> found["valid"], found["failures"], found["agreement"]["score"]["equal"]
        (1, {'malformed': 1}, 1.0)
    """
    if len(teacher) != len(results):
        raise ValueError(f"teacher and results must have the same length, got {len(teacher)} and {len(results)}")
    failures = Counter(result.kind for result in results if isinstance(result, JudgeFailure))
    pairs = [
        (ours, theirs) for ours, theirs in zip(results, teacher, strict=True) if not isinstance(ours, JudgeFailure)
    ]
    columns = [_columns([pair[side] for pair in pairs]) for side in (0, 1)]
    return {
        "pairs": len(teacher),
        "valid": len(pairs),
        "failures": dict(failures),
        "agreement": {name: _compare(columns[0][name], columns[1][name], num_resamples) for name in columns[0]},
    }


def _columns(evaluations: Sequence[CrimsonEvaluation]) -> dict[str, Tensor]:
    found = crimson_statistics(evaluations)
    return {
        # Scores are quotients of sums of weights; equal ones may differ by rounding, and are ties.
        "score": crimson_score_from_statistics(*found[:3]).round(decimals=_DIGITS),
        "false_findings": found.num_false,
        "missing_findings": found.num_missing,
        "attribute_errors": found.num_attribute,
        "errors": found.num_false + found.num_missing + found.num_attribute,
    }


def _compare(ours: Tensor, theirs: Tensor, num_resamples: int) -> dict[str, float | None]:
    if not len(ours):
        return dict.fromkeys(("tau", "low", "high", "mae", "equal"))
    low, high = agreement_interval(ours, theirs, num_resamples=num_resamples)
    differences = (ours - theirs).abs()
    values = {
        "tau": human_agreement(ours, theirs).item(),
        "low": low,
        "high": high,
        "mae": differences.mean().item(),
        "equal": (differences == 0).double().mean().item(),
    }
    return {name: None if value != value else value for name, value in values.items()}
