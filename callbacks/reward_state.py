"""What rewards learn in training, shared between processes and kept in checkpoints, for Lightning."""

from collections.abc import Sequence
from typing import Any

from rrg_rewards.rewards.base import Reward
from rrg_rewards.rewards.states import load_reward_states, reward_states
from rrg_rewards.utilities.imports import require

# Before the modules that import it by name: where it is missing, this says which extra installs it.
require("lightning.pytorch", extra="lightning")

from lightning.pytorch import Callback  # noqa: E402

__all__ = ["RewardStateCallback"]


class RewardStateCallback(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Shares what rewards learn with all processes after each batch, and saves it with Lightning's checkpoints.

    Rewards learn where they normalise by running statistics (:class:`rrg_rewards.rewards.ComposedReward`) or measure a
    running prior. Without it several processes cannot scale rewards alike, and a resumed run begins them anew.

    Args:
        rewards: The rewards of the run, the very objects that are called.

    Example:
        >>> from rrg_rewards.callbacks import RewardStateCallback
        >>> from rrg_rewards.rewards import make_reward
        >>> RewardStateCallback([make_reward("crg", prior="running")]).state_dict()
        {'crg': {'positives': 0, 'labels': 0}}
    """

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self.rewards = list(rewards)

    def on_train_batch_end(self, *_: Any) -> None:
        """Share what was learned; every process comes here after each batch."""
        for reward in self.rewards:
            reward.synchronize()

    def state_dict(self) -> dict[str, Any]:
        """States of the rewards by name."""
        return reward_states(self.rewards)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            ValueError: If the checkpoint is of other rewards.
        """
        load_reward_states(self.rewards, state_dict)
