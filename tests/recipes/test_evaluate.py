"""Corpus statistics of held-out reports."""

import math

import pytest
import torch
from keyword_labeler import KeywordLabeler

from rrg_rewards.functional import crg_score
from rrg_rewards.recipes._evaluate import Evaluation, _per_report, change
from rrg_rewards.rewards import CRGReward

TARGET = ["edema", "edema effusion", "nodule", "normal", None]
BEFORE = ["", "effusion", "edema", "nodule", "edema"]
AFTER = ["edema", "effusion edema", "nodule", "", "edema"]


def evaluation(reports: list[str]) -> Evaluation:
    reward = CRGReward(KeywordLabeler(), prior=0.3)
    return Evaluation(reports, {"crg": _per_report(reward.score(reports, reference=TARGET), reports)})


def test_statistics_are_those_of_the_corpus() -> None:
    labeler = KeywordLabeler()
    summary = evaluation(BEFORE).summary()["crg"]
    expected = crg_score(labeler(BEFORE[:4]), labeler(TARGET[:4]))
    assert summary["crg"]["estimate"] == pytest.approx(float(expected))
    assert summary["precision"]["estimate"] == pytest.approx(1 / 3)
    assert summary["recall"]["estimate"] == pytest.approx(1 / 4)
    assert summary["predicted_positives"]["estimate"] == pytest.approx(3 / 4)
    assert summary["words"]["estimate"] == pytest.approx(3 / 4)
    assert summary["unscorable"] == 1


def test_change_is_paired() -> None:
    before, after = evaluation(BEFORE), evaluation(AFTER)
    changes = change(before, after)["crg"]
    gain = after.summary()["crg"]["crg"]["estimate"] - before.summary()["crg"]["crg"]["estimate"]
    assert changes["crg"]["estimate"] == pytest.approx(gain)
    assert changes["crg"]["low"] > 0
    assert change(before, before)["crg"]["crg"] == {"estimate": 0, "low": 0, "high": 0}


def test_nothing_scorable_is_nan() -> None:
    rows = torch.full((2, 7), math.nan)
    summary = Evaluation(["", ""], {"crg": rows}).summary()["crg"]
    assert math.isnan(summary["crg"]["estimate"])
    assert summary["unscorable"] == 2
