"""Tests of the difference between two systems on the same reports, exact for corpus metrics; Holm."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rrg_rewards.functional.bootstrap import bootstrap_draws, draw_counts, percentile_interval

CorpusStatistic = Callable[..., Tensor]
"""Function of weights ``(B, N)`` and of columns of ``N`` rows that returns the corpus value of each weighting.

A row of weight w counts as w equal rows. The values are ``(B,)``."""

Runs = Sequence[Sequence[Tensor]]
"""For each run of a system, the columns of its ``N`` reports."""

# Maximum number of weights in memory at once.
_WEIGHTS_AT_ONCE = 2**22


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


class PairedBootstrap(NamedTuple):
    """Result of a paired bootstrap.

    Args:
        value: The difference between both systems, first minus second.
        low: Lower end of its interval.
        high: Upper end.
        p_value: Two-sided p-value.
    """

    value: float
    low: float
    high: float
    p_value: float


def weighted_mean(weights: Tensor, values: Tensor) -> Tensor:
    """Compute the mean of ``N`` values for each of ``B`` weightings, a :data:`CorpusStatistic`.

    Args:
        weights: ``(B, N)`` weights.
        values: ``(N,)`` values.

    Returns:
        ``(B,)`` float64.

    Example:
        >>> weighted_mean(torch.tensor([[1, 1], [0, 2]]), torch.tensor([1.0, 3.0]))
        tensor([2., 3.], dtype=torch.float64)
    """
    weights = weights.double()
    return weights @ values.double() / weights.sum(1)


def paired_bootstrap(
    first: Runs,
    second: Runs,
    statistic: CorpusStatistic = weighted_mean,
    *,
    num_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    draws: Iterable[Tensor] | None = None,
) -> PairedBootstrap:
    r"""Compare two systems by resampling of reports.

    ``N`` reports are drawn with replacement, the same for both systems, and the corpus value of the drawn reports is
    computed for each system. With the differences :math:`d_b` of :math:`B` draws and the difference :math:`d` of all
    reports, the interval contains the middle part of the :math:`d_b`, and the p-value is

    .. math::
        p = \frac{1 + \#\{b : |d_b - \bar d| \ge |d|\}}{1 + B}

    The value of a system is the mean over its runs, for example with several seeds. With several runs, each draw also
    draws runs with replacement, so that the interval contains the variance between runs. Few runs understate it.

    Source: Koehn, "Statistical Significance Tests for Machine Translation Evaluation", EMNLP 2004; p-value by the
    shift method of Noreen, "Computer Intensive Methods for Testing Hypotheses", 1989.

    Args:
        first: For each run of the first system, the columns of ``statistic``, with a row for each of ``N`` reports.
        second: The same of the second system, for the same reports in the same order.
        statistic: Corpus value of the columns; default: the mean of one column of scores.
        num_resamples: :math:`B`.
        confidence: Fraction of draws inside the interval, in (0, 1).
        seed: Seed of the draws.
        draws: Drawn rows of each draw, ``(N,)`` each, instead of random ones.

    Returns:
        The test of ``first - second``; NaN if a value is undefined, and an interval of NaN for fewer than two reports.

    Raises:
        ValueError: If a system has no run, numbers of rows differ, or an argument is out of range.

    Example:
        >>> scores = torch.arange(40) % 7
        >>> test = paired_bootstrap([[scores + 1]], [[scores]], num_resamples=99)
        >>> round(test.value, 6), round(test.low, 6), round(test.high, 6), test.p_value
        (1.0, 1.0, 1.0, 0.01)
    """
    rows = _check_runs(first, second)
    one = torch.ones(1, rows, dtype=torch.float64)
    value = float(_run_values(first, statistic, one).mean() - _run_values(second, statistic, one).mean())
    fixed = None if draws is None else list(draws)
    generator = torch.Generator().manual_seed(seed)
    means = [
        drawn_run_means(
            bootstrap_values(runs, statistic, num_resamples=num_resamples, seed=seed, draws=fixed), generator
        )
        for runs in (first, second)
    ]
    return bootstrap_test(value, means[0] - means[1], confidence)


def bootstrap_values(
    runs: Runs,
    statistic: CorpusStatistic = weighted_mean,
    *,
    num_resamples: int = 1000,
    seed: int = 0,
    draws: Iterable[Tensor] | None = None,
) -> Tensor:
    """Compute the corpus value of each run for each draw of reports.

    Args:
        runs: For each run, the columns of ``statistic``.
        statistic: Corpus value of the columns.
        num_resamples: Number of draws.
        seed: Seed of the draws. Equal seeds and numbers of reports give the same draws.
        draws: Drawn rows of each draw, instead of random ones.

    Returns:
        ``(B, R)`` float64, NaN where the value is undefined; empty for fewer than two reports.

    Example:
        >>> bootstrap_values([[torch.tensor([1.0, 2.0])]], draws=[torch.tensor([0, 0]), torch.tensor([0, 1])])
        tensor([[1.0000],
                [1.5000]], dtype=torch.float64)
    """
    rows = _check_runs(runs)
    drawn = bootstrap_draws(rows, num_resamples, seed) if draws is None else draws
    if rows < 2:
        return torch.empty(0, len(runs), dtype=torch.float64)
    found = [_run_values(runs, statistic, weights) for weights in draw_counts(drawn, rows)]
    if not found:
        raise ValueError("draws must contain at least one draw")
    return torch.cat(found)


def drawn_run_means(values: Tensor, generator: torch.Generator) -> Tensor:
    """Return the mean over runs that are drawn with replacement; a single run is its own mean.

    Args:
        values: Result of :func:`bootstrap_values`, ``(B, R)``.
        generator: Source of the draws.

    Returns:
        ``(B,)`` float64.
    """
    runs = values.shape[1]
    if runs == 1:
        return values[:, 0]
    return values.gather(1, torch.randint(runs, values.shape, generator=generator)).mean(1)


def bootstrap_test(value: float, differences: Tensor, confidence: float = 0.95) -> PairedBootstrap:
    """Return interval and p-value of :func:`paired_bootstrap` from the differences of its draws.

    Args:
        value: Difference of all reports.
        differences: Difference of each draw, ``(B,)``; NaN is left out.
        confidence: Fraction of draws inside the interval.
    """
    known = differences[~differences.isnan()]
    if not len(known) or math.isnan(value):
        return PairedBootstrap(value, math.nan, math.nan, math.nan)
    low, high = percentile_interval(known, confidence)
    return PairedBootstrap(value, low, high, permutation_p_value(value, known - known.mean()))


def paired_randomisation(
    first: Runs,
    second: Runs,
    statistic: CorpusStatistic = weighted_mean,
    *,
    num_permutations: int = 10_000,
    seed: int = 0,
    places: Iterable[Tensor] | None = None,
) -> PermutationTest:
    r"""Compare two systems by approximate randomisation: the reports of both are exchanged at random.

    Under the null hypothesis, the outputs for a study are exchangeable between the systems. In each permutation, the
    outputs of both systems for each study are exchanged with probability 1/2, and the difference :math:`d_b` of the
    corpus values is computed again. The p-value is

    .. math::
        p = \frac{1 + \#\{b : |d_b| \ge |d|\}}{1 + B}

    With several runs of a system, for example with several seeds, its value is the mean over runs, and the outputs of
    all runs of both systems for a study are permuted. The p-value then concerns these runs, not others that were not
    made; :func:`paired_bootstrap` also draws runs.

    Source: Noreen, "Computer Intensive Methods for Testing Hypotheses", 1989; Riezler and Maxwell, "On Some Pitfalls in
    Automatic Evaluation and Significance Testing for MT", 2005.

    Args:
        first: For each run of the first system, the columns of ``statistic``, with a row for each of ``N`` reports.
        second: The same of the second system, for the same reports in the same order.
        statistic: Corpus value of the columns; default: the mean of one column of scores.
        num_permutations: :math:`B`.
        seed: Seed of the permutations.
        places: Permutations instead of random ones: for each, ``(R, N)`` with the run whose place the output of each of
            the ``R`` runs of both systems takes.

    Returns:
        The test of ``first - second``; NaN if the difference is undefined.

    Raises:
        ValueError: If a system has no run, numbers of rows differ, or ``num_permutations`` is not positive.

    Example:
        >>> scores = torch.arange(40) % 7
        >>> paired_randomisation([[scores + 1]], [[scores]], num_permutations=99).p_value
        0.01
        >>> paired_randomisation([[scores]], [[scores]], num_permutations=99).p_value
        1.0
    """
    rows = _check_runs(first, second)
    if num_permutations < 1:
        raise ValueError(f"num_permutations must be positive, got {num_permutations}")
    runs = [*first, *second]
    own = torch.arange(len(runs))[:, None].expand(-1, rows)
    value = float(_exchanged_difference(runs, len(first), statistic, own[None]))
    if math.isnan(value):
        return PermutationTest(value, math.nan, math.nan, math.nan)
    if places is None:
        chunks = _random_places(len(runs), rows, num_permutations, seed)
    else:
        chunks = (one[None] for one in places)
    differences = [_exchanged_difference(runs, len(first), statistic, chunk) for chunk in chunks]
    if not differences:
        raise ValueError("places must contain at least one permutation")
    found = torch.cat(differences)
    # Means of many scores round: a permutation that exchanges all reports must count as extreme.
    scale = float(_run_values(runs, statistic, torch.ones(1, rows, dtype=torch.float64)).abs().max())
    return PermutationTest(value, permutation_p_value(value, found, scale), *percentile_interval(found))


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


def holm_correction(p_values: Sequence[float]) -> list[float]:
    r"""Correct p-values for the number of tests, so that the chance of any false alarm keeps its level.

    With the sorted p-values :math:`p_{(1)} \le \dots \le p_{(m)}`,

    .. math::
        \tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1) \, p_{(j)})

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.

    Args:
        p_values: P-values in [0, 1]. NaN stays NaN and is no test.

    Raises:
        ValueError: If a p-value lies outside [0, 1].

    Example:
        >>> holm_correction([0.01, 0.04, 0.03, float("nan")])
        [0.03, 0.06, 0.06, nan]
    """
    known = [place for place, p in enumerate(p_values) if not math.isnan(p)]
    for place in known:
        if not 0 <= p_values[place] <= 1:
            raise ValueError(f"p_values[{place}] must lie in [0, 1], got {p_values[place]}")
    corrected, highest = [math.nan] * len(p_values), 0.0
    for rank, place in enumerate(sorted(known, key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(known) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def _check_runs(*systems: Runs) -> int:
    """Return the number of reports; raise if a system has no run, or numbers of rows differ."""
    if not all(systems) or not all(columns for runs in systems for columns in runs):
        raise ValueError("each system must have at least one run, and each run at least one column")
    lengths = {len(column) for runs in systems for columns in runs for column in columns}
    if len(lengths) > 1:
        raise ValueError(f"all columns must have a row for each report, got {sorted(lengths)} rows")
    (rows,) = lengths
    if not rows:
        raise ValueError("there must be at least one report")
    return rows


def _run_values(runs: Runs, statistic: CorpusStatistic, weights: Tensor) -> Tensor:
    return torch.stack([statistic(weights, *columns).double() for columns in runs], 1)


def _random_places(runs: int, rows: int, times: int, seed: int) -> Iterator[Tensor]:
    """Yield random permutations of the outputs of each report, ``(B, R, N)``, in chunks."""
    generator = torch.Generator().manual_seed(seed)
    at_once = max(1, _WEIGHTS_AT_ONCE // (runs * rows))
    for start in range(0, times, at_once):
        size = min(at_once, times - start)
        if runs == 2:
            exchanged = torch.rand(size, rows, generator=generator) < 0.5
            yield torch.stack([exchanged, ~exchanged], 1)
        else:
            yield torch.rand(size, runs, rows, generator=generator).argsort(1)


def _exchanged_difference(runs: Runs, in_first: int, statistic: CorpusStatistic, places: Tensor) -> Tensor:
    """Return the difference between the systems after each permutation: ``(B,)``."""
    together = [torch.cat(columns) for columns in zip(*runs, strict=True)]
    values = [statistic((places == place).flatten(1).double(), *together) for place in range(len(runs))]
    return torch.stack(values[:in_first]).mean(0) - torch.stack(values[in_first:]).mean(0)
