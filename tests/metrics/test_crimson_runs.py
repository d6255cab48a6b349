"""CRIMSON with several runs of a judge: means, spreads and failed runs, by hand."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from rrg_rewards.functional import CrimsonEvaluation, CrimsonFinding
from rrg_rewards.judges import OpenAIJudge, RuleJudge
from rrg_rewards.judges.base import Judge, JudgeFailure, JudgeTask
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.metrics.judged import JudgeWarning

MASS = CrimsonFinding("R1", "mass", "urgent")
FALSE = CrimsonFinding("P1", "scar", "urgent")
FAILED = JudgeFailure("malformed", "told to")
# CRIMSON 1, 0 and -A / (1 + A) = -0.5.
FOUND = CrimsonEvaluation((MASS,), (FALSE,), (("R1", "P1"),))
MISSED = CrimsonEvaluation((MASS,), missing_findings=("R1",))
WRONG = CrimsonEvaluation((MASS,), (FALSE,), (), ("P1",), ("R1",))


class Runs(Judge):
    """Returns the scripted results of each run.

    Args:
        results: Results of each run, for the candidates "0", "1", ...
        run: Number of the run.
    """

    signature = "runs"

    def __init__(self, results: Sequence[Sequence[Any]], run: int = 0) -> None:
        self.results, self.run = results, run

    def rerun(self, run: int) -> "Runs":
        return Runs(self.results, run)

    async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        return [self.results[self.run][int(item.candidate)] for item in items]


RESULTS = [
    (FOUND, FOUND, FAILED, FAILED),
    (MISSED, FOUND, WRONG, FAILED),
    (WRONG, FOUND, FAILED, FAILED),
]
PREDS, TARGET = ["0", "1", "2", "3", None], ["mass"] * 5


def score() -> Any:
    with pytest.warns(JudgeWarning, match="failed on 1 of 4 report pairs"):
        return CRIMSON(Runs(RESULTS), runs=3).score(PREDS, TARGET)


def test_scores_and_details_are_means_over_the_runs_that_did_not_fail() -> None:
    scores = score()
    # (1 + 0 - 0.5) / 3, and the standard deviation of 1, 0 and -0.5.
    mean = 0.5 / 3
    spread = math.sqrt(((1 - mean) ** 2 + mean**2 + (0.5 + mean) ** 2) / 2)
    assert scores.value[:3].tolist() == pytest.approx([mean, 1, -0.5])
    assert scores.value[3:].isnan().all()
    assert scores.details["spread"][:2].tolist() == pytest.approx([spread, 0])
    assert scores.details["spread"][2:].isnan().all()
    assert scores.details["failed_runs"][:3].tolist() == [0, 0, 2]
    # Errors of the runs: none, one missing, one missing and one false.
    assert scores.details["errors"][:3].tolist() == pytest.approx([1, 0, 2])
    assert scores.details["weighted_errors"][:3].tolist() == pytest.approx([1, 0, 2])
    assert scores.evaluations == (FOUND, FOUND, WRONG, None, None)
    assert scores.explanations["failure"] == ["", "", "", "malformed: told to", ""]


def test_the_state_counts_failed_runs_and_averages_spreads() -> None:
    metric = CRIMSON(Runs(RESULTS), runs=3)
    with pytest.warns(JudgeWarning):
        metric.update(PREDS[:2] + PREDS[3:], TARGET[:2] + TARGET[3:])
    metric.update(PREDS[2:3], TARGET[2:3])
    counts, means = metric.error_counts(), metric.statistics()
    assert metric.compute().item() == pytest.approx((0.5 / 3 + 1 - 0.5) / 3)
    assert (counts["scored"], counts["unscorable"], counts["failed_malformed"]) == (3, 2, 1)
    # Two of three runs of one pair, and all three of another; the pair without a prediction was not judged.
    assert counts["failed_runs"] == 5
    assert counts["missing_findings"].item() == pytest.approx(2 / 3 + 0 + 1)
    spreads = score().details["spread"]
    assert means["spread"].item() == pytest.approx(spreads.nanmean().item())
    metric.reset()
    assert metric.error_counts()["failed_runs"] == 0


def test_one_run_is_as_before() -> None:
    once = CRIMSON(Runs(RESULTS))
    scores = once.score(PREDS[:2], TARGET[:2])
    assert "spread" not in scores.details
    assert once.counts.dtype == torch.long
    assert "runs" not in once.signature.split("|judge:")[1].split("}")[1]
    assert "|runs:3|" in CRIMSON(Runs(RESULTS), runs=3).signature


@pytest.mark.parametrize(
    ("judge", "runs", "message"),
    [
        (RuleJudge(), 2, "RuleJudge returns the same result in each run"),
        (OpenAIJudge("m"), 2, "runs at temperature 0 request the same answer"),
        (RuleJudge(), 0, "runs must be a positive integer, got 0"),
        (RuleJudge(), 1.5, "runs must be a positive integer, got 1.5"),
    ],
)
def test_errors(judge: Judge, runs: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CRIMSON(judge, runs=runs)
