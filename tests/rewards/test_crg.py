"""CRG as a reward: priors, identities and logged numbers."""

import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from words import WordLabeler

from rrg_rewards.functional import crg_score
from rrg_rewards.metrics import ReportCRG
from rrg_rewards.rewards import CRGReward, make_reward

LABELER = WordLabeler("edema effusion nodule")

TRAIN = ["edema", "edema effusion", "nodule", "normal", "normal"]
PREDS = ["edema", "effusion", "nodule edema", "", "nodule"]


def test_crg_reward_fitted_prior_makes_the_mean_reward_the_corpus_score() -> None:
    labeler = LABELER
    reward = CRGReward(labeler).fit(reference=TRAIN)
    assert reward.prior == 4 / 15
    rewards = torch.tensor(reward(PREDS, reference=TRAIN), dtype=torch.float64)
    assert rewards.tolist() == ReportCRG(labeler, prior=4 / 15).score(PREDS, TRAIN).value.tolist()
    torch.testing.assert_close(1 / (2 - rewards.mean()), crg_score(labeler(PREDS), labeler(TRAIN)))


def test_crg_reward_fixed_prior_is_not_refitted() -> None:
    reward = CRGReward(LABELER, prior=0.5)
    assert reward.fit(reference=TRAIN).prior == 0.5


def test_crg_reward_unfitted_prior_says_how_to_fit() -> None:
    reward = CRGReward(LABELER, reference_column="impression", label_column="labels")
    with pytest.raises(
        ValueError, match=r'reward\.fit\(impression=dataset\["impression"\], labels=dataset\["labels"\]\)'
    ):
        reward(["edema"], impression=["edema"], labels=[[1, 0, 0]])


@pytest.mark.parametrize("name", ["crg", "recommended"])
def test_fit_says_what_it_needs(name: str) -> None:
    reward = make_reward(name, reference_column="report")
    with pytest.raises(TypeError, match=r"fit\(report=\[\.\.\.\]\)"):
        reward.fit(["Edema."])
    with pytest.raises(ValueError, match="column 'report': all references are blank or missing"):
        reward.fit(report=["", None])


@pytest.mark.parametrize(("train", "missing"), [(["normal"], "positive"), (["edema effusion nodule"], "negative")])
def test_crg_reward_fit_on_one_kind_of_label_raises(train: list[str], missing: str) -> None:
    with pytest.raises(ValueError, match=f"no {missing} label"):
        CRGReward(LABELER).fit(reference=train)


def test_crg_reward_fit_without_the_column_raises() -> None:
    with pytest.raises(ValueError, match="'reference', which the data set lacks; it has report"):
        CRGReward(LABELER).fit(report=["edema"])


def test_crg_reward_fitted_prior_pickles() -> None:
    reward = CRGReward(LABELER).fit(reference=["edema"])
    data = pickle.dumps(reward)
    assert len(data) < 10_000
    assert pickle.loads(data).prior == reward.prior == 1 / 3


def test_crg_reward_label_column_takes_the_place_of_the_text() -> None:
    reward = CRGReward(LABELER, prior=0.3, reference_column=None, label_column="labels")
    by_text = CRGReward(LABELER, prior=0.3)
    labels = LABELER(TRAIN).int().tolist()
    assert reward(PREDS, labels=labels) == by_text(PREDS, reference=TRAIN)
    assert CRGReward(LABELER, reference_column=None, label_column="labels").fit(labels=labels).prior == 4 / 15


def test_crg_reward_neither_column_raises() -> None:
    with pytest.raises(ValueError, match="reference_column or a label_column"):
        CRGReward(LABELER, reference_column=None)
    with pytest.raises(ValueError, match="crg with levels needs a reference_column"):
        CRGReward(reference_column=None, label_column="labels", levels=["abnormality", "side"])


@pytest.mark.parametrize("prior", ["batch", 0.0, 1.0, -0.5])
def test_crg_reward_priors_outside_the_range_raise(prior: float | str) -> None:
    with pytest.raises(ValueError, match="prior must"):
        CRGReward(LABELER, prior=prior)  # type: ignore[arg-type]


