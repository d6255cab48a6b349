"""Several references of a report."""

import pytest
import torch
from torchmetrics.functional.text import bleu_score
from words import WordLabeler

from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.metrics import BLEU, ROUGE, CallableMetric, LabelF1, ReportCRG, make_metric, score_references
from rrg_rewards.metrics.judged import JudgedScores

PREDS = ["small left effusion", "normal heart", None, "nodule"]
TARGET = [["effusion", "a small effusion", None], ["heart", " "], ["normal"], [None, ""]]


@pytest.mark.parametrize("name", ["rouge", "chrf"])
def test_score_references_the_best_reference_as_published(name: str) -> None:
    metric = make_metric(name)
    found = score_references(metric, PREDS, TARGET).value
    single = [metric.score(["small left effusion"], [text]).value.item() for text in ("effusion", "a small effusion")]
    assert found[0] == max(single)
    assert found[1] == metric.score(["normal heart"], ["heart"]).value.item()
    assert found.isnan().tolist() == [False, False, True, True]


def test_score_references_bleu_clips_to_all_references() -> None:
    references = ["the small effusion here", "left lung and pleural effusion"]
    found = score_references(BLEU(n_gram=1), ["small left effusion", None], [references, ["a"]]).value
    expected = float(bleu_score(["small left effusion"], [references], 1))
    assert found.nan_to_num(-1).tolist() == [expected, -1]
    best = max(BLEU(n_gram=1).score(["small left effusion"], [text]).value.item() for text in references)
    assert expected > best


def test_score_references_other_metrics_take_the_best_only_if_asked() -> None:
    metric = ReportCRG(WordLabeler("effusion nodule"), prior=0.2)
    with pytest.raises(ValueError, match="crg is defined for one reference; best=True takes"):
        score_references(metric, ["effusion"], [["effusion", "nodule"]])
    found = score_references(metric, ["effusion", "nodule"], [["nodule", "effusion"], ["nodule", "nodule"]], best=True)
    alone = metric.score(["effusion", "nodule"], ["effusion", "nodule"])
    assert torch.equal(found.value, alone.value)
    assert torch.equal(found.target, alone.target)
    assert found.explanations == alone.explanations
    metric.add_scores(found)
    assert float(metric.compute()) == 1.0
    with pytest.raises(ValueError, match="crg depend on the other references; set the option prior to a number"):
        score_references(ReportCRG(), ["a"], [["a"]], best=True)
    scores = score_references(
        LabelF1(WordLabeler("effusion nodule")), ["effusion"], [["nodule", "effusion"]], best=True
    )
    assert scores.value.tolist() == [1.0]


def test_score_references_lower_is_better_context_and_failures() -> None:
    gap = CallableMetric("functions:length_gap", higher_is_better=False)
    assert score_references(gap, ["a b"], [["a b c d", "a"]], best=True).value.tolist() == [1.0]
    old = CallableMetric("functions:older_than")
    found = score_references(old, ["a", "b"], [["a", "b"], ["c"]], best=True, age=torch.tensor([70, 50]))
    assert found.value.tolist() == [1.0, 0.0]
    partial = CallableMetric(lambda preds, refs: [None if ref == "failed" else 1.0 for ref in refs], name="partial")
    assert score_references(partial, ["a"], [["ok", "failed"]], best=True).value.isnan().all()


def test_score_references_a_reference_without_questions_is_left_out() -> None:
    metric = make_metric("ct_finebench")
    reports, without = ["A 5 mm nodule in the right upper lobe."], "The chest was scanned."
    assert metric.score(reports, [without]).value.isnan().all()
    for references in ([without, *reports], [*reports, without]):
        assert score_references(metric, reports, [references], best=True).value.tolist() == [1.0]
    assert score_references(metric, reports, [[without, without]], best=True).value.isnan().all()


def test_score_references_a_reference_on_which_a_judge_failed_may_be_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    crimson, failure = make_metric("crimson"), JudgeFailure("deadline", "no answer")
    scores = JudgedScores(torch.tensor([0.5, float("nan")]), results=("answer", failure))
    monkeypatch.setattr(crimson, "score", lambda *_, **__: scores)
    found = score_references(crimson, ["a"], [["a", "b"]], best=True)
    assert isinstance(found, JudgedScores)
    assert found.results == (failure,)
    assert found.value.isnan().all()


def test_score_references_results_of_a_judge_go_along() -> None:
    crimson = make_metric("crimson")
    reports = ["Small left pleural effusion."]
    found = score_references(crimson, reports, [["Large pneumothorax.", "Small left pleural effusion."]], best=True)
    alone = crimson.score(reports, ["Small left pleural effusion."])
    assert found.value.tolist() == alone.value.tolist()
    assert found.explanations == alone.explanations


def test_score_references_wrong_input() -> None:
    with pytest.raises(TypeError, match=r"target\[0\] must be a list of references, got str"):
        score_references(ROUGE(), ["a"], ["a"])
    with pytest.raises(TypeError, match=r"target\[0\]\[1\] must be a report text, got int"):
        score_references(ROUGE(), ["a"], [["a", 3]])
    with pytest.raises(ValueError, match="preds and target must have the same length, got 1 and 0"):
        score_references(ROUGE(), ["a"], [])
    with pytest.raises(ValueError, match="length_gap has no best reference: set its higher_is_better"):
        score_references(CallableMetric("functions:length_gap", higher_is_better=None), ["a"], [["a"]], best=True)
    for metric in (ROUGE(), BLEU()):
        assert len(score_references(metric, [], [])) == 0
