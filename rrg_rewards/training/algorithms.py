"""Algorithms of reinforcement learning by name: a baseline, a loss, and where the divergence is paid."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rrg_rewards.functional.advantages import RewardScale
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["ALGORITHMS", "Algorithm", "Baseline", "get_algorithm"]

Baseline = Literal["group", "leave_one_out", "greedy", "value"]


@dataclass(frozen=True)
class Algorithm:
    """What tells one algorithm from another.

    Args:
        baseline: What a reward is compared with: the mean of its group, of the others in it, the reward of the greedy
            completion, or a value head's prediction.
        scale: What the advantages of a group are divided by.
        penalize_reward: Whether the divergence from the reference is taken off the reward; else it is added to the
            loss.
        loss: Options of :func:`rrg_rewards.functional.policy_loss`.
    """

    baseline: Baseline
    scale: RewardScale = "none"
    penalize_reward: bool = False
    loss: Mapping[str, Any] = field(default_factory=dict)


ALGORITHMS: Mapping[str, Algorithm] = {
    "grpo": Algorithm("group", scale="group"),
    "dr_grpo": Algorithm("group", loss={"aggregation": "constant"}),
    "rloo": Algorithm("leave_one_out", penalize_reward=True, loss={"level": "sequence_product"}),
    "scst": Algorithm("greedy", loss={"aggregation": "token_mean"}),
    "ppo": Algorithm("value", penalize_reward=True, loss={"aggregation": "token_mean"}),
}


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of a name.

    Raises:
        ValueError: For an unknown name, with the nearest known one.

    Example:
        >>> get_algorithm("rloo").baseline
        'leave_one_out'
    """
    if name not in ALGORITHMS:
        raise ValueError(unknown_name_message("algorithm", name, tuple(ALGORITHMS)))
    return ALGORITHMS[name]
