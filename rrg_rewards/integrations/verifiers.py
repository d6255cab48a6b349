"""Rewards for verifiers and prime-rl, named in the configuration of a task set.

.. code-block:: toml

    [env.taskset.task.rewards]
    report = {fn = "rrg_rewards.integrations.verifiers:reward", weight = 1.0}

The file that the environment variable ``RRG_REWARDS_CONFIG`` names contains the settings
(:class:`rrg_rewards.integrations.common.settings.TrainerSettings`).
"""

from collections.abc import Mapping
from typing import Any

from rrg_rewards.integrations.common.scoring import TrainerReward, get_trainer_reward

__all__ = ["reward", "reward_reply"]


async def reward(task: Any, trace: Any) -> float:
    """Reward the last reply of a trace.

    Args:
        task: Data of the task. Its fields are the columns that the reward reads. That of the references may contain a
            JSON object of all columns.
        trace: The trace; ``scorable`` (1 or 0) and the sub-scores are recorded as its metrics.

    Raises:
        ValueError: If the settings are invalid, or a column is missing.
    """
    trainer_reward = get_trainer_reward()
    columns = {column: getattr(task, column) for column in trainer_reward.reward.columns if hasattr(task, column)}
    return await _reward_last_reply(trainer_reward, trace, trainer_reward.read_columns(columns))


async def reward_reply(trace: Any, columns: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> float:
    """Reward the last reply of a trace with given columns and settings, for the ``@vf.reward`` of a task.

    Args:
        trace: The trace, see :func:`reward`.
        columns: The columns that the reward reads, with the reference.
        settings: See :func:`rrg_rewards.integrations.common.settings.read_settings`.

    Raises:
        ValueError: As :func:`reward`.
    """
    return await _reward_last_reply(get_trainer_reward(settings), trace, columns)


async def _reward_last_reply(trainer_reward: TrainerReward, trace: Any, row: Mapping[str, Any]) -> float:
    numbers = (await trainer_reward.reward_one_async(trace.last_reply, row)).numbers()
    score = numbers.pop("score")
    trace.record_metrics(numbers)
    return score
