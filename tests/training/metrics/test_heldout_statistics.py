"""Agreement of predicted totals with annotations on held-out reports, and its intervals."""

import numpy as np
import pytest
import torch

from rrg_rewards.functional import bootstrap_interval, kendall_tau
from rrg_rewards.metrics.preference_accuracy import GradedRewards
from rrg_rewards.training.metrics.report import preference_intervals


@pytest.fixture
def graded() -> GradedRewards:
    """Predicted and true contributions of two criteria to 30 reports, three on each reference."""
    generator = np.random.default_rng(0)
    true = -np.stack([generator.integers(0, high, 30) for high in (2, 3)], 1).astype(float)
    predicted = true * 0.6 + generator.normal(size=true.shape) * 0.5
    return GradedRewards(torch.from_numpy(predicted), torch.from_numpy(true), torch.arange(30) // 3)


def test_preference_intervals_draw_whole_references(graded: GradedRewards) -> None:
    found = preference_intervals(graded, 50)

    def tau(drawn: torch.Tensor) -> torch.Tensor:
        rows = (drawn[:, None] * 3 + torch.arange(3)).flatten()
        return kendall_tau(graded.rewards[rows].sum(1), graded.contributions[rows].sum(1))

    ends = bootstrap_interval(tau, [torch.arange(10)], 50)
    assert found["kendall_interval"] == pytest.approx(ends)
    assert found["accuracy_interval"][0] <= float(graded.accuracy()) <= found["accuracy_interval"][1]


@pytest.mark.parametrize("rows", [3, 30], ids=["one reference", "no total"])
def test_preference_intervals_are_missing_without(graded: GradedRewards, rows: int) -> None:
    contributions = graded.contributions[:rows] if rows == 3 else torch.full_like(graded.contributions, torch.nan)
    found = preference_intervals(GradedRewards(graded.rewards[:rows], contributions, graded.reference[:rows]), 5)
    assert found["kendall_interval"] == found["spearman_interval"] == [None, None]
