"""F1 of labels against scikit-learn."""

import random

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, classification_report, f1_score
from words import WordLabeler

from rrg_rewards.functional import LabelCounts, label_f1
from rrg_rewards.metrics import LabelF1, make_metric
from rrg_rewards.rewards import make_reward

WORDS = ["edema", "effusion", "nodule", "mass"]
LABELER = WordLabeler("edema effusion nodule mass rare")


def reports(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(word for word in WORDS if rng.random() < 0.4) or "normal" for _ in range(count)]


def matrix(texts: list[str]) -> list[list[int]]:
    return [[int(word in text.split()) for word in [*WORDS, "rare"]] for text in texts]


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_label_f1_the_corpus_value_is_that_of_scikit_learn(average: str) -> None:
    preds, target = reports(60, 1), reports(60, 2)
    metric = LabelF1(LABELER, average=average)
    for start in range(0, 60, 7):
        metric.update(preds[start : start + 7], target[start : start + 7])
    expected = f1_score(matrix(target), matrix(preds), average=average, zero_division=0)
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-12)
    scores = metric.score(preds, target)
    assert float(scores.aggregate(*scores.sufficient_statistics)) == float(metric.compute())
    report = classification_report(matrix(target), matrix(preds), output_dict=True, zero_division=0)
    found = metric.statistics()
    assert float(found["micro_f1"]) == pytest.approx(report["micro avg"]["f1-score"])
    assert float(found["macro_f1"]) == pytest.approx(report["macro avg"]["f1-score"])
    for name in ("precision", "recall"):
        assert float(found[name]) == pytest.approx(report["micro avg"][name])
        assert float(found[f"macro_{name}"]) == pytest.approx(report["macro avg"][name])
    accuracy = accuracy_score(np.ravel(matrix(target)), np.ravel(matrix(preds)))
    assert float(found["accuracy"]) == pytest.approx(accuracy)
    assert float(found["macro_accuracy"]) == pytest.approx(accuracy)
    assert metric.label_statistics()["f1"].tolist()[:4] == pytest.approx([report[str(i)]["f1-score"] for i in range(4)])


def test_label_f1_the_score_of_a_pair() -> None:
    scores = LabelF1(LABELER).score(
        ["edema nodule", "normal", "mass", None, ""], ["edema mass", "normal", "normal", "edema", "edema"]
    )
    assert scores.value.nan_to_num(-1).tolist() == [0.5, 1.0, 0.0, -1.0, 0.0]
    assert scores.explanations["missed"] == ["mass", "", "", "", "edema"]
    assert scores.explanations["invented"] == ["nodule", "", "mass", "", ""]


def test_label_f1_chosen_labels() -> None:
    metric = make_metric("label_f1", labeler="rules:chexbert", labels="chexbert_5")
    assert metric.labels == ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
    metric.update(["Fracture. Pleural effusion."], ["Pleural effusion."])
    assert float(metric.compute()) == 1.0
    assert len(make_metric("label_f1", labeler="rules:chexbert").labels) == 14
    assert "|labels:Edema|average:micro|" in LabelF1("rules:chexbert", labels=["Edema"]).signature
    with pytest.raises(ValueError, match="unknown label of the labeler 'edma'; did you mean 'edema'"):
        LabelF1(LABELER, labels=["edma"])
    for labels in ([], ["edema", "edema"]):
        with pytest.raises(ValueError, match="one or more different names"):
            LabelF1(LABELER, labels=labels)
    with pytest.raises(ValueError, match="labels must be 'all', 'chexbert_5' or a list of names, got 'chexbert_14'"):
        LabelF1(LABELER, labels="chexbert_14")
    with pytest.raises(ValueError, match="average must be 'micro' or 'macro', got 'weighted'"):
        LabelF1(LABELER, average="weighted")


def test_label_f1_known_labels_of_references() -> None:
    metric = LabelF1(LABELER, labels=["effusion", "edema"])
    scores = metric.score(["edema", "edema"], [None, None], target_labels=[[1, 1, 0, 0, 0], None])
    assert scores.value.nan_to_num(-1).tolist() == pytest.approx([2 / 3, -1])
    assert scores.labels == ("effusion", "edema")
    with pytest.raises(ValueError, match=r"target_labels\[0\] must be 5 values"):
        metric.score(["edema"], [None], target_labels=[[1]])


def test_label_f1_undefined_values() -> None:
    metric = LabelF1(LABELER)
    metric.update([None], ["edema"])
    assert metric.compute().isnan()
    metric.update(["normal"], ["normal"])
    assert metric.compute().isnan()
    empty = LabelCounts(*torch.zeros(4, 2, dtype=torch.long))
    assert all(label_f1(empty, average).isnan() for average in ("micro", "macro"))
    with pytest.raises(ValueError, match="average must be 'micro' or 'macro', got 'weighted'"):
        label_f1(empty, "weighted")


def test_label_f1_the_reward_is_the_score_of_the_pair() -> None:
    reward = make_reward("label_f1", labeler=LABELER)
    assert reward(completions=["edema", "mass"], reference=["edema", "edema"]) == [1.0, 0.0]
