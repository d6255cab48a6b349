"""Agreement of metric scores with human judgements: correlations, pairwise accuracy, and bootstrap intervals.

All statistics are computed for several weightings of the rows at once. A bootstrap draw is a weighting by the number of
times that a row was drawn, so that pairs of rows are compared only once.
"""

from collections.abc import Iterable
from typing import Literal, get_args

import torch
from torch import Tensor

from rrg_rewards.functional.bootstrap import bootstrap_draws, draw_counts, percentile_interval
from rrg_rewards.functional.correlation import pair_counts, permuted_pair_counts, weighted_pearson, weighted_ranks

__all__ = [
    "POSITIVE_THRESHOLD",
    "AgreementStatistic",
    "agreement_interval",
    "check_agreement",
    "human_agreement",
    "permuted_agreement",
    "weighted_agreement",
]

AgreementStatistic = Literal["kendall", "spearman", "pearson", "accuracy", "preference", "binary"]

POSITIVE_THRESHOLD = 0.5
"""Scores and judgements of the statistic ``binary`` are positive from this value on."""

# Number of weights or permuted rows that are used at once.
_CHUNK = 2**17


def human_agreement(
    scores: Tensor, target: Tensor, statistic: AgreementStatistic = "kendall", units: Tensor | None = None
) -> Tensor:
    r"""Compute the agreement of scores with human judgements.

    - ``kendall``: Kendall's :math:`\tau_b`, as :func:`~rrg_rewards.functional.kendall_tau`.
    - ``spearman``: Spearman's :math:`\rho`, as :func:`~rrg_rewards.functional.spearman_rho`.
    - ``pearson``: Pearson's correlation :math:`r`.
    - ``accuracy``: pairwise accuracy, the share of pairs of rows with different judgements that the scores order alike.
      With ``units`` only pairs of rows of the same unit count, for example the reports of one study.
    - ``preference``: share of rows with a judgement other than 0 whose score has its sign. Scores are differences
      between two candidates, and judgements say which of them is better.
    - ``binary``: accuracy of a yes/no item, :math:`\frac{1}{N} \sum_i \mathbb 1[(s_i \ge 0.5) = (h_i \ge 0.5)]`, the
      share of rows whose score and judgement are both at least 0.5 or both below. Scores are in the unit of the
      judgements, such as predicted and annotated errors, 1 if there is one and else 0 (Liu et al., ER²Score, Table 3).
      A constant score reaches the share of the more frequent answer.

    In pairwise accuracy and preference, equal scores (a score of 0) count half, so that a constant score reaches 0.5.

    Args:
        scores: ``(N,)`` numbers. Higher scores mean higher judgements.
        target: ``(N,)`` judgements.
        statistic: Name of the statistic.
        units: ``(N,)`` integers that say which rows belong together; used by ``accuracy`` only.

    Returns:
        Scalar float64: in [-1, 1], or in [0, 1] for accuracies. NaN if it is undefined: one side is constant, there is
        no pair with different judgements, or no preference.

    Raises:
        ValueError: If shapes differ, a number is not finite, or the statistic is unknown.

    Example:
        >>> scores, ratings = torch.tensor([0.1, 0.9, 0.8, 2.0]), torch.tensor([0, 1, 1, 3])
        >>> human_agreement(scores, ratings), human_agreement(scores, ratings, "accuracy")
        (tensor(0.9129, dtype=torch.float64), tensor(1., dtype=torch.float64))
        >>> human_agreement(torch.tensor([0.1, 0.7, 0.4, 0.9]), torch.tensor([0, 1, 1, 1]), "binary")
        tensor(0.7500, dtype=torch.float64)
    """
    check_agreement(scores, target, statistic, units)
    return weighted_agreement(scores, target, torch.ones(1, len(scores)), statistic, units)[0]


def agreement_interval(
    scores: Tensor,
    target: Tensor,
    statistic: AgreementStatistic = "kendall",
    units: Tensor | None = None,
    *,
    minus: Tensor | None = None,
    num_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    draws: Iterable[Tensor] | None = None,
) -> tuple[float, float]:
    r"""Compute the percentile bootstrap interval of :func:`human_agreement`, or of a difference between two metrics.

    Units are drawn with replacement, and all rows of a unit together (:func:`~rrg_rewards.functional.
    bootstrap_interval`). With ``minus`` the interval is that of the difference ``human_agreement(scores) -
    human_agreement(minus)``, where both metrics see the same draws.

    Args:
        scores: ``(N,)`` numbers.
        target: ``(N,)`` judgements.
        statistic: Statistic as in :func:`human_agreement`.
        units: ``(N,)`` integers that say which rows belong together; default: each row is a unit.
        minus: ``(N,)`` scores of the other metric of a difference.
        num_resamples: Number of draws.
        confidence: Fraction of draws inside the interval, in (0, 1).
        seed: Seed of the draws.
        draws: Drawn units of each draw, as indices of the sorted units, instead of random ones.

    Returns:
        Lower and upper end; NaN if no draw has a value or there are fewer than two units.

    Raises:
        ValueError: As :func:`human_agreement`, or if ``num_resamples`` is not positive or ``confidence`` lies outside
            (0, 1).

    Example:
        >>> scores, ratings = torch.arange(40) % 7, torch.arange(40) % 5
        >>> low, high = agreement_interval(scores, ratings, num_resamples=200)
        >>> low < float(human_agreement(scores, ratings)) < high
        True
    """
    check_agreement(scores, target, statistic, units)
    kinds, unit_of_row = torch.unique(torch.arange(len(scores)) if units is None else units, return_inverse=True)
    if len(kinds) < 2:
        return float("nan"), float("nan")
    if minus is not None:
        check_agreement(minus, target, statistic, units)
    values = []
    drawn = bootstrap_draws(len(kinds), num_resamples, seed) if draws is None else draws
    for counts in draw_counts(drawn, len(kinds)):
        weights = counts if units is None else counts[:, unit_of_row]
        values.append(weighted_agreement(scores, target, weights, statistic, units))
        if minus is not None:
            values[-1] -= weighted_agreement(minus, target, weights, statistic, units)
    return percentile_interval(torch.cat(values), confidence)


