"""Scores that contain the labels of both reports."""

import math

import pytest
import torch
from words import WordLabeler

from rrg_rewards.metrics import ReportCRG

LABELER = WordLabeler("edema effusion nodule")

PREDS = ["edema nodule", "effusion", "edema"]


@pytest.mark.parametrize("prior", [0.1, 0.5, None])
def test_another_prior_gives_what_scoring_with_it_gives(prior: float | None) -> None:
    target = ["edema", "nodule", None]
    scores = ReportCRG(LABELER, prior=0.25).score(PREDS, target).with_prior(prior)
    expected = ReportCRG(LABELER, prior=prior).score(PREDS, target)
    torch.testing.assert_close(scores.value, expected.value, rtol=0, atol=0, equal_nan=True)
    assert math.isnan(scores.value[2])


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_a_prior_outside_the_range_raises(prior: float) -> None:
    scores = ReportCRG(LABELER, prior=0.25).score(PREDS, ["edema"] * 3)
    with pytest.raises(ValueError, match=r"prior must lie in \(0, 1\)"):
        scores.with_prior(prior)
