"""CT-FineBench above chance: constants by brute force, chance against scores of pairs, saved answers, refusals."""

import pickle
from itertools import combinations
from typing import Any

import pytest
import torch
from exam_judge import ExamJudge
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rrg_rewards.metrics import CTFineBench
from rrg_rewards.metrics.finebench_chance import ChanceScores
from rrg_rewards.questions import get_question_schema
from rrg_rewards.rewards import make_reward
from rrg_rewards.rewards.fitting import fit_reward

STATEMENTS = (
    "Nodule of 8 mm in the left upper lobe.",
    "Nodules in both lungs, the largest less than 100 mm.",
    "Possible consolidation in the right lower lobe.",
    "No pleural effusion.",
    "Large bilateral pleural effusion.",
)
CONSTANTS = [
    " ".join(chosen) or "Normal."
    for number in range(len(STATEMENTS) + 1)
    for chosen in combinations(STATEMENTS, number)
]
SETTINGS: tuple[dict[str, Any], ...] = (
    {"mode": "f1"},
    {"mode": "f1", "grading": "levels"},
    {"mode": "f1", "over_specified": "partial"},
    {"mode": "precision"},
    {"mode": "recall"},
)
references = st.lists(st.sampled_from(CONSTANTS), min_size=1, max_size=12)
LEFT, NORMAL = STATEMENTS[0], "Normal."


def fitted(reports: list[str], **options: Any) -> CTFineBench:
    metric = CTFineBench(chance="dataset", **{"mode": "f1", **options})
    metric.fit_references(reports)
    return metric


def has_questions(reports: list[str], mode: str) -> bool:
    return mode == "precision" or bool(CTFineBench().score(reports, reports).scored.any())


@settings(max_examples=15, deadline=None)
@given(references, st.sampled_from(SETTINGS))
def test_finebench_chance_no_constant_earns_more_than_a_blank(reports: list[str], options: dict[str, Any]) -> None:
    if not has_questions(reports, options["mode"]):
        return
    pairs = [text for text in CONSTANTS for _ in reports], reports * len(CONSTANTS)
    # The oracle scores each pair of a constant and a reference without chance. Rows are constants.
    oracle, found = (
        metric.score(*pairs).value.reshape(len(CONSTANTS), -1)
        for metric in (CTFineBench(**options), fitted(reports, **options))
    )
    normal = oracle[CONSTANTS.index(NORMAL)] == 1 if options["mode"] == "f1" else torch.zeros(len(reports))
    share = normal.double().mean()
    weight = min(1.0, (1 - share) / 8 / share) if share else torch.ones(())
    weighted = torch.where(normal.bool(), weight * (oracle - 1), oracle)
    means = weighted.nanmean(1, keepdim=True)
    torch.testing.assert_close(found, weighted - means.clamp(min=0), equal_nan=True, rtol=0, atol=1e-12)
    earned = found.nanmean(1)
    torch.testing.assert_close(earned, means[:, 0].clamp(max=0), equal_nan=True, rtol=0, atol=1e-12)
    assert not (earned > 1e-12).any()
    if options["mode"] == "f1":
        assert (found[CONSTANTS.index(NORMAL)] == 0).all()


def test_finebench_chance_without_it_a_constant_earns_more_than_a_blank() -> None:
    reports = [STATEMENTS[1], STATEMENTS[1], LEFT, NORMAL]
    plain = [CTFineBench(mode="f1").score([text] * 4, reports).value.mean().item() for text in CONSTANTS]
    assert max(plain) > plain[CONSTANTS.index(NORMAL)] + 0.3


def test_finebench_chance_pays_rare_answers_most_and_a_blank_nothing() -> None:
    effusion = STATEMENTS[4]
    reports = [LEFT] * 6 + [effusion] * 2 + [NORMAL] * 2
    metric = fitted(reports)
    own = metric.score([LEFT, effusion, NORMAL], [LEFT, effusion, NORMAL])
    # An invention loses half of 1 on the two normal references: 1/8 of what can be earned on the eight others.
    charges = [0.6 - 0.1, 0.2 - 0.1]
    assert own.value.tolist() == pytest.approx([1 - charges[0], 1 - charges[1], 0])
    assert own.details["chance"].tolist() == pytest.approx([*charges, 0])
    assert own.details["weight"].tolist() == pytest.approx([1, 1, 0.5])
    assert metric.score([NORMAL, LEFT], [LEFT, NORMAL]).value.tolist() == pytest.approx([0, -0.5 - charges[0]])
    assert (metric.plot_lower_bound, CTFineBench().plot_lower_bound) == (-2.0, 0.0)


