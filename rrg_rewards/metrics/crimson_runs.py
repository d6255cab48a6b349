"""Means of several evaluations of the same report pairs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rrg_rewards.functional.crimson_evaluation import CrimsonEvaluation
from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.metrics.scores import Scores

__all__ = ["CrimsonRuns", "join_runs", "mean_of_runs"]


@dataclass(frozen=True)
class CrimsonRuns:
    """The results of several runs of a judge on one report pair, at least one of which is an evaluation.

    Args:
        results: Evaluation or failure of each run.
    """

    results: tuple[CrimsonEvaluation | JudgeFailure, ...]


def join_runs(
    runs: Sequence[Sequence[CrimsonEvaluation | JudgeFailure]],
) -> list[CrimsonRuns | JudgeFailure]:
    """Return the results of each pair over all runs; its first failure if all runs failed.

    Args:
        runs: ``K`` runs, each with ``N`` results.

    Example:
        >>> failure = JudgeFailure("malformed", "no JSON")
        >>> joined = join_runs([[failure, failure], [CrimsonEvaluation(), failure]])
        >>> len(joined[0].results), joined[1] == failure
        (2, True)
    """
    joined: list[CrimsonRuns | JudgeFailure] = []
    for results in zip(*runs, strict=True):
        first = results[0]
        all_failed = all(isinstance(result, JudgeFailure) for result in results)
        joined.append(first if all_failed and isinstance(first, JudgeFailure) else CrimsonRuns(results))
    return joined


def mean_of_runs(scores: Scores, num_runs: int) -> Scores:
    r"""Return the means over runs of the scores of ``N`` pairs.

    A failed run has no score (NaN) and is left out of the means of its pair. Further details are ``spread``, the
    standard deviation :math:`\sqrt{\sum_k (s_k - \bar s)^2 / (n - 1)}` of the scores of the :math:`n` runs that did
    not fail (NaN if :math:`n < 2`), and ``failed_runs``, their number subtracted from the number of runs.

    Args:
        scores: Scores of ``N * num_runs`` results, the runs of a pair one after another.
        num_runs: Number of runs.

    Example:
        >>> found = mean_of_runs(Scores(torch.tensor([0.0, 1.0, float("nan"), 1.0])), 2)
        >>> found.value, found.details["spread"], found.details["failed_runs"]
        (tensor([0.5000, 1.0000]), tensor([0.7071,    nan]), tensor([0., 1.]))
    """
    values = scores.value.view(-1, num_runs)
    scored = ~values.isnan()
    numbers = scored.sum(1)
    deviations = (values - values.nanmean(1, keepdim=True)).square().nansum(1)
    spread = (deviations / (numbers - 1)).sqrt().masked_fill(numbers < 2, torch.nan)
    failed = (num_runs - numbers).to(values.dtype).masked_fill(numbers == 0, torch.nan)
    means: dict[str, Tensor] = {name: one.view(-1, num_runs).nanmean(1) for name, one in scores.details.items()}
    return Scores(values.nanmean(1), {**means, "spread": spread, "failed_runs": failed})
