"""Rank correlations with correction for ties."""

import torch
from torch import Tensor

__all__ = ["kendall_tau", "spearman_rho"]

# Maximum number of pairs that are compared in one operation; limits the memory.
_PAIRS_AT_ONCE = 2**22


def kendall_tau(preds: Tensor, target: Tensor) -> Tensor:
    r"""Compute Kendall's :math:`\tau_b` of two sequences.

    .. math::
        \tau_b = \frac{C - D}{\sqrt{(P - T_x)(P - T_y)}}

    with :math:`C` concordant and :math:`D` discordant of the :math:`P = N(N-1)/2` pairs of rows, and :math:`T_x`,
    :math:`T_y` pairs that are tied in ``preds`` and in ``target``. Counts are integers; the value does not depend on
    the order of rows. The time grows quadratically in ``N``: 10,000 rows take about a second.

    Args:
        preds: ``(N,)`` numbers.
        target: ``(N,)`` numbers.

    Returns:
        Scalar float64 in [-1, 1]; NaN if one side is constant or there are fewer than two rows.

    Raises:
        ValueError: If the shapes differ, are not one-dimensional, or a value is NaN.

    Example:
        >>> kendall_tau(torch.tensor([0.1, 0.9, 0.8, 2.0]), torch.tensor([0, 1, 1, 3]))
        tensor(0.9129, dtype=torch.float64)
    """
    _check(preds, target)
    size = preds.numel()
    agreement = torch.zeros(3, dtype=torch.int64, device=preds.device)
    rows = max(1, _PAIRS_AT_ONCE // max(size, 1))
    for start in range(0, size, rows):
        # Each pair of rows is counted twice; the factor cancels.
        ours, theirs = (_order(values[start : start + rows], values) for values in (preds, target))
        agreement += torch.stack([(ours * theirs).sum(), ours.abs().sum(), theirs.abs().sum()])
    signed, untied_preds, untied_target = agreement.double()
    return torch.where(
        (untied_preds > 0) & (untied_target > 0), signed / (untied_preds * untied_target).sqrt(), torch.nan
    )


def _order(rows: Tensor, values: Tensor) -> Tensor:
    """Return the sign of each of ``rows`` minus each of ``values``."""
    return (rows[:, None] > values).to(torch.int64) - (rows[:, None] < values).to(torch.int64)


def spearman_rho(preds: Tensor, target: Tensor) -> Tensor:
    r"""Compute Spearman's :math:`\rho` of two sequences: Pearson's correlation of their ranks.

    .. math::
        \rho = \frac{\sum_i (R_i - \bar R)(S_i - \bar S)}{\sqrt{\sum_i (R_i - \bar R)^2 \sum_i (S_i - \bar S)^2}}

    where equal values have the mean of their ranks. Arguments, range, NaN and errors are those of :func:`kendall_tau`.

    Example:
        >>> spearman_rho(torch.tensor([0.1, 0.9, 0.8, 2.0]), torch.tensor([0, 1, 1, 3]))
        tensor(0.9487, dtype=torch.float64)
    """
    _check(preds, target)
    ours, theirs = (_ranks(values) for values in (preds, target))
    ours, theirs = ours - ours.mean(), theirs - theirs.mean()
    spread = ((ours**2).sum() * (theirs**2).sum()).sqrt()
    return torch.where(spread > 0, (ours * theirs).sum() / spread, torch.nan)


def _ranks(values: Tensor) -> Tensor:
    """Return ranks from 1 on, averaged over ties, in float64."""
    _, index, count = torch.unique(values, return_inverse=True, return_counts=True)
    ranks: Tensor = count.cumsum(0).double() - (count - 1) / 2
    return ranks[index]


def _check(preds: Tensor, target: Tensor) -> None:
    if preds.ndim != 1 or preds.shape != target.shape:
        raise ValueError(f"preds and target must both be (N,), got {tuple(preds.shape)} and {tuple(target.shape)}")
    if bool(preds.isnan().any()) or bool(target.isnan().any()):
        raise ValueError("preds and target must not contain NaN; remove unscorable rows")
