"""Accuracy of preferences: equal to loops over pairs, exact over batches; missing annotations are excluded."""

import math
from itertools import combinations

import pytest
import torch
from scipy.stats import kendalltau, spearmanr

from rrg_rewards.data import GradedReport, graded_pairs
from rrg_rewards.metrics.preference_accuracy import PreferenceAccuracy, preference_pairs
from rrg_rewards.schemas import get_scoring_system

GENERATOR = torch.Generator().manual_seed(0)
REFERENCE = torch.randint(0, 15, (60,), generator=GENERATOR)
SCORES = torch.randint(0, 3, (60, 3), generator=GENERATOR).float()
CONTRIBUTIONS = -SCORES
REWARDS = CONTRIBUTIONS + torch.randn(60, 3, generator=GENERATOR)


def expected(rewards: torch.Tensor, contributions: torch.Tensor, reference: torch.Tensor) -> dict[str, list[bool]]:
    """Whether each pair is ordered correctly, for the total and for each criterion."""
    found: dict[str, list[bool]] = {"total": [], "a": [], "b": [], "c": []}
    for i, j in combinations(range(len(rewards)), 2):
        known = [k for k in range(3) if not contributions[i, k].isnan() and not contributions[j, k].isnan()]
        margin = sum(float(contributions[i, k] - contributions[j, k]) for k in known)
        if reference[i] != reference[j] or margin == 0:
            continue
        found["total"].append(sum(float(rewards[i, k] - rewards[j, k]) for k in known) * margin > 0)
        for k in known:
            if contributions[i, k] != contributions[j, k]:
                gap = float(rewards[i, k] - rewards[j, k])
                found["abc"[k]].append(gap * float(contributions[i, k] - contributions[j, k]) > 0)
    return found


@pytest.mark.parametrize("annotated", [1.0, 0.7])
def test_preference_accuracy_is_what_a_loop_over_pairs_counts(annotated: float) -> None:
    drop = torch.rand(CONTRIBUTIONS.shape, generator=torch.Generator().manual_seed(1)) > annotated
    contributions = CONTRIBUTIONS.masked_fill(drop, math.nan)
    metric = PreferenceAccuracy(["a", "b", "c"])
    for start in range(0, 60, 7):
        rows = slice(start, start + 7)
        metric.update(REWARDS[rows], contributions[rows], REFERENCE[rows])
    by_loop = expected(REWARDS, contributions, REFERENCE)
    assert len(by_loop["total"]) > 50
    assert float(metric.compute()) == pytest.approx(sum(by_loop["total"]) / len(by_loop["total"]))
    found = metric.statistics()
    for name in "abc":
        assert float(found[f"accuracy_{name}"]) == pytest.approx(sum(by_loop[name]) / len(by_loop[name]))
    whole = ~contributions.isnan().any(1)
    totals = REWARDS[whole].double().sum(1), contributions[whole].sum(1)
    assert float(found["kendall"]) == pytest.approx(kendalltau(*totals).statistic)
    assert float(found["spearman"]) == pytest.approx(spearmanr(*totals).statistic)
    metric.reset()
    assert math.isnan(metric.compute())


def test_preference_accuracy_pairs_are_those_that_are_trained_on() -> None:
    system = get_scoring_system("mrscore")
    scores = torch.randint(0, 2, (60, 7), generator=torch.Generator().manual_seed(2)).tolist()
    reports = [
        GradedReport(f"reference {int(place)}", f"candidate {row}", tuple(scores[row]))
        for row, place in enumerate(REFERENCE)
    ]
    made = {(pair.accepted, pair.rejected) for pair in graded_pairs(reports, system).pairs}
    contributions = torch.tensor([report.contributions(system) for report in reports])
    accepted, rejected = preference_pairs(contributions, REFERENCE)
    ours = {(f"candidate {a}", f"candidate {r}") for a, r in zip(accepted.tolist(), rejected.tolist(), strict=True)}
    assert ours == made
    assert len(accepted) == len(made) > 50


def test_preference_accuracy_a_criterion_that_nobody_judged_is_left_out_of_totals() -> None:
    contributions = torch.cat([CONTRIBUTIONS[:, :2], torch.full((60, 1), math.nan)], 1)
    metric, others = PreferenceAccuracy(["a", "b", "c"]), PreferenceAccuracy(["a", "b"])
    metric.update(REWARDS, contributions, REFERENCE)
    others.update(REWARDS[:, :2], CONTRIBUTIONS[:, :2], REFERENCE)
    assert metric.compute() == others.compute()
    found = metric.statistics()
    assert math.isnan(found.pop("accuracy_c"))
    assert found == others.statistics()


def test_preference_accuracy_a_predicted_tie_is_no_agreement() -> None:
    metric = PreferenceAccuracy(["a"])
    metric.update(torch.zeros(2, 1), torch.tensor([[0.0], [-1.0]]), torch.tensor([0, 0]))
    assert float(metric.compute()) == 0.0


def test_preference_accuracy_wrong_input_is_told() -> None:
    with pytest.raises(ValueError, match="must be distinct names, at least one, got"):
        PreferenceAccuracy(["a", "a"])
    metric = PreferenceAccuracy(["a", "b", "c"])
    with pytest.raises(ValueError, match=r"\(N, 3\) and reference \(N,\), got \(60, 2\), \(60, 3\) and \(60,\)"):
        metric.update(REWARDS[:, :2], CONTRIBUTIONS, REFERENCE)
    with pytest.raises(ValueError, match="rewards must be finite"):
        metric.update(REWARDS / 0, CONTRIBUTIONS, REFERENCE)
    with pytest.raises(ValueError, match="reference must lie from 0"):
        metric.update(REWARDS, CONTRIBUTIONS, REFERENCE - 1)
