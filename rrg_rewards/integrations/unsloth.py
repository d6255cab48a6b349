"""Reward functions for Unsloth and TRL up to 0.24, which pass texts, call functions only, and log nothing else.

The extra ``unsloth`` installs a TRL that fits. Later versions of TRL take rewards as they are.
"""

from collections.abc import Mapping
from typing import Any

from rrg_rewards.integrations.common.batch_reward import BatchReward, make_batch_rewards


def make_reward_funcs(settings: Mapping[str, Any] | None = None) -> list[BatchReward]:
    """Make the reward functions for ``GRPOTrainer(reward_funcs=...)``, one for each reward.

    Args:
        settings: Arguments of :func:`rrg_rewards.integrations.common.settings.read_settings`, such as
            ``{"config": "reward.yaml"}``. Default: the settings of the environment variable ``RRG_REWARDS_CONFIG``.

    Raises:
        ValueError: If the settings are invalid.

    Example:
        >>> (reward,) = make_reward_funcs({"reward": {"name": "crg", "prior": 0.2}, "reference_column": "report"})
        >>> reward.__name__
        'crg'
        >>> reward(prompts=["..."], completions=["Cardiomegaly."], report=["Cardiomegaly."], trainer_state=None)
        [0.277...]
    """
    return list(make_batch_rewards(settings).values())