def weighted_agreement(
    scores: Tensor, target: Tensor, weights: Tensor, statistic: AgreementStatistic, units: Tensor | None = None
) -> Tensor:
    """Compute :func:`human_agreement` for several weightings of the rows.

    A row of integer weight w counts as w equal rows. Pairs within a unit count once for each time that the unit counts.

    Args:
        scores: ``(N,)`` finite numbers.
        target: ``(N,)`` finite judgements.
        weights: ``(B, N)`` weights, at least 0; equal within a unit, or 0 and 1.
        statistic: Statistic as in :func:`human_agreement`.
        units: Units as in :func:`human_agreement`.

    Returns:
        ``(B,)`` float64.

    Example:
        >>> scores, ratings = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])
        >>> weighted_agreement(scores, ratings, torch.tensor([[1, 1, 1], [1, 1, 0]]), "kendall")
        tensor([0.3333, 1.0000], dtype=torch.float64)
    """
    ours, theirs = scores.double(), target.double()
    return torch.cat([_agreement(ours, theirs, part.double(), statistic, units) for part in _chunks(weights)])


def _agreement(scores: Tensor, target: Tensor, weights: Tensor, statistic: str, units: Tensor | None) -> Tensor:
    if statistic == "kendall":
        return pair_counts(scores, target, weights).tau()
    if statistic == "accuracy":
        return pair_counts(scores, target, weights, units).accuracy()
    if statistic == "spearman":
        return weighted_pearson(weighted_ranks(scores, weights), weighted_ranks(target, weights), weights)
    if statistic == "pearson":
        return weighted_pearson(scores.expand_as(weights), target.expand_as(weights), weights)
    if statistic == "preference":
        return _preference(scores, target, weights)
    return (weights @ _alike(scores, target).double()) / weights.sum(1)


def permuted_agreement(
    scores: Tensor, target: Tensor, permutations: Tensor, statistic: AgreementStatistic, units: Tensor | None = None
) -> Tensor:
    """Compute :func:`human_agreement` of the scores with permuted judgements.

    Args:
        scores: ``(N,)`` finite numbers.
        target: ``(N,)`` finite judgements.
        permutations: ``(B, N)``; judgement ``permutations[b, i]`` moves to row ``i``. With ``accuracy`` and units, it
            must be of the same unit as row ``i``.
        statistic: Statistic as in :func:`human_agreement`, except ``preference``.
        units: Units as in :func:`human_agreement`.

    Returns:
        ``(B,)`` float64.

    Example:
        >>> scores, ratings = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])
        >>> permuted_agreement(scores, ratings, torch.tensor([[0, 1, 2], [0, 2, 1]]), "kendall")
        tensor([0.3333, 1.0000], dtype=torch.float64)
    """
    ours, theirs = scores.double(), target.double()
    if statistic == "binary":
        return _alike(ours, theirs[permutations]).double().mean(1)
    if statistic in ("spearman", "pearson"):
        one = torch.ones(1, len(ours), dtype=torch.float64)
        sides = [weighted_ranks(v, one) if statistic == "spearman" else v[None] for v in (ours, theirs)]
        own, judged = (side[0] - side.mean() for side in sides)
        spread = (own.square().sum() * judged.square().sum()).sqrt()
        return (judged[permutations] @ own) / spread
    within = units if statistic == "accuracy" else None
    parts = [permuted_pair_counts(ours, theirs, part, within) for part in _chunks(permutations)]
    return torch.cat([(1 + part.signed / part.second) / 2 if statistic == "accuracy" else part.tau() for part in parts])


def check_agreement(scores: Tensor, target: Tensor, statistic: str, units: Tensor | None = None) -> None:
    """Check the arguments of :func:`human_agreement`.

    Raises:
        ValueError: If shapes differ, a number is not finite, or the statistic is unknown.
    """
    if statistic not in get_args(AgreementStatistic):
        raise ValueError(f"statistic must be one of {', '.join(get_args(AgreementStatistic))}, got {statistic!r}")
    if scores.ndim != 1 or scores.shape != target.shape:
        raise ValueError(f"scores and target must both be (N,), got {tuple(scores.shape)} and {tuple(target.shape)}")
    if units is not None and units.shape != scores.shape:
        raise ValueError(f"units must be ({len(scores)},), as scores, got {tuple(units.shape)}")
    for name, values in (("scores", scores), ("target", target)):
        if not bool(values.isfinite().all()):
            row = int((~values.isfinite()).nonzero()[0])
            raise ValueError(f"{name}[{row}] must be finite, got {values[row].item()}; leave out unscorable rows")
    if not len(scores):
        raise ValueError("scores must have at least one row")


def _chunks(rows: Tensor) -> tuple[Tensor, ...]:
    """Split ``(B, N)`` weights or permutations, because small parts stay in the cache of the processor."""
    return torch.split(rows, max(1, _CHUNK // rows.shape[1]))


def _preference(scores: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    counted = weights * (target != 0)
    right = counted @ ((1 + scores.sign() * target.sign()) / 2)
    total = counted.sum(1)
    return torch.where(total > 0, right / total, torch.nan)


def _alike(scores: Tensor, target: Tensor) -> Tensor:
    """Return whether both sides are positive or both negative, row by row."""
    return (scores >= POSITIVE_THRESHOLD) == (target >= POSITIVE_THRESHOLD)
