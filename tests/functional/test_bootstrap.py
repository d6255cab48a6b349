"""Bootstrap intervals over reports."""

import math

import pytest
import torch
from torch import Tensor

from rrg_rewards.functional import bootstrap_interval


def mean(sums: Tensor) -> Tensor:
    return sums[..., 0] / sums[..., 1]


def with_ones(values: Tensor) -> Tensor:
    return torch.stack([values.double(), torch.ones(len(values), dtype=torch.float64)], dim=1)


def test_interval_of_a_mean_is_that_of_the_normal_theory() -> None:
    values = torch.randn(400, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    interval = bootstrap_interval(mean, with_ones(values), resamples=2000)
    half = 1.96 * float(values.std()) / math.sqrt(len(values))
    assert interval.estimate == pytest.approx(float(values.mean()))
    assert interval.low == pytest.approx(interval.estimate - half, abs=0.02)
    assert interval.high == pytest.approx(interval.estimate + half, abs=0.02)


def test_same_seed_same_interval() -> None:
    rows = with_ones(torch.arange(10))
    assert bootstrap_interval(mean, rows, seed=3) == bootstrap_interval(mean, rows, seed=3)
    assert bootstrap_interval(mean, rows, seed=3) != bootstrap_interval(mean, rows, seed=4)


def test_undefined_draws_are_left_out() -> None:
    hits = torch.tensor([[1, 1], [0, 0], [0, 0]])
    assert bootstrap_interval(mean, hits) == (1.0, 1.0, 1.0)


def test_undefined_everywhere_is_nan() -> None:
    assert all(math.isnan(value) for value in bootstrap_interval(mean, torch.zeros(3, 2)))


def test_one_report_has_no_width() -> None:
    assert bootstrap_interval(mean, torch.tensor([[3, 4]])) == (0.75, 0.75, 0.75)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (torch.zeros(3), {}, r"shape \(N, K\)"),
        (torch.zeros(0, 2), {}, r"N > 0, got \(0, 2\)"),
        (torch.zeros(3, 2), {"resamples": 0}, "resamples must be positive"),
        (torch.zeros(3, 2), {"confidence": 1.0}, r"confidence must lie in \(0, 1\)"),
    ],
)
def test_wrong_arguments_raise(rows: Tensor, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(mean, rows, **options)  # type: ignore[arg-type]
