"""Tests of agreement with human judgements, and of differences between the agreement of two metrics."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rrg_rewards.functional.agreement import (
    POSITIVE_THRESHOLD,
    AgreementStatistic,
    check_agreement,
    human_agreement,
    permuted_agreement,
    weighted_agreement,
)
from rrg_rewards.functional.bootstrap import percentile_interval

__all__ = [
    "PermutationTest",
    "WilliamsTest",
    "agreement_permutation_test",
    "perm_both_test",
    "permutation_p_value",
    "student_tail",
    "williams_test",
]


class PermutationTest(NamedTuple):
    """Result of a permutation test.

    Args:
        value: The statistic, or the difference of two.
        p_value: Two-sided p-value.
        low: Lower end of the interval that contains the middle 95 % of values under the null hypothesis.
        high: Upper end.
    """

    value: float
    p_value: float
    low: float
    high: float


class WilliamsTest(NamedTuple):
    """Result of Williams' test: the statistic ``t`` with ``N - 3`` degrees of freedom, and its two-sided p-value."""

    t: float
    p_value: float


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
    check_agreement(scores, target, statistic, units)
    generator = _generator(num_permutations, seed)
    value = float(human_agreement(scores, target, statistic, units))
    if math.isnan(value):
        return PermutationTest(value, math.nan, math.nan, math.nan)
    if statistic == "preference":
        found = _flipped(scores, target, num_permutations, generator)
    else:
        within = units if statistic == "accuracy" else None
        permutations = torch.stack([_permutation(len(target), within, generator) for _ in range(num_permutations)])
        found = permuted_agreement(scores, target, permutations, statistic, units)
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
        check_agreement(scores, target, statistic, units)
    generator = _generator(num_permutations, seed)
    value = float(human_agreement(first, target, statistic, units) - human_agreement(second, target, statistic, units))
    if math.isnan(value):
        return PermutationTest(value, math.nan, math.nan, math.nan)
    exchanged = torch.rand(num_permutations, len(target), generator=generator) < 0.5
    # All scores as rows of both metrics; a permutation gives weight 1 to one row of each pair.
    both = torch.cat([_standardised(scores, statistic) for scores in (first, second)])
    judged = torch.cat([target, target])
    together = None if units is None else torch.cat([units, units])
    ours, theirs = (
        weighted_agreement(both, judged, torch.cat([weight, ~weight], 1), statistic, together)
        for weight in (~exchanged, exchanged)
    )
    return PermutationTest(value, permutation_p_value(value, ours - theirs), *percentile_interval(ours - theirs))


def williams_test(first: float, second: float, between: float, rows: int) -> WilliamsTest:
    r"""Test whether two metrics have equal Pearson correlations with the same judgements.

    .. math::
        t = (r_{12} - r_{13}) \sqrt{\frac{(N - 1)(1 + r_{23})}
            {2 K \frac{N - 1}{N - 3} + \frac{(r_{12} + r_{13})^2}{4} (1 - r_{23})^3}}, \qquad
        K = 1 - r_{12}^2 - r_{13}^2 - r_{23}^2 + 2 r_{12} r_{13} r_{23}

    follows Student's distribution with :math:`N - 3` degrees of freedom if rows are independent and normal.

    Source: Williams, "The Comparison of Regression Variables", 1959, in the form of Steiger, "Tests for Comparing
    Elements of a Correlation Matrix", 1980, eq. 7; for metrics: Graham and Baldwin, EMNLP 2014.

    Args:
        first: :math:`r_{12}`, correlation of the first metric with the judgements.
        second: :math:`r_{13}`, correlation of the second metric with the judgements.
        between: :math:`r_{23}`, correlation of the two metrics.
        rows: Number :math:`N` of rows, at least 4.

    Returns:
        The test. NaN if a correlation is NaN, or the metrics are equal up to scale.

    Raises:
        ValueError: If a correlation lies outside [-1, 1] or there are fewer than four rows.

    Example:
        >>> t, p = williams_test(0.4, 0.5, 0.1, 103)
        >>> round(t, 2), round(p, 2)
        (-0.89, 0.37)
    """
    if rows < 4:
        raise ValueError(f"rows must be at least 4, got {rows}")
    for name, value in (("first", first), ("second", second), ("between", between)):
        if abs(value) > 1:
            raise ValueError(f"{name} must lie in [-1, 1], got {value}")
    determinant = 1 - first**2 - second**2 - between**2 + 2 * first * second * between
    mean = (first + second) / 2
    below = 2 * max(determinant, 0.0) * (rows - 1) / (rows - 3) + mean**2 * (1 - between) ** 3
    if math.isnan(below) or below <= 0 or between == 1:
        return WilliamsTest(math.nan, math.nan)
    t = (first - second) * math.sqrt((rows - 1) * (1 + between) / below)
    return WilliamsTest(t, 2 * student_tail(abs(t), rows - 3))


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
    flipped = torch.rand(times, len(right), generator=generator) < 0.5
    return torch.where(flipped, 1 - right, right).mean(1)


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


def permutation_p_value(value: float, found: Tensor, scale: float = 0.0) -> float:
    """Return the two-sided p-value ``(1 + number of draws that are as far from 0 as the value) / (1 + B)``.

    Args:
        value: The statistic.
        found: Its values in ``B`` draws under the null hypothesis; NaN is left out.
        scale: Size of the numbers that the statistic is a difference of. Differences that are equal but for the
            rounding of numbers of this size count as equal.

    Example:
        >>> permutation_p_value(2.0, torch.tensor([-2.0, 0.0, 1.0]))
        0.5
    """
    known = found[~found.isnan()]
    extreme = int((known.abs() >= abs(value) - 1e-12 * max(abs(value), scale)).sum())
    return (1 + extreme) / (1 + len(known))


def student_tail(t: float, degrees: int) -> float:
    r"""Return the upper tail :math:`P(T \ge t)` of Student's distribution.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.

    Args:
        t: The statistic.
        degrees: Degrees of freedom, at least 1.

    Example:
        >>> round(student_tail(2.228, degrees=10), 4)
        0.025
    """
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, degrees + 1, 2):
        total += term
        term *= cosine**2 * (k - 1) / k
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return min(max((1.0 - inside) / 2, 0.0), 1.0)
