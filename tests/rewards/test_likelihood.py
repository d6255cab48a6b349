"""The likelihood of a report under the policy as a reward."""

import math
import pickle

import pytest
import torch
from tiny_policy import save_tiny_policy

from rrg_rewards.rewards import LikelihoodReward


def test_likelihood_is_the_mean_over_tokens(tmp_path):
    reward = LikelihoodReward(str(save_tiny_policy(tmp_path)), batch_size=2)
    texts = ["edema effusion", "normal heart normal lungs report", "nodule", ""]
    found = reward(texts)
    model, tokenizer = reward.language_model.model, reward.language_model.tokenizer
    for text, value in zip(texts[:3], found[:3], strict=True):
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]])
        # The loss of transformers is the mean over predicted tokens.
        assert value == pytest.approx(-model(ids, labels=ids).loss.item(), abs=1e-5)
    assert found[3] == -10.0
    assert reward(list(reversed(texts))) == pytest.approx(list(reversed(found)), abs=1e-5)


def test_likelihood_has_a_floor_and_a_limit(tmp_path):
    folder = str(save_tiny_policy(tmp_path))
    assert LikelihoodReward(folder, floor=-0.01)(["edema"]) == [-0.01]
    short, long = LikelihoodReward(folder, max_length=3), LikelihoodReward(folder)
    assert short(["edema nodule heart lungs"]) == pytest.approx(long(["edema nodule"]))


def test_likelihood_pickles_by_its_name(tmp_path):
    reward = LikelihoodReward(str(save_tiny_policy(tmp_path)))
    before = reward(["edema"])
    copy = pickle.loads(pickle.dumps(reward))
    assert copy(["edema"]) == before
    assert len(pickle.dumps(reward)) < 2000
    assert not math.isnan(before[0])
