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
    # The mean of an empty tensor is NaN.
    means = [part.mean() for part in torch.split(values, sizes)]
    return torch.stack(means) if means else torch.empty(0, dtype=torch.float64)