def test_crg_reward_sub_scores_are_pooled_over_the_batch() -> None:
    logged: dict[str, float] = {}
    reward = CRGReward(LABELER, prior=0.25)
    reward(["edema nodule", "edema", "x"], reference=["edema", "effusion", None], log_metric=logged.__setitem__)
    assert logged == {
        "crg/tp": 0.5,
        "crg/fn": 0.5,
        "crg/fp": 1.0,
        "crg/predicted_positives": 1.5,
        "crg/precision": pytest.approx(1 / 3),
        "crg/recall": pytest.approx(1 / 2),
        "crg/prior": 0.25,
        "crg/unscorable": pytest.approx(1 / 3),
        "crg/extracted": 0.0,
        "crg/empty": 0.0,
    }


@pytest.mark.parametrize(
    ("pred", "target", "undefined"),
    [
        ("", "normal", {"precision", "recall"}),
        ("edema", "normal", {"recall"}),
        ("", "edema", {"precision"}),
        ("edema", None, {"tp", "fn", "fp", "predicted_positives", "precision", "recall"}),
    ],
)
def test_crg_reward_all_that_is_defined_is_logged(pred: str, target: str | None, undefined: set[str]) -> None:
    logged: dict[str, float] = {}
    CRGReward(LABELER, prior=0.2)([pred], reference=[target], log_metric=logged.__setitem__)
    names = {"tp", "fn", "fp", "predicted_positives", "precision", "recall", "prior"}
    shares = {"unscorable", "extracted", "empty"}
    assert logged.keys() == {f"crg/{name}" for name in (names | shares) - undefined}
    assert not any(map(math.isnan, logged.values()))


def test_crg_reward_signature_tells_the_kind_of_prior() -> None:
    assert "|prior:0.2|sign:+1" in CRGReward(LABELER, prior=0.2).signature
    assert "|prior:None|" in CRGReward(LABELER).signature
    assert f"|prior:{4 / 15}|" in CRGReward(LABELER).fit(reference=TRAIN).signature


MACRO_LABELER = WordLabeler("edema effusion nodule")
MACRO_TRAIN = ["edema", "edema effusion", "edema", "normal", "nodule effusion"]
texts = st.lists(st.sampled_from(["edema", "effusion", "nodule", "edema nodule", "normal", ""]), min_size=5, max_size=5)


@settings(max_examples=40, deadline=None)
@given(preds=texts, constant=st.sampled_from(["edema", "effusion nodule", "", "asdf"]), floor=st.sampled_from([0, 0.3]))
def test_crg_reward_mean_reward_is_the_corpus_value_and_constants_earn_a_third(
    preds: list[str], constant: str, floor: float
) -> None:
    reward = make_reward("crg", labeler=MACRO_LABELER, average="macro", min_prevalence=floor).fit(reference=MACRO_TRAIN)
    metric = ReportCRG(MACRO_LABELER, average="macro", min_prevalence=floor)
    metric.update(preds, MACRO_TRAIN)
    mean = torch.tensor(reward(preds, reference=MACRO_TRAIN), dtype=torch.float64).mean()
    torch.testing.assert_close(1 / (2 - mean), metric.compute(), rtol=1e-12, atol=1e-12)
    earned = torch.tensor(reward([constant] * 5, reference=MACRO_TRAIN), dtype=torch.float64).mean()
    assert abs(1 / (2 - earned.item()) - 1 / 3) < 1e-12


def test_crg_reward_logged_prior_is_the_mean() -> None:
    logged: dict[str, float] = {}
    reward = CRGReward(MACRO_LABELER, average="macro").fit(reference=MACRO_TRAIN)
    reward(["edema"], reference=["edema"], log_metric=logged.__setitem__)
    assert logged["crg/prior"] == pytest.approx((3 + 2 + 1) / 15)


def test_crg_reward_a_training_set_without_both_classes_raises() -> None:
    with pytest.raises(ValueError, match="no label has both a positive and a negative reference"):
        CRGReward(MACRO_LABELER, average="macro").fit(reference=["edema", "edema"])
