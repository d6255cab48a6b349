"""Macro-averaged CRG as metrics and reward, labels of no abnormality, and what the best constant text earns."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from words import WordLabeler, random_cuts, reports

from rrg_rewards.functional import bootstrap_interval, crg_contributions, crg_multilevel_score, crg_score
from rrg_rewards.metrics import CRGScore, MultiLevelCRGScore, ReportCRG
from rrg_rewards.rewards import CRGReward, make_reward
from rrg_rewards.schemas import CHEXBERT

LABELER = WordLabeler("edema effusion nodule")
TRAIN = ["edema", "edema effusion", "edema", "normal", "nodule effusion"]
texts = st.lists(st.sampled_from(["edema", "effusion", "nodule", "edema nodule", "normal", ""]), min_size=5, max_size=5)


def labels(rows: int, columns: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rare = torch.linspace(0.0, 0.5, columns)
    preds, target = torch.rand(2, rows, columns, generator=generator) < rare
    return preds, target


@pytest.mark.parametrize("min_prevalence", [0.0, 0.3])
def test_batches_equal_all_at_once(min_prevalence: float) -> None:
    preds, target = labels(rows=40)
    metric = CRGScore(5, average="macro", min_prevalence=min_prevalence)
    for rows in random_cuts(40, seed=0):
        metric.update(preds[rows], target[rows])
    expected = crg_score(preds, target, average="macro", min_prevalence=min_prevalence)
    assert torch.equal(metric.compute(), expected)
    assert torch.equal(1 / (3 - 2 * metric.statistics()["youden_j"]), expected)


def test_levels_equal_all_at_once() -> None:
    levels = [labels(30, columns, seed=columns) for columns in (3, 5)]
    metric = MultiLevelCRGScore([3, 5], average="macro")
    for rows in random_cuts(30, seed=1):
        metric.update([preds[rows] for preds, _ in levels], [target[rows] for _, target in levels])
    assert torch.equal(metric.compute(), crg_multilevel_score(*zip(*levels, strict=True), average="macro"))
    statistics = metric.statistics()
    assert statistics["best_constant"].item() == pytest.approx(1 / 3, abs=1e-12)
    assert [name for name in statistics if "/" in name] == ["left_out/level 0, 0", "left_out/level 1, 0"]


def test_labels_without_both_classes_are_counted_and_named() -> None:
    metric = ReportCRG(LABELER, average="macro")
    metric.update(["edema", "nodule"], ["edema", "edema effusion"])
    statistics = metric.statistics()
    assert statistics["left_out"] == 2
    assert [name for name in statistics if name.startswith("left_out/")] == ["left_out/edema", "left_out/nodule"]
    assert metric.label_statistics()["weight"].tolist() == [0, 1, 0]
    assert metric.compute().item() == pytest.approx(1 / 3)


def test_best_constant_of_the_published_score() -> None:
    metric = ReportCRG(LABELER)
    metric.update(["edema", "", "nodule", "", ""], TRAIN)
    best = [
        label
        for label, chosen in zip(metric.labels, metric.label_statistics()["best_constant"].tolist(), strict=True)
        if chosen
    ]
    # "effusion" has exactly the mean prevalence and changes nothing.
    assert best == ["edema"]
    constant = ReportCRG(LABELER)
    constant.update([" ".join(best)] * 5, TRAIN)
    assert constant.compute().item() == pytest.approx(metric.statistics()["best_constant"].item(), rel=1e-12)
    assert "best_constant" not in CRGScore(3).statistics()
    level = MultiLevelCRGScore([3])
    level.update([LABELER(TRAIN)], [LABELER(TRAIN)])
    assert torch.equal(level.statistics()["best_constant"], metric.statistics()["best_constant"])


@settings(max_examples=40, deadline=None)
@given(preds=texts, constant=st.sampled_from(["edema", "effusion nodule", "", "asdf"]), floor=st.sampled_from([0, 0.3]))
def test_mean_reward_is_the_corpus_value_and_constants_earn_a_third(
    preds: list[str], constant: str, floor: float
) -> None:
    reward = make_reward("crg", labeler=LABELER, average="macro", min_prevalence=floor).fit(reference=TRAIN)
    metric = ReportCRG(LABELER, average="macro", min_prevalence=floor)
    metric.update(preds, TRAIN)
    mean = torch.tensor(reward(preds, reference=TRAIN), dtype=torch.float64).mean()
    torch.testing.assert_close(1 / (2 - mean), metric.compute(), rtol=1e-12, atol=1e-12)
    earned = torch.tensor(reward([constant] * 5, reference=TRAIN), dtype=torch.float64).mean()
    assert abs(1 / (2 - earned.item()) - 1 / 3) < 1e-12


def test_running_prior_counts_each_label() -> None:
    reward = CRGReward(LABELER, prior="running", average="macro")
    assert reward.prior is None
    seen: list[str] = []
    for batch in (["normal", "normal"], ["edema", "normal"], ["nodule edema", "effusion"]):
        seen += batch
        preds = ["edema nodule", "effusion"]
        prior = LABELER(seen).double().mean(0)
        known = bool(((prior > 0) & (prior < 1)).any())
        expected = crg_contributions(
            LABELER(preds), LABELER(batch), prior=prior if known else None, average="macro"
        ).tolist()
        assert reward(preds, reference=batch) == expected
        assert reward.prior == tuple(prior.tolist())
    copy = CRGReward(LABELER, prior="running", average="macro")
    copy.load_state_dict(reward.state_dict())
    assert copy.prior == reward.prior == pickle.loads(pickle.dumps(reward)).prior
    with pytest.raises(ValueError, match="1 counts of positives, got 3; it was saved with another average"):
        CRGReward(LABELER, prior="running").load_state_dict(reward.state_dict())


def test_logged_prior_is_the_mean() -> None:
    logged: dict[str, float] = {}
    reward = CRGReward(LABELER, average="macro").fit(reference=TRAIN)
    reward(["edema"], reference=["edema"], log_metric=logged.__setitem__)
    assert logged["crg/prior"] == pytest.approx((3 + 2 + 1) / 15)


def test_a_training_set_without_both_classes_raises() -> None:
    with pytest.raises(ValueError, match="no label has both a positive and a negative reference"):
        CRGReward(LABELER, average="macro").fit(reference=["edema", "edema"])


def test_bootstrap_aggregates_by_label() -> None:
    preds, target = reports(30)
    metric = ReportCRG(average="macro", labeler=WordLabeler(), min_prevalence=0.4)
    scores = metric.score(preds, target)
    metric.add_scores(scores)
    assert torch.equal(scores.aggregate(*scores.sufficient_statistics), metric.compute())
    low, high = bootstrap_interval(scores.aggregate, scores.sufficient_statistics, num_resamples=50)
    assert low < metric.compute() < high


def test_signatures_tell_averages_apart() -> None:
    prior = (0.25, 0.5, 0.75)
    signatures = [
        ReportCRG(LABELER).signature,
        ReportCRG(LABELER, average="macro").signature,
        ReportCRG(LABELER, average="macro", min_prevalence=0.1).signature,
        ReportCRG(LABELER, average="macro", prior=prior).signature,
        CRGScore(3).signature,
        CRGScore(3, average="macro").signature,
        MultiLevelCRGScore([3], average="macro").signature,
        CRGReward(LABELER, average="macro", prior=prior).signature,
    ]
    assert len(set(signatures)) == len(signatures)
    assert "|average:macro|min_prevalence:0.1|" in signatures[2]
    assert "|average:macro|prior:0.25,0.5,0.75|" in signatures[3]
    assert "macro" not in signatures[0]


# --- labels of no abnormality


def test_no_finding_is_left_out() -> None:
    metric = ReportCRG("rules:chexbert")
    assert metric.labels == tuple(label for label in CHEXBERT.labels if label != "No Finding")
    assert "|left_out:No Finding|" in metric.signature
    assert "left_out" not in ReportCRG("rules:ct_rate").signature
    target = ["Clear lungs.", "Clear lungs.", "Large left pleural effusion.", "Cardiomegaly."]
    metric.update(["asdf qwer"] * 4, target)
    assert metric.compute().item() == pytest.approx(1 / 3, abs=1e-12)
    assert metric.score(["Clear lungs."], ["Clear lungs."]).details["tp"].item() == 0


def test_known_labels_keep_the_labelers_columns() -> None:
    metric = ReportCRG(WordLabeler("effusion normal nodule"))
    scores = metric.score(["Effusion."], [None], target_labels=[[0, 1, 1]])
    assert metric.labels == ("effusion", "nodule")
    assert scores.labels == ("effusion", "nodule")
    assert scores.target.tolist() == [[False, True]]
    with pytest.raises(ValueError, match=r"must be 3 values of 0 or 1, one for each of effusion, normal, nodule"):
        metric.score(["Effusion."], [None], target_labels=[[0, 1]])


def test_a_labeler_of_no_abnormality_raises() -> None:
    with pytest.raises(ValueError, match="labeler has no label of an abnormality, only normal"):
        ReportCRG(WordLabeler("normal"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior": [0.2, 0.3, 0.4]}, "prior must be one number"),
        ({"prior": 0.2, "average": "macro"}, "one for each label, for average='macro'"),
        ({"prior": "dataset", "average": "macro"}, "only rewards accept names of priors"),
        ({"average": "weighted"}, "average must be 'micro' or 'macro', got 'weighted'"),
        ({"min_prevalence": 0.1}, "min_prevalence applies to average='macro' only"),
    ],
)
def test_wrong_arguments_raise(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReportCRG(LABELER, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("prior", [np.float32(0.25), torch.tensor(0.25), 0.25])
def test_a_prior_may_be_a_number_of_another_library(prior: float) -> None:
    metric = ReportCRG(LABELER, prior=prior)
    assert (metric.prior, type(metric.prior)) == (0.25, float)
    assert metric.signature == ReportCRG(LABELER, prior=0.25).signature
    with pytest.raises(ValueError, match="one number"):
        ReportCRG(LABELER, prior=np.array([0.1, 0.2, 0.3]))
