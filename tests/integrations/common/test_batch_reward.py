"""Reward functions of batches, as TRL 0.24 and ms-swift take them."""

import pytest
from trainer_inputs import REWARD

from rrg_rewards.integrations.unsloth import make_reward_funcs


def test_make_batch_rewards_refuses_rewards_of_equal_names() -> None:
    with pytest.raises(ValueError, match="must differ in name, got 'rouge'"):
        make_reward_funcs({"reward": ["rouge", "rouge"]})


def test_make_batch_rewards_refuses_options_of_parts_for_functions_of_their_own() -> None:
    with pytest.raises(ValueError, match="'rouge' has the option weight"):
        make_reward_funcs({"reward": [{"name": "rouge", "weight": 0.5}, "repetition"]})
    parts = [{"name": "rouge", "weight": 0.5}, {"name": "repetition"}]
    (function,) = make_reward_funcs({"reward": {"name": "composed", "parts": parts}})
    assert function(["Edema."], reference=["Edema."]) == [0.5]


def test_batch_reward_refuses_columns_of_another_length() -> None:
    (function,) = make_reward_funcs({"reward": REWARD})
    with pytest.raises(ValueError, match="'reference' has 1 values"):
        function(["a", "b"], reference=["a"])


def test_batch_reward_refuses_a_missing_column() -> None:
    (function,) = make_reward_funcs({"reward": REWARD})
    with pytest.raises(ValueError, match="lacks the column 'reference'"):
        function(["a"], report=["a"])
