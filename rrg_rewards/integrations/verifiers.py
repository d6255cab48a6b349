"""Rewards for verifiers and prime-rl, named in the configuration of a task set.

.. code-block:: toml

    [env.taskset.task.rewards]
    report = {fn = "rrg_rewards.integrations.verifiers:reward", weight = 1.0}

The file that the environment variable ``RRG_REWARDS_CONFIG`` names contains the settings
(:class:`rrg_rewards.integrations.common.settings.TrainerSettings`).
"""

from typing import Any

from rrg_rewards.integrations.common.scoring import get_trainer_reward

__all__ = ["reward"]


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
    trainer_reward.reward.warn_of_unread(getattr(task, "__dict__", {}))
    columns = {column: getattr(task, column) for column in trainer_reward.reward.columns if hasattr(task, column)}
    row = trainer_reward.read_columns(columns)
    numbers = (await trainer_reward.reward_one_async(trace.last_reply, row)).numbers()
    score = numbers.pop("score")
    trace.record_metrics(numbers)
    return score
