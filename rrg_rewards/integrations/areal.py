"""Rewards for AReaL: ``reward_fn="rrg_rewards.integrations.areal.reward_fn"`` of a workflow such as ``RLVRWorkflow``.

The file that the environment variable ``RRG_REWARDS_CONFIG`` names contains the settings
(:class:`rrg_rewards.integrations.common.settings.TrainerSettings`).

AReaL calls the function in a pool of processes, each of which has one reward, and replaces calls that time out by 0:
set ``timeout_seconds`` above the time of the slowest judge.
"""

from collections.abc import Sequence
from typing import Any

from rrg_rewards.integrations.common.scoring import get_trainer_reward


def reward_fn(
    prompt: Any,
    completions: str,
    prompt_ids: Sequence[int],  # noqa: ARG001 (AReaL's)
    completion_ids: Sequence[int],
    **columns: Any,
) -> float:
    """Reward one completion.

    Args:
        prompt: Its prompt, which may open the reasoning.
        completions: One completion.
        prompt_ids: Ignored.
        completion_ids: Token ids of the completion.
        columns: Columns of the data set. That of the references may contain a JSON object of all columns.

    Raises:
        ValueError: If the settings are invalid, or a column is missing.
    """
    reward = get_trainer_reward()
    row = {**reward.read_columns(columns), "prompts": prompt, "completion_ids": list(completion_ids)}
    rewarded = reward.reward_one(completions, row)
    return rewarded.numbers()["score"]
