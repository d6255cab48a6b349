"""Scores: checks, data frames, and corpus values of repeated and weighted rows."""

import math
import sys
from typing import Any

import pytest
import torch

from rrg_rewards.metrics import (
    LabelF1,
    ReportCRG,
    Scores,
)

TARGET = ["Cardiomegaly.", "Hiatal hernia. Emphysema.", "Normal.", "Pleural effusion. Cardiomegaly."] * 6
ALL = ["Cardiomegaly.", "Emphysema.", "Normal.", "Cardiomegaly."] * 6


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (torch.tensor([1.0, torch.inf]), ValueError, r"value\[1\] of Scores is inf; use NaN for a pair that has no"),
        (torch.tensor([-torch.inf, 0.0]), ValueError, r"value\[0\] of Scores is -inf"),
        (torch.tensor([1, 0]), TypeError, "value of Scores must be a float tensor, got torch.int64"),
        ([1.0, 0.0], TypeError, "value of Scores must be a float tensor, got list"),
        (torch.tensor(1.0), ValueError, r"value of Scores must have shape \(N,\), got \(\)"),
        (torch.ones(2, 1), ValueError, r"value of Scores must have shape \(N,\), got \(2, 1\)"),
    ],
)
def test_scores_that_are_no_scores_raise(values, error, message):
    with pytest.raises(error, match=message):
        Scores(values)


def test_sub_scores_that_are_no_scores_raise():
    value = torch.tensor([0.5, torch.nan])
    with pytest.raises(ValueError, match=r"details\['part'\] of Scores must have shape \(2,\), got \(1,\)"):
        Scores(value, {"part": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"details\['part'\]\[0\] of Scores is inf"):
        Scores(value, {"part": torch.tensor([torch.inf, 0.0])})


def test_scores_as_a_data_frame(monkeypatch):
    pandas = pytest.importorskip("pandas")
    scores = ReportCRG(prior=0.2).score(["Cardiomegaly.", None], ["Cardiomegaly. Hiatal hernia.", "Nodule."])
    frame = scores.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["score", *scores.details, "missed", "invented"]
    assert frame["missed"].tolist() == ["Hiatal hernia", ""]
    assert frame["score"].isna().tolist() == [False, True]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="python -m pip install pandas"):
        scores.to_frame()


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("kind", [ReportCRG, LabelF1])
def test_scores_weighted_corpus_values_are_those_of_repeated_rows(kind: Any, average: str) -> None:
    scores = kind(average=average).score(ALL, TARGET)
    weights = torch.randint(0, 3, (5, 24), generator=torch.Generator().manual_seed(0))
    found = scores.aggregate_weighted(weights, *scores.sufficient_statistics)
    for row, value in zip(weights, found, strict=True):
        repeated = [column.repeat_interleave(row, 0) for column in scores.sufficient_statistics]
        assert float(value) == pytest.approx(float(scores.aggregate(*repeated)))


def test_scores_with_an_aggregate_of_their_own_are_computed_from_repeated_rows() -> None:
    class Worst(Scores):
        def aggregate(self, *sufficient_statistics: torch.Tensor) -> torch.Tensor:
            return sufficient_statistics[0].min()

    scores = Worst(torch.tensor([3.0, 1.0, 2.0]))
    weights = torch.tensor([[1, 1, 1], [2, 0, 1]])
    assert scores.aggregate_weighted(weights, *scores.sufficient_statistics).tolist() == [1, 2]


def test_scores_with_a_corpus_value_of_their_own_have_one_formula() -> None:
    class Deviation(Scores):
        """Standard deviation of the scores, a function of their sums and sums of squares."""

        @property
        def sufficient_statistics(self) -> tuple[torch.Tensor, ...]:
            scored = self.value[self.scored]
            return scored, scored.square()

        def corpus_value(self, num_scored: torch.Tensor, *sums: torch.Tensor) -> torch.Tensor:
            total, squares = sums
            return (squares / num_scored - (total / num_scored).square()).sqrt()

    scores = Deviation(torch.tensor([3.0, math.nan, 1.0, 2.0], dtype=torch.float64))
    assert float(scores.aggregate(*scores.sufficient_statistics)) == pytest.approx((2 / 3) ** 0.5)
    found = scores.aggregate_weighted(torch.tensor([[1, 1, 1], [2, 2, 0]]), *scores.sufficient_statistics)
    assert found.tolist() == pytest.approx([(2 / 3) ** 0.5, 1.0])
