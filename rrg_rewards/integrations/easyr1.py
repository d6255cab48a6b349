"""Rewards for EasyR1, which loads this file: ``worker.reward.reward_function=PATH:compute_score``.

``worker.reward.reward_function_kwargs`` contains the settings
(:class:`rrg_rewards.integrations.common.settings.TrainerSettings`), or its key ``config`` or the environment variable
``RRG_REWARDS_CONFIG`` names a file of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.integrations.common.scoring import get_trainer_reward

REWARD_NAME = "rrg_rewards"
"""Name of the reward in EasyR1's logs."""

REWARD_TYPE = "batch"
"""EasyR1 calls the function with a batch."""


def compute_score(reward_inputs: Sequence[Mapping[str, Any]], **settings: Any) -> list[dict[str, float]]:
    """Reward a batch of completions.

    Args:
        reward_inputs: For each completion ``response`` and ``ground_truth``, which is the reference report, or a JSON
            object of all columns that the reward reads.
        settings: Settings of the reward.

    Returns:
        For each completion ``overall``, the reward; ``scorable``, 1 or 0; and sub-scores.

    Raises:
        ValueError: If the settings are invalid, or a column is missing.

    Example:
        >>> settings = {"reward": {"name": "crg", "prior": 0.2}, "missing": "mean"}
        >>> inputs = [{"response": "Edema.", "ground_truth": text} for text in ("No effusion.", None)]
        >>> [(scores["overall"], scores["scorable"]) for scores in compute_score(inputs, **settings)]
        [(0.0, 1.0), (0.0, 0.0)]
    """
    reward = get_trainer_reward(settings)
    rows = [reward.read_row(one["ground_truth"]) for one in reward_inputs]
    rewarded = reward.reward_batch([one["response"] for one in reward_inputs], rows)
    return [one.numbers("overall") for one in rewarded]
