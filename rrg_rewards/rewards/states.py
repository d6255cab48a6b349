"""What the rewards of a run have learned, together."""

from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.rewards.base import Reward

__all__ = ["load_reward_states", "reward_states"]


def reward_states(rewards: Sequence[Reward]) -> dict[str, Any]:
    """States of rewards by name, as plain data.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> reward_states([make_reward("crg", prior="running"), make_reward("rouge")])
        {'crg': {'positives': 0, 'labels': 0}, 'rouge': {}}
    """
    return {reward.__name__: reward.state_dict() for reward in rewards}


def load_reward_states(rewards: Sequence[Reward], states: Mapping[str, Any]) -> None:
    """Give rewards the states back that :func:`reward_states` gave.

    Raises:
        ValueError: If the states are of other rewards.
    """
    names = [reward.__name__ for reward in rewards]
    if sorted(states) != sorted(names):
        raise ValueError(f"the checkpoint's rewards are {', '.join(states)}, those of the run are {', '.join(names)}")
    for reward in rewards:
        reward.load_state_dict(states[reward.__name__])
