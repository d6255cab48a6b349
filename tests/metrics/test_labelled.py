"""Where the labels of both sides come from: signatures and the warning of metrics of labels."""

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from words import WordLabeler

from rrg_rewards.metrics import LabelerWarning, LabelF1, ReportCRG
from rrg_rewards.rewards import CRGReward

LABELER = WordLabeler()
OWN = f"{{{LABELER.signature}}}"
PREDS, TARGET, LABELS = ["Effusion.", "Nodule."], ["Effusion. Hernia.", None], [[1, 0, 1], [0, 1, 0]]

Make = Callable[..., Any]
BOTH = pytest.mark.parametrize("make", [ReportCRG, LabelF1])


@BOTH
def test_labelled_metric_signature_names_the_labeler_of_both_sides(make: Make) -> None:
    metric = make(LABELER)
    assert f"|labeler:{OWN}|" in metric.signature
    before = metric.signature
    metric.update(PREDS[:1], TARGET[:1])
    assert metric.signature == before


@pytest.mark.filterwarnings("ignore::rrg_rewards.metrics.LabelerWarning")
@BOTH
def test_labelled_metric_signature_says_that_reference_labels_are_given(make: Make) -> None:
    metric = make(LABELER)
    metric.update(PREDS, TARGET, target_labels=LABELS)
    assert f"|reference:given|prediction:{OWN}|" in metric.signature
    assert "labeler" not in metric.signature
    named = make(LABELER, reference_labeler="ct_rate")
    named.score(PREDS, TARGET, target_labels=torch.tensor(LABELS))
    assert f"|reference:given by {{ct_rate}}|prediction:{OWN}|" in named.signature
    assert pickle.loads(pickle.dumps(named)).signature == named.signature
    assert named.clone().signature == named.signature


@pytest.mark.filterwarnings("ignore::rrg_rewards.metrics.LabelerWarning")
def test_labelled_metric_signature_is_that_of_the_scores_since_the_last_reset() -> None:
    metric = ReportCRG(LABELER)
    metric.update(PREDS, TARGET, target_labels=LABELS)
    metric.update(PREDS[:1], TARGET[:1])
    assert f"|reference:given,{OWN}|prediction:{OWN}|" in metric.signature
    metric.reset()
    # The value of an epoch is logged after the reset.
    assert "|reference:given," in metric.signature
    metric.update(PREDS[:1], TARGET[:1])
    assert f"|labeler:{OWN}|" in metric.signature
    metric.update([], [], target_labels=[])
    assert "reference:" not in metric.signature


@BOTH
def test_labelled_metric_warns_once_if_two_labelers_made_the_labels(make: Make) -> None:
    metric = make(LABELER)
    message = r"labels of references are given, and those of predictions made by words:.* on 131 of 3,039 validation"
    with pytest.warns(LabelerWarning, match=message):
        metric.update(PREDS, TARGET, target_labels=LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.score(PREDS, TARGET, target_labels=LABELS)
    with pytest.warns(LabelerWarning, match="labels of references are given by ct_rate, and those of predictions"):
        make(LABELER, reference_labeler="ct_rate").update(PREDS, TARGET, target_labels=LABELS)


@BOTH
def test_labelled_metric_says_nothing_if_one_labeler_made_the_labels(make: Make) -> None:
    rules = make("rules:ct_rate", reference_labeler="rules:ct_rate")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(LABELER, reference_labeler=LABELER.signature).update(PREDS, TARGET, target_labels=LABELS)
        make(LABELER).update(PREDS[:1], TARGET[:1])
        rules.update(["Cardiomegaly."], [None], target_labels=[[0] * 18])
    assert "|reference:given by {rules:ct_rate}|prediction:{" in rules.signature


@BOTH
def test_labelled_metric_reads_no_weights_to_compare_names_with_another_labeler(make: Make, monkeypatch) -> None:
    made = []
    monkeypatch.setattr("rrg_rewards.metrics.labelled.get_labeler", lambda labeler: made.append(labeler) or LABELER)
    metric = make(LABELER, reference_labeler="radbert:folder")
    with pytest.warns(LabelerWarning, match="are given by radbert:folder"):
        metric.update(PREDS, TARGET, target_labels=LABELS)
    assert made == [LABELER]


def test_crg_reward_says_in_its_signature_that_reference_labels_are_given_and_does_not_warn() -> None:
    reward = CRGReward(LABELER, label_column="labels", reference_labeler="ct_rate", reference_column=None)
    expected = f"|reference:given by {{ct_rate}}|prediction:{OWN}|"
    assert expected in reward.signature
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reward.fit(labels=LABELS)
        reward(completions=PREDS, labels=LABELS)
    assert expected in reward.signature
    assert f"|labeler:{OWN}|" in CRGReward(LABELER).signature
