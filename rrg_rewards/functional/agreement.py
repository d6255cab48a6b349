"""Agreement of metric scores with human judgements: correlations, pairwise accuracy, intervals and tests.

All statistics are computed for several weightings of the rows at once. A bootstrap draw is a weighting by the number of
times that a row was drawn, so that pairs of rows are compared only once.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, get_args

import torch
from torch import Tensor

from rrg_rewards.functional.bootstrap import bootstrap_draws, draw_counts, percentile_interval
from rrg_rewards.functional.correlation import PairCounter, permuted_pair_counts, weighted_pearson, weighted_ranks
from rrg_rewards.functional.significance_tests import PermutationTest, permutation_p_value
from rrg_rewards.utilities.names import shown

AgreementStatistic = Literal["kendall", "spearman", "pearson", "accuracy", "preference", "binary"]

POSITIVE_THRESHOLD = 0.5
"""Scores and judgements of the statistic ``binary`` are positive from this value on."""

# Number of weights or permuted rows that are used at once.
_CHUNK = 2**17
# Maximum number of permuted rows in memory at once.
_PERMUTED_AT_ONCE = 2**22


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
    _check_agreement(scores, target, statistic, units)
    return _weighted_agreement(scores, target, statistic, units)(torch.ones(1, len(scores)))[0]


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
    _check_agreement(scores, target, statistic, units)
    kinds, unit_of_row = torch.unique(torch.arange(len(scores)) if units is None else units, return_inverse=True)
    if len(kinds) < 2:
        return float("nan"), float("nan")
    if minus is not None:
        _check_agreement(minus, target, statistic, units)
    ours = _weighted_agreement(scores, target, statistic, units)
    theirs = None if minus is None else _weighted_agreement(minus, target, statistic, units)
    values = []
    drawn = bootstrap_draws(len(kinds), num_resamples, seed) if draws is None else draws
    for counts in draw_counts(drawn, len(kinds)):
        weights = counts if units is None else counts[:, unit_of_row]
        values.append(ours(weights) if theirs is None else ours(weights) - theirs(weights))
    return percentile_interval(torch.cat(values), confidence)


def agreement_permutation_test(
    scores: Tensor,
    target: Tensor,
    statistic: AgreementStatistic = "kendall",
    units: Tensor | None = None,
    *,
    num_permutations: int = 1000,
    seed: int = 0,
) -> PermutationTest:
    r"""Test whether scores agree with human judgements at all, by permuting the judgements.

    Under the null hypothesis judgements are exchangeable between rows; for ``accuracy`` with ``units`` between rows of
    the same unit, and for ``preference`` the sign of each judgement is random. The p-value is

    .. math::
        p = \frac{1 + \#\{b : |T_b - c| \ge |T - c|\}}{1 + B}

    for :math:`B` permutations, where :math:`c` is the value without agreement: 0.5 for ``accuracy`` and ``preference``,
    the mean of all permutations :math:`p q + (1 - p)(1 - q)` for ``binary``, with shares :math:`p` and :math:`q` of
    positive scores and judgements, else 0.

    Args:
        scores: ``(N,)`` numbers.
        target: ``(N,)`` judgements.
        statistic: Statistic as in :func:`~rrg_rewards.functional.human_agreement`.
        units: Units as in :func:`~rrg_rewards.functional.human_agreement`.
        num_permutations: :math:`B`.
        seed: Seed of the permutations.

    Returns:
        The test; NaN if the statistic is undefined.

    Raises:
        ValueError: As :func:`~rrg_rewards.functional.human_agreement`, or if ``num_permutations`` is not positive.

    Example:
        >>> agreement_permutation_test(torch.arange(20), torch.arange(20) // 2, num_permutations=99).p_value
        0.01
    """
    _check_agreement(scores, target, statistic, units)
    generator = _generator(num_permutations, seed)
    value = float(human_agreement(scores, target, statistic, units))
    if math.isnan(value):
        return PermutationTest(value, math.nan, math.nan, math.nan)
    if statistic == "preference":
        found = _flipped(scores, target, num_permutations, generator)
    else:
        within = units if statistic == "accuracy" else None
        parts = []
        at_once = max(1, _PERMUTED_AT_ONCE // len(target))
        for start in range(0, num_permutations, at_once):
            times = range(start, min(start + at_once, num_permutations))
            permutations = torch.stack([_permutation(len(target), within, generator) for _ in times])
            parts.append(_permuted_agreement(scores, target, permutations, statistic, units))
        found = torch.cat(parts)
    centre = _without_agreement(scores, target, statistic)
    return PermutationTest(value, permutation_p_value(value - centre, found - centre), *percentile_interval(found))


def perm_both_test(
    first: Tensor,
    second: Tensor,
    target: Tensor,
    statistic: AgreementStatistic = "kendall",
    units: Tensor | None = None,
    *,
    num_permutations: int = 1000,
    seed: int = 0,
) -> PermutationTest:
    r"""Test whether two metrics agree equally well with human judgements, by exchanging their scores.

    Both metrics are standardised, except for ``binary``, which compares them with a fixed value. Under the null
    hypothesis the two scores of a row are exchangeable. In each permutation the scores of each row are exchanged with
    probability 1/2, and the difference :math:`T_b` of both agreements is computed again. The p-value is

    .. math::
        p = \frac{1 + \#\{b : |T_b| \ge |T|\}}{1 + B}

    Source: Deutsch, Dror and Roth, "A Statistical Analysis of Summarization Evaluation Metrics Using Resampling
    Methods", TACL 2021 (PERM-BOTH). The paper tests one side, and its p-value has no 1 added.

    Args:
        first: ``(N,)`` scores.
        second: ``(N,)`` scores of the same rows.
        target: ``(N,)`` judgements.
        statistic: Statistic as in :func:`~rrg_rewards.functional.human_agreement`.
        units: Units as in :func:`~rrg_rewards.functional.human_agreement`.
        num_permutations: :math:`B`.
        seed: Seed of the permutations.

    Returns:
        The test of ``human_agreement(first) - human_agreement(second)``; NaN if one of them is undefined.

    Raises:
        ValueError: As :func:`~rrg_rewards.functional.human_agreement`, or if ``num_permutations`` is not positive.

    Example:
        >>> ratings, noise = torch.arange(30), torch.arange(30) * 7 % 30
        >>> perm_both_test(ratings, noise, ratings, num_permutations=99).p_value
        0.01
    """
    for scores in (first, second):
        _check_agreement(scores, target, statistic, units)
    generator = _generator(num_permutations, seed)
    value = float(human_agreement(first, target, statistic, units) - human_agreement(second, target, statistic, units))
    if math.isnan(value):
        return PermutationTest(value, math.nan, math.nan, math.nan)
    # All scores as rows of both metrics; a permutation gives weight 1 to one row of each pair.
    both = torch.cat([_standardised(scores, statistic) for scores in (first, second)])
    judged = torch.cat([target, target])
    agreement = _weighted_agreement(both, judged, statistic, None if units is None else torch.cat([units, units]))
    parts = []
    for exchanged in _coin_flips(num_permutations, len(target), generator):
        ours, theirs = (agreement(torch.cat([weight, ~weight], 1)) for weight in (~exchanged, exchanged))
        parts.append(ours - theirs)
    found = torch.cat(parts)
    return PermutationTest(value, permutation_p_value(value, found), *percentile_interval(found))


def _weighted_agreement(
    scores: Tensor, target: Tensor, statistic: AgreementStatistic, units: Tensor | None = None
) -> Callable[[Tensor], Tensor]:
    """Return :func:`human_agreement` as a function of ``(B, N)`` weights that returns ``(B,)`` float64.

    A row of integer weight w counts as w equal rows. With units, weights are equal within a unit, or 0 and 1; pairs
    within a unit count once for each time that the unit counts.
    """
    agreement = _agreement(scores.double(), target.double(), statistic, units)
    return lambda weights: torch.cat([agreement(part.double()) for part in _chunks(weights)])


def _agreement(scores: Tensor, target: Tensor, statistic: str, units: Tensor | None) -> Callable[[Tensor], Tensor]:
    if statistic == "kendall":
        counted = PairCounter(scores, target)
        return lambda weights: counted(weights).tau()
    if statistic == "accuracy":
        counted = PairCounter(scores, target, units)
        return lambda weights: counted(weights).accuracy()
    if statistic == "spearman":
        ours, theirs = weighted_ranks(scores), weighted_ranks(target)
        return lambda weights: weighted_pearson(ours(weights), theirs(weights), weights)
    if statistic == "pearson":
        return lambda weights: weighted_pearson(scores.expand_as(weights), target.expand_as(weights), weights)
    if statistic == "preference":
        return lambda weights: _preference(scores, target, weights)
    alike = _alike(scores, target).double()
    return lambda weights: (weights @ alike) / weights.sum(1)


def _permuted_agreement(
    scores: Tensor, target: Tensor, permutations: Tensor, statistic: AgreementStatistic, units: Tensor | None = None
) -> Tensor:
    """Return :func:`human_agreement` of the scores with each of ``(B, N)`` permutations of the judgements, ``(B,)``.

    Judgement ``permutations[b, i]`` moves to row ``i``. With ``accuracy`` and units, it is of the same unit. All
    statistics except ``preference``.
    """
    ours, theirs = scores.double(), target.double()
    if statistic == "binary":
        return _alike(ours, theirs[permutations]).double().mean(1)
    if statistic in ("spearman", "pearson"):
        one = torch.ones(1, len(ours), dtype=torch.float64)
        sides = [weighted_ranks(v)(one) if statistic == "spearman" else v[None] for v in (ours, theirs)]
        own, judged = (side[0] - side.mean() for side in sides)
        spread = (own.square().sum() * judged.square().sum()).sqrt()
        return (judged[permutations] @ own) / spread
    within = units if statistic == "accuracy" else None
    parts = [permuted_pair_counts(ours, theirs, part, within) for part in _chunks(permutations)]
    return torch.cat([(1 + part.signed / part.second) / 2 if statistic == "accuracy" else part.tau() for part in parts])


def _check_agreement(scores: Tensor, target: Tensor, statistic: str, units: Tensor | None = None) -> None:
    if statistic not in get_args(AgreementStatistic):
        raise ValueError(f"statistic must be one of {', '.join(get_args(AgreementStatistic))}, got {shown(statistic)}")
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


def _generator(num_permutations: int, seed: int) -> torch.Generator:
    if num_permutations < 1:
        raise ValueError(f"num_permutations must be positive, got {num_permutations}")
    return torch.Generator().manual_seed(seed)


def _permutation(rows: int, units: Tensor | None, generator: torch.Generator) -> Tensor:
    """Return a random permutation of the rows, within units if there are units."""
    order = torch.randperm(rows, generator=generator)
    if units is None:
        return order
    # Rows sorted by unit, in random order within it, take the places of that unit.
    permutation = torch.empty_like(order)
    permutation[units.argsort(stable=True)] = order[units[order].argsort(stable=True)]
    return permutation


def _flipped(scores: Tensor, target: Tensor, times: int, generator: torch.Generator) -> Tensor:
    """Return the agreement with preferences of random sign, ``times`` times."""
    right = ((1 + scores.double().sign() * target.double().sign()) / 2)[target != 0]
    flips = _coin_flips(times, len(right), generator)
    return torch.cat([torch.where(flipped, 1 - right, right).mean(1) for flipped in flips])


def _coin_flips(times: int, rows: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield ``times`` rows of ``(B, N)`` fair coin flips in parts. All parts together are those of one draw."""
    # A multiple of the rows of a chunk of both metrics, so that chunks do not depend on the parts.
    chunk = max(1, _CHUNK // (2 * rows))
    at_once = chunk * max(1, _PERMUTED_AT_ONCE // (2 * rows * chunk))
    for start in range(0, times, at_once):
        yield torch.rand(min(at_once, times - start), rows, generator=generator) < 0.5


def _without_agreement(scores: Tensor, target: Tensor, statistic: str) -> float:
    """Return the value of a statistic if scores and judgements are independent."""
    if statistic == "binary":
        p, q = (float((values >= POSITIVE_THRESHOLD).double().mean()) for values in (scores, target))
        return p * q + (1 - p) * (1 - q)
    return 0.5 if statistic in ("accuracy", "preference") else 0.0


def _standardised(scores: Tensor, statistic: str) -> Tensor:
    """Return scores with standard deviation 1, and mean 0 except for preferences, whose sign must stay."""
    values = scores.double()
    if statistic == "binary":
        return values
    centred = values if statistic == "preference" else values - values.mean()
    spread = centred.square().mean().sqrt()
    return centred / torch.where(spread > 0, spread, 1.0)
