"""Rewards for slime: ``--custom-rm-path rrg_rewards.integrations.slime.custom_rm``.

With ``--group-rm``, the function is ``batched_custom_rm``. The settings
(:class:`rrg_rewards.integrations.common.settings.TrainerSettings`) are in the file that the environment variable
``RRG_REWARDS_CONFIG`` names.
"""

from collections.abc import Sequence
from typing import Any

from rrg_rewards.integrations.common.scoring import RewardedCompletion, TrainerReward, get_trainer_reward

__all__ = ["batched_custom_rm", "custom_rm"]


async def custom_rm(args: Any, sample: Any, **options: Any) -> float | dict[str, float]:  # noqa: ARG001 (slime's)
    """Reward one sample.

    Args:
        args: slime's arguments. With ``--reward-key``, the result is a dictionary.
        sample: slime's sample: ``prompt``, ``response``, ``label`` (the reference report, or a JSON object of columns)
            and ``metadata`` with further columns.
        options: Ignored.

    Returns:
        The reward; or ``score``, ``scorable`` (1 or 0) and sub-scores, of which ``--reward-key`` selects one.

    Raises:
        ValueError: If the settings are invalid, or a column is missing.
    """
    reward = get_trainer_reward()
    return _result(args, await reward.reward_one_async(sample.response, _row(reward, sample)))


async def batched_custom_rm(
    args: Any,
    samples: Sequence[Any],
    **options: Any,  # noqa: ARG001 (slime's)
) -> list[float | dict[str, float]]:
    """Reward a group of samples; see :func:`custom_rm`."""
    reward = get_trainer_reward()
    rows = [_row(reward, sample) for sample in samples]
    rewarded = await reward.reward_batch_async([sample.response for sample in samples], rows)
    return [_result(args, one) for one in rewarded]


def _row(reward: TrainerReward, sample: Any) -> dict[str, Any]:
    return reward.read_row(sample.label, {"prompts": getattr(sample, "prompt", None), **(sample.metadata or {})})


def _result(args: Any, rewarded: RewardedCompletion) -> float | dict[str, float]:
    numbers = rewarded.numbers()
    return numbers if getattr(args, "reward_key", None) else numbers["score"]
