"""CT-FineBench: the mean grade of each report's questions (Yuan et al., 2026)."""

from collections.abc import Sequence

import torch
from torch import Tensor


def ct_finebench_score(grades: Tensor | Sequence[float], counts: Sequence[int] | Tensor) -> Tensor:
    r"""Compute the mean grade of each report's questions (CT-FineBench, Section 3.3).

    .. math:: \text{score}_i = \frac{1}{n_i} \sum_{j=1}^{n_i} g_{ij}, \quad g_{ij} \in \{0, 0.5, 1\}

    Higher is better; the range is 0 to 1.

    Args:
        grades: Grades of all questions, ordered by report, ``(sum of counts,)``.
        counts: Number of questions of each report, ``(N,)``.

    Returns:
        ``(N,)`` in double precision; NaN for a report without questions.

    Raises:
        ValueError: If the number of grades is not the sum of the counts, a count is negative, or a grade lies outside
            0 to 1.

    Example:
        >>> ct_finebench_score([1.0, 0.5, 0.0], [2, 0, 1])
        tensor([0.7500,    nan, 0.0000], dtype=torch.float64)
    """
    values = torch.as_tensor(grades, dtype=torch.float64).reshape(-1)
    sizes = [int(count) for count in counts]
    if any(size < 0 for size in sizes):
        raise ValueError(f"counts must not be negative, got {sizes}")
    if sum(sizes) != len(values):
        raise ValueError(f"grades and counts differ: {len(values)} grades, but counts add up to {sum(sizes)}")
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError("grades must lie between 0 and 1")
    numbers = torch.tensor(sizes, dtype=torch.long, device=values.device)
    # repeat_interleave starts all threads also for a few rows, which wait for one another on a busy machine.
    reports = torch.tensor([row for row, size in enumerate(sizes) for _ in range(size)], device=values.device).long()
    # 0 / 0 is NaN.
    return values.new_zeros(len(sizes)).index_add_(0, reports, values) / numbers


def ct_finebench_f1(recall: Tensor, precision: Tensor) -> Tensor:
    r"""Compute the harmonic mean of both sides of CT-FineBench, :math:`2RP/(R+P)`, and 0 if both are 0.

    Args:
        recall: Mean grades of the questions from references, ``(N,)``; NaN without questions.
        precision: Mean grades of the questions from candidates, ``(N,)``; NaN without questions.

    Returns:
        ``(N,)`` in double precision, in [0, 1]. A side without questions has nothing wrong and counts as 1.

    Example:
        >>> ct_finebench_f1(torch.tensor([0.5, float("nan")]), torch.tensor([1.0, float("nan")]))
        tensor([0.6667, 1.0000], dtype=torch.float64)
    """
    sides = torch.stack([recall, precision]).double().nan_to_num(1.0)
    return 2 * sides.prod(0) / sides.sum(0).clamp(min=torch.finfo(torch.float64).tiny)
