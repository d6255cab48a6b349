"""Confidence intervals of corpus values by resampling reports."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["bootstrap_interval"]


def bootstrap_interval(
    statistic: Callable[..., Tensor],
    columns: Sequence[Tensor],
    num_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    r"""Percentile bootstrap interval of a statistic of reports.

    ``N`` reports are drawn with replacement ``num_resamples`` times and the statistic is taken of each draw; the
    interval holds the middle ``confidence`` of the values. Only numbers are drawn: nothing is scored again.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, Chapter 13.

    Args:
        statistic: Takes the resampled columns, one argument each, and gives a scalar.
        columns: What the statistic is made of: tensors with one row for each of ``N`` reports.
        num_resamples: Number of draws.
        confidence: Fraction of draws inside the interval, in (0, 1).
        seed: Seed of the draws: the same seed and columns give the same interval.

    Returns:
        Lower and upper end. Draws for which the statistic is NaN are left out; both ends are NaN if all are, or if
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
    if not columns:
        raise ValueError("columns must hold one tensor at least")
    if num_resamples < 1:
        raise ValueError(f"num_resamples must be positive, got {num_resamples}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise ValueError(f"columns must have the same length, got {lengths}")
    reports = len(columns[0])
    if reports < 2:
        return float("nan"), float("nan")
    generator = torch.Generator().manual_seed(seed)
    values = torch.empty(num_resamples, dtype=torch.float64)
    for draw in range(num_resamples):
        rows = torch.randint(reports, (reports,), generator=generator)
        values[draw] = statistic(*(column[rows] for column in columns))
    tail = (1 - confidence) / 2
    low, high = values.nanquantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high
