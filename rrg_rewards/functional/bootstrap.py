"""Bootstrap confidence intervals of corpus values, by resampling of reports."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

# Maximum number of counts of drawn reports in memory at once.
_COUNTS_AT_ONCE = 2**22


def bootstrap_interval(
    statistic: Callable[..., Tensor],
    columns: Sequence[Tensor],
    num_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    r"""Compute the percentile bootstrap interval of a statistic of reports.

    ``N`` reports are drawn with replacement ``num_resamples`` times, and the statistic is computed for each draw. The
    interval contains the middle fraction ``confidence`` of the values. Reports are not scored again.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, Chapter 13.

    Args:
        statistic: Function of the resampled columns, one argument each, that returns a scalar.
        columns: Arguments of the statistic: tensors with one row for each of ``N`` reports.
        num_resamples: Number of draws.
        confidence: Fraction of draws inside the interval, in (0, 1).
        seed: Seed of the draws; equal seeds and columns give equal intervals.

    Returns:
        Lower and upper end. Draws with a NaN statistic are excluded. Both ends are NaN if all draws are NaN, or if
        there are fewer than two reports.

    Raises:
        ValueError: If there is no column, lengths differ, ``num_resamples`` is not positive, or ``confidence`` lies
            outside (0, 1).

    Example:
        >>> import torch
        >>> low, high = bootstrap_interval(torch.mean, [torch.arange(100.0)])
        >>> round(low, 1), round(high, 1)
        (43.5, 55.3)
    """
    return bootstrap_intervals([statistic], columns, num_resamples, confidence, seed)[0]


def bootstrap_intervals(
    statistics: Sequence[Callable[..., Tensor]],
    columns: Sequence[Tensor],
    num_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[tuple[float, float]]:
    """Compute the interval of :func:`bootstrap_interval` of each of several statistics, all from the same draws.

    Args:
        statistics: Functions as in :func:`bootstrap_interval`.
        columns: As in :func:`bootstrap_interval`.
        num_resamples: As in :func:`bootstrap_interval`.
        confidence: As in :func:`bootstrap_interval`.
        seed: As in :func:`bootstrap_interval`.

    Raises:
        ValueError: As :func:`bootstrap_interval`.

    Example:
        >>> import torch
        >>> values = torch.arange(100.0)
        >>> mean, largest = bootstrap_intervals([torch.mean, torch.max], [values])
        >>> mean == bootstrap_interval(torch.mean, [values]), largest[1]
        (True, 99.0)
    """
    if not columns:
        raise ValueError("columns must contain at least one tensor")
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise ValueError(f"columns must have the same length, got {lengths}")
    _check_confidence(confidence)
    draws = bootstrap_draws(lengths[0], num_resamples, seed)
    if lengths[0] < 2:
        return [(float("nan"), float("nan"))] * len(statistics)
    values = torch.empty(len(statistics), num_resamples, dtype=torch.float64)
    for draw, rows in enumerate(draws):
        drawn = [column[rows] for column in columns]
        for place, statistic in enumerate(statistics):
            values[place, draw] = statistic(*drawn)
    return [percentile_interval(one, confidence) for one in values]


def bootstrap_draws(size: int, num_resamples: int, seed: int = 0) -> Iterator[Tensor]:
    """Return an iterator over draws: ``size`` indices with replacement each, ``num_resamples`` times.

    Args:
        size: Number of reports to draw from, and number of indices of a draw.
        num_resamples: Number of draws.
        seed: Seed; equal arguments give equal draws.

    Raises:
        ValueError: If ``num_resamples`` is not positive.

    Example:
        >>> [draw.shape for draw in bootstrap_draws(5, num_resamples=2)]
        [torch.Size([5]), torch.Size([5])]
    """
    if num_resamples < 1:
        raise ValueError(f"num_resamples must be positive, got {num_resamples}")
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(size, (size,), generator=generator) for _ in range(num_resamples))


def draw_counts(draws: Iterable[Tensor], size: int) -> Iterator[Tensor]:
    """Yield how often each draw contains each report, ``(B, size)`` float64, for as many draws as memory permits.

    Args:
        draws: Drawn indices of each draw, all draws of the same length.
        size: Number of reports to draw from.

    Example:
        >>> next(draw_counts([torch.tensor([0, 0]), torch.tensor([0, 1])], size=2))
        tensor([[2., 0.],
                [1., 1.]], dtype=torch.float64)
    """
    remaining = iter(draws)
    while chunk := list(islice(remaining, max(1, _COUNTS_AT_ONCE // size))):
        rows = torch.stack(chunk)
        counts = torch.zeros(len(rows), size, dtype=torch.float64)
        yield counts.scatter_add_(1, rows, torch.ones_like(rows, dtype=torch.float64))


def percentile_interval(values: Tensor, confidence: float = 0.95) -> tuple[float, float]:
    """Return the ends between which the middle fraction ``confidence`` of the values lies.

    Args:
        values: ``(R,)`` values of a statistic, one for each draw; NaN is excluded.
        confidence: Fraction of values between the ends, in (0, 1).

    Returns:
        Lower and upper end; NaN if all values are NaN.

    Raises:
        ValueError: If ``confidence`` lies outside (0, 1).

    Example:
        >>> percentile_interval(torch.arange(101.0), confidence=0.5)
        (25.0, 75.0)
    """
    _check_confidence(confidence)
    tail = (1 - confidence) / 2
    low, high = values.double().nanquantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
