"""Scores: checks, rows, and corpus values of repeated and weighted rows."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from rrg_rewards.judges import JudgeFailure
from rrg_rewards.metrics import LabelF1, ReportCRG, Scores
from rrg_rewards.metrics.cider import CiderScores
from rrg_rewards.metrics.coco import CountedScores
from rrg_rewards.metrics.judged import JudgedScores
from rrg_rewards.metrics.labelled import LabelledScores
from rrg_rewards.rewards.compose import ComposedScores

TARGET = ["Cardiomegaly.", "Hiatal hernia. Emphysema.", "Normal.", "Pleural effusion. Cardiomegaly."] * 6
ALL = ["Cardiomegaly.", "Emphysema.", "Normal.", "Cardiomegaly."] * 6


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (torch.tensor([1.0, torch.inf]), ValueError, r"value\[1\] of Scores is inf"),
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


def scores_of_each_kind() -> list[Scores]:
    value, details = torch.tensor([0.5, 1.0], dtype=torch.float64), {"part": torch.tensor([0.25, 0.75])}
    labels = torch.tensor([[True, False], [True, True]])
    failure = JudgeFailure("malformed", "no JSON")
    labelled = LabelledScores(value, details, preds=labels, target=~labels, labels=("a", "b"))
    return [
        Scores(value, details),
        labelled,
        replace(labelled, outcomes=(None, failure)),
        JudgedScores(value, details, results=("first", failure)),
        CountedScores(value, details, counts=torch.tensor([[1, 2], [3, 4]])),
        CiderScores(value, details, texts=(("a", ["b"]), ("c", ["d"]))),
        ComposedScores(value, details, parts={"rouge": Scores(value, details)}),
    ]


def rows_of(scores: Any) -> list[Any]:
    """Return what each pair has: the values of all fields with one value a pair."""
    if isinstance(scores, Scores):
        names = ("value", "details", *scores._row_fields)
        return [
            *zip(*(rows_of(getattr(scores, name)) for name in names if getattr(scores, name) is not None), strict=True)
        ]
    if isinstance(scores, dict):
        return [*zip(*map(rows_of, scores.values()), strict=True)]
    return scores.tolist() if isinstance(scores, torch.Tensor) else [*scores]


@pytest.mark.parametrize("scores", scores_of_each_kind(), ids=lambda scores: type(scores).__name__)
def test_scores_expand_take_and_joined_keep_all_that_a_pair_has(scores: Scores) -> None:
    first, second = rows_of(scores)
    expanded = scores.expand(torch.tensor([False, True, False, True]))
    assert [rows_of(expanded)[row] for row in (1, 3)] == [first, second]
    assert expanded.scored.tolist() == [False, True, False, True]
    assert expanded.details["part"].isnan().tolist() == [True, False, True, False]
    assert rows_of(expanded.take(torch.tensor([3, 1, 3]))) == [second, first, second]
    assert rows_of(scores.take(torch.tensor([1])).joined([scores, scores])) == [second, first, second, first, second]
    empty = scores.take(torch.tensor([], dtype=torch.long))
    assert empty.expand(torch.tensor([False])).value.isnan().tolist() == [True]


def test_scores_of_pairs_without_a_score_have_no_label_count_or_result() -> None:
    _, _, labelled, judged, counted, cider, composed = (
        scores.expand(torch.tensor([True, False, True])) for scores in scores_of_each_kind()
    )
    assert not labelled.preds[1].any()
    assert not labelled.target[1].any()
    assert labelled.outcomes[1] is judged.results[1] is cider.texts[1] is None
    assert counted.counts[1].tolist() == [0, 0]
    assert counted.counts.dtype == torch.long
    assert composed.parts["rouge"].value[1].isnan()


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
