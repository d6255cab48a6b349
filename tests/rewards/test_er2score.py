import pickle

import pytest
import torch
from tiny_crepe import random_pairs
from tiny_er2score import LORA, save_tiny_er2score

from rrg_rewards.metrics import ER2Score
from rrg_rewards.rewards import available_rewards, make_reward
from rrg_rewards.rewards.registry import check_reward_options


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_er2score(tmp_path_factory.mktemp("er2score"), lora=LORA)


@pytest.fixture(scope="module")
def batch():
    candidates, references = random_pairs(6, seed=3)
    return {"completions": [*candidates, "normal"], "reference": [references[0]] * 6 + [None]}


@pytest.fixture(scope="module")
def scores(folder, batch):
    return ER2Score(folder).score(batch["completions"], batch["reference"])


def test_er2score_reward_the_total_is_the_reward(folder, batch, scores):
    values = make_reward("er2score", model=str(folder))(**batch)

    assert values[-1] is None
    assert values[:-1] == scores.value[:-1].tolist()
    assert len(set(values)) > 3


def test_er2score_reward_any_weighting_of_sub_scores_is_a_reward(folder, batch, scores):
    values = make_reward("er2score", model=str(folder), weights={"omitted_finding": 2, "wrong_location": 1})(**batch)

    expected = -(2 * scores.details["omitted_finding"] + scores.details["wrong_location"])
    assert values[:-1] == pytest.approx(expected[:-1].tolist())


def test_er2score_reward_sub_scores_are_logged(folder, batch, scores):
    logged, told = {}, {}
    reward = make_reward("er2score", model=str(folder), log_explanations=True)

    reward(**batch, log_metric=logged.__setitem__, log_extra=told.__setitem__)

    assert logged.keys() == {f"er2score/{name}" for name in (*scores.details, "unscorable")}
    assert logged["er2score/false_finding"] == pytest.approx(scores.details["false_finding"][:-1].mean().item())
    assert logged["er2score/unscorable"] == pytest.approx(1 / 7)
    assert told["er2score/sub_scores"][0].startswith("false finding ")
    assert told["er2score/sub_scores"][-1] == ""


def test_er2score_reward_a_batch_without_a_scorable_row_logs_no_sub_score_and_rewards_nothing(folder):
    logged = {}
    reward = make_reward("er2score", model=str(folder))

    assert reward(completions=["a", "b"], reference=[None, ""], log_metric=logged.__setitem__) == [None, None]
    assert logged == {"er2score/unscorable": 1}


def test_er2score_reward_pickles_small_and_takes_its_settings_along(folder, batch):
    reward = make_reward("er2score", model=str(folder), weights={"wrong_severity": 2.0}, name="graded")
    values = reward(**batch)

    written = pickle.dumps(reward)
    again = pickle.loads(written)

    assert len(written) < 20_000
    assert again.__name__ == "graded"
    assert again.signature == reward.signature
    assert again(**batch) == values


def test_er2score_reward_options_are_checked_by_name_without_a_model():
    assert "er2score" in available_rewards()
    check_reward_options("er2score", model="nowhere/to-be-found", weights={}, dtype="bfloat16", share_prefix=False)
    with pytest.raises(ValueError, match=r"unknown option of reward 'er2score' 'weight'; did you mean 'weights'"):
        check_reward_options("er2score", weight={})


def test_er2score_reward_a_missing_column_is_named(folder):
    with pytest.raises(ValueError, match="reads the column 'reference', which the data set lacks; it has report"):
        make_reward("er2score", model=str(folder))(completions=["a"], report=["a"])


def test_er2score_reward_random_numbers_of_training_stay_the_same(folder, batch):
    torch.manual_seed(0)
    make_reward("er2score", model=str(folder))(**batch)
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))
