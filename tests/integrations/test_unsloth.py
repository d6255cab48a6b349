"""Unsloth with TRL 0.24, as it calls its rewards."""

import math
from typing import Any

import pytest
import torch
from trainer_inputs import REFERENCES, REPORTS, REWARD

from rrg_rewards.integrations.unsloth import make_reward_funcs


def trl_0_24_rewards(functions: list[Any], inputs: list[dict[str, Any]], completions: list[Any]) -> torch.Tensor:
    """Call reward functions as TRL 0.24 does: without functions for logging, and without awaiting them."""
    keys = [key for key in inputs[0] if key not in ("prompt", "completion", "completion_ids")]
    columns = {key: [example[key] for example in inputs] for key in keys}
    rewards = torch.zeros(len(inputs), len(functions))
    for place, function in enumerate(functions):
        assert isinstance(function.__name__, str)
        output = function(
            prompts=[one["prompt"] for one in inputs],
            completions=completions,
            completion_ids=[[1, 2]] * len(inputs),
            trainer_state=None,
            **columns,
        )
        output = [torch.nan if reward is None else reward for reward in output]
        rewards[:, place] = torch.tensor(output, dtype=torch.float32)
    return rewards


@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: [{"role": "assistant", "content": text}]])
def test_unsloth_gets_the_rewards_of_the_reward_itself(wrap: Any, expected: list[float | None]) -> None:
    functions = make_reward_funcs({"reward": [REWARD, "repetition"]})
    inputs = [{"prompt": "Report.", "reference": reference} for reference in REFERENCES]
    rewards = trl_0_24_rewards(functions, inputs, [wrap(report) for report in REPORTS])
    assert [function.__name__ for function in functions] == ["crg", "repetition"]
    assert [None if math.isnan(one) else one for one in rewards[:, 0].tolist()] == pytest.approx(expected)


def test_make_reward_funcs_waits_for_a_judge() -> None:
    (function,) = make_reward_funcs({"reward": "trainer_inputs:SlowReward"})
    assert trl_0_24_rewards([function], [{"prompt": ""}], ["Edema."]).tolist() == [[6.0]]
