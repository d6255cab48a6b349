"""Agreement of predicted sub-scores with annotations, against scipy and scikit-learn."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import accuracy_score

from rrg_rewards.functional import bootstrap_interval, kendall_tau
from rrg_rewards.metrics.preference_accuracy import GradedRewards
from rrg_rewards.schemas.scoring import Criterion, ScoringSystem
from rrg_rewards.training.metrics.report import preference_agreement, with_preference_intervals

SYSTEM = ScoringSystem(
    "own",
    (
        Criterion("omitted", "Is a nodule missing?", "yes_no", weight=3),
        Criterion("invented", "Masses that are not there.", "count", weight=2),
        Criterion("clarity", "How unclear it is.", "grade", range=(0, 4)),
        Criterion("grammar", "Bad grammar.", "yes_no"),
    ),
)


@pytest.fixture
def scores() -> tuple[np.ndarray, np.ndarray]:
    """Predicted and true sub-scores of 30 reports; nobody judged grammar, and clarity only of every other report."""
    generator = np.random.default_rng(0)
    true = np.stack([generator.integers(0, high, 30) for high in (2, 3, 5, 2)], 1).astype(float)
    predicted = true * 0.6 + generator.normal(size=true.shape) * 0.5
    true[::2, 2] = np.nan
    true[:, 3] = np.nan
    return predicted, true


def graded(predicted: np.ndarray, true: np.ndarray) -> GradedRewards:
    factors = torch.tensor([-3.0, -2.0, -1.0, -1.0], dtype=torch.float64)
    columns = (torch.from_numpy(values) * factors for values in (predicted, true))
    return GradedRewards(*columns, torch.arange(len(true)) // 3)


def test_preference_agreement_each_criterion_is_compared_with_its_own_annotation(
    scores: tuple[np.ndarray, np.ndarray],
) -> None:
    predicted, true = scores
    found = preference_agreement(graded(predicted, true), SYSTEM)["criteria"]
    for index, (name, reports) in enumerate({"omitted": 30, "invented": 30, "clarity": 15}.items()):
        known = ~np.isnan(true[:, index])
        ours, theirs = predicted[known, index], true[known, index]
        assert found[name]["reports"] == reports
        assert found[name]["kendall"] == pytest.approx(stats.kendalltau(ours, theirs).statistic)
        assert found[name]["spearman"] == pytest.approx(stats.spearmanr(ours, theirs).statistic)
        if name != "clarity":
            assert found[name]["binary"] == pytest.approx(accuracy_score(theirs >= 1, ours >= 0.5))
            assert found[name]["majority"] == pytest.approx(max((theirs >= 1).mean(), (theirs < 1).mean()))
    assert (found["clarity"]["binary"], found["clarity"]["majority"]) == (None, None)
    missing = {key: found["grammar"][key] for key in ("reports", "kendall", "spearman", "binary", "majority")}
    assert missing == {"reports": 0, "kendall": None, "spearman": None, "binary": None, "majority": None}


def with_intervals(predicted: np.ndarray, true: np.ndarray, num_resamples: int) -> dict[str, Any]:
    both = graded(predicted, true)
    return with_preference_intervals(preference_agreement(both, SYSTEM), both, SYSTEM, num_resamples)


def test_with_preference_intervals_intervals_draw_whole_references(scores: tuple[np.ndarray, np.ndarray]) -> None:
    predicted, true = scores
    found = with_intervals(predicted, true, num_resamples=50)

    def tau(drawn: torch.Tensor) -> torch.Tensor:
        rows = (drawn[:, None] * 3 + torch.arange(3)).flatten().numpy()
        return kendall_tau(torch.from_numpy(predicted[rows, 1]), torch.from_numpy(true[rows, 1]))

    ends = bootstrap_interval(tau, [torch.arange(10)], 50)
    assert found["criteria"]["invented"]["kendall_interval"] == pytest.approx(ends)
    assert "binary_interval" not in found["criteria"]["clarity"]
    assert found["criteria"]["grammar"]["binary_interval"] == [None, None]
    for name in ("accuracy", "kendall", "spearman"):
        assert found[f"{name}_interval"][0] <= found[name] <= found[f"{name}_interval"][1]


def test_with_preference_intervals_a_single_reference_has_no_interval(scores: tuple[np.ndarray, np.ndarray]) -> None:
    found = with_intervals(*(values[:3] for values in scores), num_resamples=5)
    assert found["criteria"]["omitted"]["kendall_interval"] == [None, None]
