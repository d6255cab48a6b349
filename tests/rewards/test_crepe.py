import math
import pickle

import pytest
import torch
from tiny_crepe import random_pairs, save_tiny_crepe

from rrg_rewards.metrics import CREPE
from rrg_rewards.rewards import CrepeReward, available_rewards, make_reward
from rrg_rewards.rewards.registry import check_reward_options


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_crepe(tmp_path_factory.mktemp("crepe") / "model")


@pytest.fixture(scope="module")
def batch():
    candidates, references = random_pairs(6, seed=3)
    return {"completions": [*candidates, "normal"], "reference": [*references, None]}


@pytest.fixture(scope="module")
def scores(folder, batch):
    return CREPE(folder).score(batch["completions"], batch["reference"])


def test_crepe_reward_fewer_errors_are_a_higher_reward(folder, batch, scores):
    reward = make_reward("crepe", model=str(folder))

    values = reward(**batch)

    assert isinstance(reward, CrepeReward)
    assert values[-1] is None
    assert values[:-1] == (-scores.value[:-1]).tolist()
    assert len(set(values)) > 3


def test_crepe_reward_an_exponential_reward_lies_between_0_and_1(folder, batch, scores):
    reward = make_reward("crepe", model=str(folder), shape="exponential", tau=3.0)

    values = reward(**batch)

    assert values[-1] is None
    assert values[:-1] == pytest.approx([math.exp(-score / 3) for score in scores.value[:-1].tolist()])
    assert all(0 < value <= 1 for value in values[:-1])


def test_crepe_reward_a_weighted_reward(folder, batch, scores):
    reward = make_reward("crepe", model=str(folder), weights={"omitted_finding": 5.0})

    extra = 4 * scores.details["omitted_finding"]
    assert reward(**batch)[:-1] == pytest.approx((-(scores.value + extra))[:-1].tolist())


def test_crepe_reward_counts_are_logged_by_category(folder, batch, scores):
    logged, told = {}, {}
    reward = CrepeReward(folder, log_explanations=True)

    reward(**batch, log_metric=logged.__setitem__, log_extra=told.__setitem__)

    assert logged.keys() == {f"crepe/{name}" for name in (*scores.details, "unscorable")}
    assert logged["crepe/false_finding"] == pytest.approx(scores.details["false_finding"][:-1].mean().item())
    assert logged["crepe/unscorable"] == pytest.approx(1 / 7)
    assert told.keys() == {"crepe/errors"}


def test_crepe_reward_pickles_small_and_takes_its_settings_along(folder, batch):
    reward = CrepeReward(folder, shape="exponential", tau=0.5, weights={"wrong_severity": 2.0}, name="errors")
    values = reward(**batch)

    written = pickle.dumps(reward)
    again = pickle.loads(written)

    assert len(written) < 20_000
    assert again.__name__ == "errors"
    assert again(**batch) == values


def test_crepe_reward_signature_tells_shapes_apart(folder):
    rewards = [
        CrepeReward(folder),
        CrepeReward(folder, shape="exponential"),
        CrepeReward(folder, shape="exponential", tau=1),
    ]
    assert len({reward.signature for reward in rewards}) == 3
    assert rewards[0].signature.endswith("|sign:-1")
    assert rewards[2].signature.endswith("|shape:exponential|tau:1")


def test_crepe_reward_options_are_checked_by_name_without_a_model():
    assert "crepe" in available_rewards()
    check_reward_options(
        "crepe", model="nowhere/to-be-found", shape="exponential", tau=2.0, weights={}, dtype="bfloat16"
    )
    with pytest.raises(ValueError, match=r"unknown option of reward 'crepe' 'shap'; did you mean 'shape'"):
        check_reward_options("crepe", shap="exponential")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": "square"}, "shape must be 'linear' or 'exponential', got 'square'"),
        ({"tau": 0}, "tau must be positive and finite, got 0"),
        ({"tau": math.inf}, "tau must be positive and finite, got inf"),
        ({"reference_column": None}, "crepe needs a reference_column"),
    ],
)
def test_crepe_reward_settings_without_a_meaning_are_refused(folder, options, message):
    with pytest.raises(ValueError, match=message):
        CrepeReward(folder, **options)


def test_crepe_reward_a_missing_column_is_named(folder):
    with pytest.raises(ValueError, match="reads the column 'reference', which the data set lacks; it has report"):
        CrepeReward(folder)(completions=["a"], report=["a"])


def test_crepe_reward_random_numbers_of_training_stay_the_same(folder, batch):
    torch.manual_seed(0)
    CrepeReward(folder)(**batch)
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))
