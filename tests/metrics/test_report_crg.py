"""CRG of report text: labels and formula, unscorable pairs, known labels, wrong columns."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from words import WordLabeler, random_cuts, reports

from rrg_rewards.functional import crg_contributions, crg_score
from rrg_rewards.metrics import ReportCRG

COUNTERS = ("tp", "fn", "fp", "tn")
LABELER = WordLabeler()


def test_text_equals_labels() -> None:
    preds, target = reports(40)
    metric = ReportCRG(LABELER)
    for rows in random_cuts(40, seed=3):
        metric.update(preds[rows], target[rows])
    assert torch.equal(metric.compute(), crg_score(LABELER(preds), LABELER(target)))
    table = metric.label_statistics()
    assert table["tp"].tolist() == (LABELER(preds) & LABELER(target)).sum(0).tolist()


def test_mean_score_is_the_corpus_value() -> None:
    preds, target = reports(40)
    metric = ReportCRG(LABELER)
    metric.update(preds, target)
    torch.testing.assert_close(1 / (2 - metric.score(preds, target).value.mean()), metric.compute())


def test_prior_is_used_by_score_alone() -> None:
    preds, target = reports(20)
    metric = ReportCRG(LABELER, prior=0.2)
    value = metric.score(preds, target).value
    assert torch.equal(value, crg_contributions(LABELER(preds), LABELER(target), prior=0.2))
    metric.update(preds, target)
    assert torch.equal(metric.compute(), crg_score(LABELER(preds), LABELER(target)))


def test_score_leaves_the_state_alone() -> None:
    metric = ReportCRG(LABELER)
    metric.update(*reports(6))
    before = {name: getattr(metric, name).clone() for name in (*COUNTERS, "num_unscorable")}
    metric.score([None, *reports(6)[0]], ["Effusion.", *reports(6)[1]])
    assert all(torch.equal(getattr(metric, name), state) for name, state in before.items())
    assert metric.update_count == 1


def test_adding_scores_is_updating() -> None:
    metric, other = ReportCRG(LABELER), ReportCRG(LABELER)
    for seed in range(3):
        metric.update([None, *reports(6, seed)[0]], ["", *reports(6, seed)[1]])
        other.compute() if other.update_called else None
        other.add_scores(other.score([None, *reports(6, seed)[0]], ["", *reports(6, seed)[1]]))
    assert torch.equal(metric.compute(), other.compute())
    assert other.update_count == metric.update_count == 3
    assert int(other.num_unscorable) == int(metric.num_unscorable) == 3


def test_unscorable_rows_are_nan_counted_and_left_out() -> None:
    preds = ["Effusion.", None, "Nodule.", "Hernia.", ""]
    target = ["Effusion.", "Nodule.", None, " \n", "Hernia."]
    metric = ReportCRG(LABELER)
    scores = metric.score(preds, target)
    assert scores.scored.tolist() == [True, False, False, False, True]
    assert scores.explanations == {"missed": ["", "", "", "", "hernia"], "invented": [""] * 5}
    assert all(detail.isnan().tolist()[1:4] == [True] * 3 for detail in scores.details.values())
    metric.update(preds, target)
    assert int(metric.num_unscorable) == 3
    kept = [0, 4]
    expected = crg_score(LABELER([preds[row] or "" for row in kept]), LABELER([target[row] or "" for row in kept]))
    assert torch.equal(metric.compute(), expected)


def test_nothing_scorable() -> None:
    metric = ReportCRG(LABELER)
    metric.update([None, "Effusion."], ["Effusion.", None])
    metric.update([], [])
    assert int(metric.num_unscorable) == 2
    with pytest.warns(UserWarning, match="hold no positive label"):
        assert metric.compute().isnan()


def test_details() -> None:
    details = ReportCRG(LABELER).score(["Effusion, nodule.", "Normal."], ["Effusion. Hernia.", "Normal."]).details
    expected = {
        "tp": [1, 0],
        "fn": [1, 0],
        "fp": [1, 0],
        "precision": [0.5, math.nan],
        "recall": [0.5, math.nan],
        "predicted_positives": [2, 0],
    }
    assert details.keys() == expected.keys()
    for name, values in expected.items():
        assert details[name].dtype == torch.float64
        assert details[name].tolist() == pytest.approx(values, nan_ok=True), name


@pytest.mark.parametrize("given", [list, torch.tensor, np.array], ids=["lists", "tensor", "array"])
def test_known_labels_replace_the_reference_text(given: Any) -> None:
    known = given([[1, 0, 0], [0, 1, 0]])
    metric = ReportCRG(LABELER)
    scores = metric.score(["Effusion.", "Hernia."], [None, "Effusion."], target_labels=known)
    assert scores.target.tolist() == [[True, False, False], [False, True, False]]
    assert scores.scored.all()
    metric.update(["Effusion.", "Hernia."], [None, "Effusion."], target_labels=known)
    assert torch.equal(metric.compute(), crg_score(LABELER(["Effusion.", "Hernia."]), torch.as_tensor(known)))


def test_missing_known_labels_are_unscorable() -> None:
    scores = ReportCRG(LABELER).score(
        ["Effusion.", "Hernia."], ["Effusion.", "Hernia."], target_labels=[None, [0, 0, 1]]
    )
    assert scores.scored.tolist() == [False, True]


@pytest.mark.parametrize(
    ("preds", "target", "context", "error", "message"),
    [
        ("a report", ["a"], {}, TypeError, "preds must be a sequence of reports, got one string"),
        (["a"], [3], {}, TypeError, r"target\[0\] must be a report text, got int"),
        (["a", "b"], ["a"], {}, ValueError, "preds and target must have the same length, got 2 and 1"),
        (
            ["a"],
            ["a"],
            {"target_labels": []},
            ValueError,
            "preds and target_labels must have the same length, got 1 and 0",
        ),
        (["a"], ["a"], {"age": [3]}, TypeError, "crg takes no column age; it accepts target_labels"),
        (["a"], ["a"], {"target_labels": [[1, 0]]}, ValueError, r"target_labels\[0\] must be 3 values of 0 or 1"),
        (["a"], ["a"], {"target_labels": [[1, 0, -1]]}, ValueError, r"one for each of effusion, nodule, hernia; got"),
        (["a"], ["a"], {"target_labels": [[1, 0, math.nan]]}, ValueError, "values of 0 or 1"),
    ],
)
def test_wrong_columns_raise(preds: Any, target: Any, context: Any, error: type[Exception], message: str) -> None:
    metric = ReportCRG(LABELER)
    with pytest.raises(error, match=message):
        metric.score(preds, target, **context)
    with pytest.raises(error, match=message):
        metric.update(preds, target, **context)
    assert all(int(getattr(metric, name).sum()) == 0 for name in COUNTERS)


def test_prevalence() -> None:
    metric = ReportCRG(LABELER)
    assert metric.prevalence(["Effusion.", "Normal.", None, ""]) == pytest.approx(1 / 6)
    assert metric.prevalence([None, None], [[1, 1, 0], None]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="has no prevalence"):
        metric.prevalence([None, ""])


def test_clones_share_the_labeler_and_pickles_are_small() -> None:
    metric = ReportCRG(LABELER)
    assert metric.clone().labeler is LABELER
    written = pickle.dumps(metric)
    assert len(written) < 10_000
    assert pickle.loads(written).labeler.labels == LABELER.labels


def test_wrong_known_labels_are_named_by_their_row_in_the_batch() -> None:
    known = [None, [1, 0, 0], [1, 2, 0]]
    with pytest.raises(ValueError, match=r"target_labels\[2\] must be 3 values of 0 or 1"):
        ReportCRG(LABELER).score([None, "Effusion.", "Effusion."], [None] * 3, target_labels=known)


def test_nothing_is_asked_of_a_labeler_before_it_labels() -> None:
    class Heavy(WordLabeler):
        @property
        def signature(self) -> str:
            raise AssertionError("a model would be loaded")

    metric = ReportCRG(Heavy())
    assert metric.name == "crg"
    with pytest.raises(TypeError, match="labeler must be a name, a mapping or a labeler, got int"):
        ReportCRG(3)  # type: ignore[arg-type]


def test_scores_compare_across_batches_with_a_prior_only() -> None:
    assert ReportCRG(LABELER, prior=0.2).compares_across_batches
    assert not ReportCRG(LABELER).compares_across_batches
