"""Scores that keep the labels they were made from."""

import math

import pytest
import torch
from keyword_labeler import KeywordLabeler

from rrg_rewards.metrics import ReportCRG

PREDS = ["edema nodule", "effusion", "edema"]


@pytest.mark.parametrize("prior", [0.1, 0.5, None])
def test_another_prior_gives_what_scoring_with_it_gives(prior: float | None) -> None:
    target = ["edema", "nodule", None]
    scores = ReportCRG(KeywordLabeler(), prior=0.25).score(PREDS, target).with_prior(prior)
    expected = ReportCRG(KeywordLabeler(), prior=prior).score(PREDS, target)
    torch.testing.assert_close(scores.value, expected.value, rtol=0, atol=0, equal_nan=True)
    assert math.isnan(scores.value[2])


def test_prior_zero_is_the_limit_for_normal_references() -> None:
    scores = ReportCRG(KeywordLabeler(), prior=0.25).score(PREDS, ["normal"] * 3)
    assert scores.with_prior(0.0).value.tolist() == pytest.approx([-4 / 3, -2 / 3, -2 / 3])


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_a_prior_that_the_references_contradict_raises(prior: float) -> None:
    scores = ReportCRG(KeywordLabeler(), prior=0.25).score(PREDS, ["edema"] * 3)
    with pytest.raises(ValueError, match="references with other labels"):
        scores.with_prior(prior)