def test_finebench_chance_corpus_value_details_and_unscorable_pairs() -> None:
    metric = fitted([LEFT, LEFT, LEFT, NORMAL])
    metric.update([LEFT, None, LEFT], [LEFT, LEFT, NORMAL])
    weight = 3 / 8
    charge = 3 / 4 - weight / 4
    assert metric.compute().item() == pytest.approx(((1 - charge) + (-weight - charge)) / 2)
    assert metric.statistics()["chance"].item() == pytest.approx(charge)
    assert metric.statistics()["weight"].item() == pytest.approx((1 + weight) / 2)
    assert metric.score([None], [LEFT]).value.isnan().all()


def test_finebench_chance_is_fitted_saved_and_restored() -> None:
    setting = {"name": "ct_finebench", "chance": "dataset"}
    reports = [LEFT, STATEMENTS[1], NORMAL]
    found = fit_reward(setting, {"reference": reports})
    again = make_reward("ct_finebench", chance=found["chance"])
    first = make_reward("ct_finebench", chance="dataset")
    assert first.estimated == ("chance",)
    assert "|chance:dataset|" in first.signature
    first.fit(reference=[*reports, None])
    assert first.estimated == ()
    assert first.fitted_options() == {"chance": found["chance"]}
    assert again.signature == first.signature
    assert first.signature != fitted([LEFT, NORMAL]).signature
    copied = pickle.loads(pickle.dumps(first))
    texts = [LEFT, LEFT, "Cardiomegaly."]
    assert first(texts, reference=reports) == again(texts, reference=reports) == copied(texts, reference=reports)
    assert "chance" not in make_reward("ct_finebench").signature


def test_finebench_chance_of_many_references_is_that_of_evenly_spaced_ones() -> None:
    reports = [LEFT, NORMAL, NORMAL, NORMAL] * ChanceScores.most_references
    chance = ChanceScores.of_reports(reports, get_question_schema("ct_rate"), "f1", "overlap", "right")
    assert len(chance) == ChanceScores.most_references
    # Every fourth row.
    assert (chance.mean(LEFT), chance.charge(LEFT)) == (1.0, 1.0)
    mixed = ChanceScores.of_reports(sorted(reports), get_question_schema("ct_rate"), "f1", "overlap", "right")
    expected = pytest.approx(0.25 - 0.75 / 24)
    assert (mixed.mean(LEFT), mixed.charge(LEFT)) == (expected, expected)
    assert isinstance(mixed.scores(LEFT), Tensor)
    assert mixed.scores(LEFT).shape == (ChanceScores.most_references,)


def test_finebench_chance_refuses_what_it_cannot_measure() -> None:
    with pytest.raises(ValueError, match="chance='dataset', which is measured on the training set: call fit"):
        CTFineBench(mode="f1", chance="dataset").score([LEFT], [LEFT])
    with pytest.raises(ValueError, match="chance needs rules for answers, grades: a judge would"):
        CTFineBench(chance="dataset", answerer=ExamJudge(), comparer=ExamJudge())
    with pytest.raises(ValueError, match="needs references to be measured on, got none"):
        fitted([])
    for mode in ("recall", "f1"):
        with pytest.raises(ValueError, match=f"in mode '{mode}' needs references with questions of ct_rate, got none"):
            fitted([NORMAL], mode=mode)
    with pytest.raises(TypeError, match="chance is measured with the questions of the reports, so it allows no column"):
        fitted([LEFT]).score([LEFT], [LEFT], items=[[]])
    saved = fitted([LEFT]).fitted_options()["chance"]
    for damaged in ("data set", saved[:-8], saved[4:], ""):
        with pytest.raises(ValueError, match="must be 'dataset' or the text that fitted_options"):
            CTFineBench(mode="f1", chance=damaged)
    with pytest.raises(ValueError, match=r"measured with another question schema .* than merlin"):
        CTFineBench("merlin", mode="f1", chance=saved)
