"""Reinforcement learning algorithms by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rrg_rewards.functional.advantages import RewardScale
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["ALGORITHMS", "Algorithm", "Baseline", "get_algorithm"]

Baseline = Literal["group", "leave_one_out", "greedy", "value"]


@dataclass(frozen=True)
class Algorithm:
    """Baseline, loss and use of the divergence of an algorithm.

    Args:
        baseline: Value that is subtracted from a reward: the mean of the group, the mean of the other rewards in the
            group, the reward of the greedy completion, or the prediction of a value head.
        scale: Divisor of the advantages of a group.
        penalize_reward: Whether the divergence from the reference is subtracted from the reward. Otherwise it is
            added to the loss.
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
    """Return the algorithm with a name.

    Raises:
        ValueError: If the name is unknown; the message names the nearest known one.

    Example:
        >>> get_algorithm("rloo").baseline
        'leave_one_out'
    """
    if name not in ALGORITHMS:
        raise ValueError(unknown_name_message("algorithm", name, tuple(ALGORITHMS)))
    return ALGORITHMS[name]
