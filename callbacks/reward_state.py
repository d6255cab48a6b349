"""Synchronisation of rewards between processes, and their states in Lightning's checkpoints."""

from typing import Any

from rrg_rewards.callbacks.base import StateCallback
from rrg_rewards.utilities.imports import require

# Check first: the error message names the extra that installs Lightning.
require("lightning.pytorch", extra="lightning")

from lightning.pytorch import Callback  # noqa: E402

__all__ = ["RewardStateCallback"]


class RewardStateCallback(StateCallback, Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Synchronises the statistics of rewards after each batch and saves them in Lightning's checkpoints.

    Rewards that normalise (:class:`rrg_rewards.rewards.ComposedReward`) or have a running prior collect statistics.
    Without this callback, processes scale rewards differently, and a resumed run starts with empty statistics.

    Args:
        rewards: The rewards of the run. These must be the objects that are called in training.

    Example:
        >>> from rrg_rewards.callbacks import RewardStateCallback
        >>> from rrg_rewards.rewards import make_reward
        >>> RewardStateCallback([make_reward("crg", prior="running")]).state_dict()
        {'crg': {'positives': 0, 'labels': 0}}
    """

    def on_train_batch_end(self, *_: Any) -> None:
        """Synchronise the rewards; every process runs this hook after each batch."""
        self.synchronize()
