"""CT-FineBench: the mean of the grades of each report."""

import math

import pytest
import torch

from rrg_rewards.functional import ct_finebench_score


def test_means_by_report() -> None:
    score = ct_finebench_score(torch.tensor([1.0, 0.0, 0.5, 1.0]), [2, 0, 1, 1])
    assert score.dtype == torch.float64
    assert score[[0, 2, 3]].tolist() == [0.5, 0.5, 1.0]
    assert math.isnan(score[1])
    assert ct_finebench_score([], []).shape == (0,)


@pytest.mark.parametrize(
    ("grades", "counts", "message"),
    [([1.0], [2], "1 grades, but counts add up to 2"), ([1.0], [2, -1], "negative"), ([1.5], [1], "between 0 and 1")],
)
def test_bad_grades_are_told(grades: list[float], counts: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ct_finebench_score(grades, counts)
