"""Corpus statistics of held-out reports."""

import math

import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from tiny_policy import tiny_model, tiny_tokenizer
from words import WordLabeler

from rrg_rewards.functional import bootstrap_interval, crg_score, crg_score_from_counts, label_counts
from rrg_rewards.recipes._evaluate import (
    Evaluation,
    GreedyPolicy,
    change,
    evaluate_reports,
    greedy_reports,
)
from rrg_rewards.rewards import CRGReward, MetricReward, make_reward

LABELER = WordLabeler("edema effusion nodule")

TARGET = ["edema", "edema effusion", "nodule", "normal", None]
BEFORE = ["", "effusion", "edema", "nodule", "edema"]
AFTER = ["edema", "effusion edema", "nodule", "", "edema"]


def evaluation(reports: list[str]) -> Evaluation:
    reward = CRGReward(LABELER, prior=0.3)
    return Evaluation(reports, {"crg": reward.score(reports, reference=TARGET)})


def test_evaluation_statistics_are_those_of_the_corpus() -> None:
    labeler = LABELER
    summary = evaluation(BEFORE).summary()["crg"]
    expected = crg_score(labeler(BEFORE[:4]), labeler(TARGET[:4]))
    assert summary["crg"]["estimate"] == pytest.approx(float(expected))
    assert summary["precision"]["estimate"] == pytest.approx(1 / 3)
    assert summary["recall"]["estimate"] == pytest.approx(1 / 4)
    assert summary["predicted_positives"]["estimate"] == pytest.approx(3 / 4)
    assert summary["words"]["estimate"] == pytest.approx(3 / 4)
    assert summary["unscorable"] == 1


def test_evaluation_intervals_are_those_of_the_bootstrap_of_reports() -> None:
    target = LABELER(TARGET[:4])
    scored = [torch.stack(label_counts(LABELER(reports[:4]), target, dim=1), 1) for reports in (BEFORE, AFTER)]

    def gain(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        return crg_score_from_counts(*after.sum(0)) - crg_score_from_counts(*before.sum(0))

    def precision(rows: torch.Tensor) -> torch.Tensor:
        return rows[:, 0].sum() / (rows[:, 0].sum() + rows[:, 2].sum())

    found = evaluation(AFTER).summary()["crg"]["precision"]
    assert (found["low"], found["high"]) == pytest.approx(bootstrap_interval(precision, scored[1:], 50))
    found = change(evaluation(BEFORE), evaluation(AFTER))["crg"]["crg"]
    assert (found["low"], found["high"]) == pytest.approx(bootstrap_interval(gain, scored, 50))


def test_evaluation_a_single_report_has_no_interval() -> None:
    single = evaluation(AFTER).scores["crg"].take(torch.tensor([0]))
    found = Evaluation(["edema"], {"crg": single}).summary()["crg"]["recall"]
    assert found["estimate"] == 1
    assert math.isnan(found["low"])
    assert math.isnan(found["high"])


def test_evaluation_macro_crg_has_the_published_one_beside_it() -> None:
    reward = make_reward("crg", labeler=LABELER, average="macro", min_prevalence=0.3).fit(reference=TARGET)
    columns = Dataset.from_dict({"reference": TARGET})
    found = evaluate_reports(BEFORE, [reward], columns).summary()["crg"]
    preds, target = LABELER(BEFORE[:4]), LABELER(TARGET[:4])
    macro = crg_score(preds, target, average="macro", min_prevalence=0.3)
    assert found["crg"]["estimate"] == pytest.approx(float(macro))
    assert found["crg_micro"]["estimate"] == pytest.approx(float(crg_score(preds, target)))
    assert found["crg"]["estimate"] == pytest.approx(1 / (2 - found["score"]["estimate"]))
    assert found["recall"]["estimate"] == pytest.approx(1 / 4)


def test_change_is_paired() -> None:
    before, after = evaluation(BEFORE), evaluation(AFTER)
    changes = change(before, after)["crg"]
    gain = after.summary()["crg"]["crg"]["estimate"] - before.summary()["crg"]["crg"]["estimate"]
    assert changes["crg"]["estimate"] == pytest.approx(gain)
    assert changes["crg"]["low"] > 0
    assert change(before, before)["crg"]["crg"] == {"estimate": 0, "low": 0, "high": 0}


LEFT, RIGHT = (f"Nodule of 8 mm in the {side} upper lobe." for side in ("left", "right"))


def test_evaluation_questions_are_told_by_kind() -> None:
    reward = make_reward("ct_finebench", mode="recall")
    columns = {"reference": [LEFT, LEFT, "Small left pleural effusion.", "Normal chest CT."]}
    before, after = (
        evaluate_texts(reward, reports, columns)
        for reports in ([RIGHT, "", "", ""], [LEFT, RIGHT, "Small left pleural effusion.", ""])
    )
    found = before.summary()["ct_finebench"]
    expected = reward.score(before.reports, **columns)
    assert found["score"]["estimate"] == pytest.approx(expected.value.nanmean().item())
    for name, part in expected.details.items():
        assert found[name]["estimate"] == pytest.approx(part.nanmean().item(), nan_ok=True), name
    # Each part is a mean over the reports that have it: two of three have a question on a number.
    assert found["numeric"]["estimate"] == 0.5
    assert found["unscorable"] == 1
    gained = change(before, after)["ct_finebench"]
    assert gained["numeric"]["estimate"] == 0.5
    assert gained["location"]["estimate"] == pytest.approx(2 / 3)


def evaluate_texts(reward: MetricReward, reports: list[str], columns: dict[str, list[str]]) -> Evaluation:
    return Evaluation(reports, {"ct_finebench": reward.score(reports, **columns)})


@pytest.mark.parametrize("conversational", [True, False])
def test_greedy_reports_a_greedy_report_does_not_depend_on_its_batch(conversational: bool) -> None:
    texts = ["edema", "edema effusion nodule heart lungs", "nodule heart", "normal"]
    prompts = [[{"role": "user", "content": text}] for text in texts] if conversational else texts
    model = tiny_model()
    # Scaled up so that the choice of the next word depends on the prompt.
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(8)
    policy = GreedyPolicy(model, tiny_tokenizer(), Accelerator(cpu=True), max_new_tokens=6, end_token_ids=[2])
    rows = [{"prompt": prompt} for prompt in prompts]
    alone = greedy_reports(policy, rows, batch_size=1)
    assert len(set(alone)) > 1
    assert greedy_reports(policy, rows, batch_size=4) == alone
    assert greedy_reports(policy, rows, batch_size=3) == alone


def test_evaluation_nothing_scorable_is_nan() -> None:
    scores = CRGReward(LABELER, prior=0.3).score(["", ""], reference=[None, None])
    summary = Evaluation(["", ""], {"crg": scores}).summary()["crg"]
    assert math.isnan(summary["crg"]["estimate"])
    assert summary["unscorable"] == 2
