"""Confidence intervals of corpus statistics that are made of per-report sums."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Interval", "bootstrap_interval"]


class Interval(NamedTuple):
    """An estimate and its confidence interval."""

    estimate: float
    low: float
    high: float


def bootstrap_interval(
    statistic: Callable[[Tensor], Tensor],
    per_report: Tensor,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    r"""Percentile bootstrap over reports of a statistic of pooled per-report numbers.

    Reports are drawn with replacement :math:`B` times; each draw's rows are summed and the statistic is taken of the
    sum. With :math:`q` the quantile function over draws, the interval is

    .. math::
        \left[ q\left(\tfrac{1 - c}{2}\right), q\left(\tfrac{1 + c}{2}\right) \right]

    Draws for which the statistic is undefined (NaN) are left out. Only sums are resampled, so no report is ever scored
    again.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13.

    Args:
        statistic: Maps sums ``(..., K)`` to values ``(...)``.
        per_report: ``K`` numbers a report, ``(N, K)``, finite; a column of ones gives the number of reports.
        resamples: Number :math:`B` of draws.
        confidence: Coverage :math:`c`, in (0, 1).
        seed: Seed of the draws.

    Returns:
        The statistic of all reports, and the interval; NaN where undefined.

    Raises:
        ValueError: If ``per_report`` is no ``(N, K)`` matrix with at least one row, ``resamples`` is not positive, or
            ``confidence`` lies outside (0, 1).

    Example:
        >>> import torch
        >>> hits = torch.tensor([[1, 1], [0, 1], [1, 1], [1, 1]])
        >>> interval = bootstrap_interval(lambda sums: sums[..., 0] / sums[..., 1], hits)
        >>> interval.estimate, interval.low <= 0.75 <= interval.high
        (0.75, True)
    """
    if per_report.ndim != 2 or not len(per_report):
        raise ValueError(f"per_report must have shape (N, K) with N > 0, got {tuple(per_report.shape)}")
    if resamples < 1:
        raise ValueError(f"resamples must be positive, got {resamples}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    rows = per_report.double().cpu()
    size = len(rows)
    generator = torch.Generator().manual_seed(seed)
    # One draw at a time: memory stays that of the corpus, however many draws.
    sums = torch.stack(
        [
            torch.bincount(torch.randint(size, (size,), generator=generator), minlength=size).double() @ rows
            for _ in range(resamples)
        ]
    )
    levels = torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2], dtype=torch.float64)
    low, high = torch.nanquantile(statistic(sums).double(), levels).tolist()
    return Interval(float(statistic(rows.sum(0))), low, high)
