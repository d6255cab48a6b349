"""Rewards of CREPE and of ER²Score."""

import pickle

import pytest
import torch
from tiny_crepe import random_pairs, save_tiny_crepe
from tiny_er2score import LORA, save_tiny_er2score

from rrg_rewards.metrics import CREPE, ER2Score
from rrg_rewards.rewards import available_rewards, make_reward

METRICS = {"crepe": CREPE, "er2score": ER2Score}
EXPLAINED = {"crepe": "errors", "er2score": "sub_scores"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {"crepe": str(save_tiny_crepe(root / "crepe")), "er2score": str(save_tiny_er2score(root, lora=LORA))}


@pytest.fixture(scope="module")
def batch():
    candidates, references = random_pairs(6, seed=3)
    return {"completions": [*candidates, "normal"], "reference": [*references, None]}


@pytest.fixture(scope="module", params=METRICS)
def name(request):
    return request.param


@pytest.fixture
def make(name, folders):
    return lambda **options: make_reward(name, model=folders[name], **options)


@pytest.fixture(scope="module")
def scores(name, folders, batch):
    return METRICS[name](folders[name]).score(batch["completions"], batch["reference"])


def test_pair_model_reward_is_the_score_with_its_sign(make, name, batch, scores):
    values = make()(**batch)
    assert values[-1] is None
    sign = -1 if name == "crepe" else 1
    assert values[:-1] == (sign * scores.value[:-1]).tolist()
    assert len(set(values)) > 3


def test_pair_model_reward_of_weighted_sub_scores(make, name, batch, scores):
    values = make(weights={"omitted_finding": 5.0, "wrong_location": 1.0})(**batch)
    omitted, place = scores.details["omitted_finding"], scores.details["wrong_location"]
    # CREPE weighs the other categories by 1, ER²Score by 0.
    expected = scores.value + 4 * omitted if name == "crepe" else 5 * omitted + place
    assert values[:-1] == pytest.approx((-expected)[:-1].tolist())


def test_pair_model_reward_logs_its_sub_scores(make, name, batch, scores):
    logged, told = {}, {}
    make(log_explanations=True)(**batch, log_metric=logged.__setitem__, log_extra=told.__setitem__)
    assert logged.keys() == {f"{name}/{part}" for part in (*scores.details, "unscorable", "extracted", "empty")}
    assert logged[f"{name}/false_finding"] == pytest.approx(scores.details["false_finding"][:-1].mean().item())
    assert logged[f"{name}/unscorable"] == pytest.approx(1 / 7)
    assert told == {f"{name}/{EXPLAINED[name]}": scores.explanations[EXPLAINED[name]]}
    nothing = {}
    assert make()(completions=["a", "b"], reference=[None, ""], log_metric=nothing.__setitem__) == [None, None]
    assert nothing == {f"{name}/unscorable": 1, f"{name}/extracted": 0, f"{name}/empty": 0}


def test_pair_model_reward_pickles_small_and_takes_its_settings_along(make, batch):
    reward = make(weights={"wrong_severity": 2.0}, name="errors")
    values = reward(**batch)
    written = pickle.dumps(reward)
    again = pickle.loads(written)
    assert len(written) < 20_000
    assert (again.__name__, again.signature) == ("errors", reward.signature)
    assert again(**batch) == values


def test_pair_model_reward_options_are_checked_by_name_without_a_model(name):
    assert name in available_rewards()
    with pytest.raises(ValueError, match=f"unknown option of reward '{name}' 'weight'; did you mean 'weights'"):
        make_reward(name, model="nowhere/to-be-found", weight={})


def test_pair_model_reward_a_missing_column_is_named(make):
    with pytest.raises(ValueError, match="reads the column 'reference', which the data set lacks; it has report"):
        make()(completions=["a"], report=["a"])


def test_pair_model_reward_leaves_random_numbers_of_training_the_same(make, batch):
    torch.manual_seed(0)
    make()(**batch)
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))
