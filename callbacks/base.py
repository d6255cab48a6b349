"""Base classes of the callbacks for Lightning and of those for the trainers of transformers and TRL."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.rewards.base import Reward
from rrg_rewards.watch.reward_watch import RewardWatch
from rrg_rewards.watch.session import WatchSession

__all__ = ["StateCallback", "WatchCallback"]


class StateCallback:
    """Synchronises the rewards of a run and collects their states.

    Args:
        rewards: The rewards of the run. These must be the objects that the trainer calls.
    """

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self.rewards = list(rewards)

    def synchronize(self) -> None:
        """Synchronise the statistics of the rewards; every process must call this method."""
        for reward in self.rewards:
            reward.synchronize()

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the rewards by name, as plain data."""
        return {reward.__name__: reward.state_dict() for reward in self.rewards}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the states that :meth:`state_dict` returned.

        Raises:
            ValueError: If the states belong to other rewards.
        """
        names = [reward.__name__ for reward in self.rewards]
        if sorted(state_dict) != sorted(names):
            raise ValueError(
                f"the checkpoint's rewards are {', '.join(state_dict)}, those of the run are {', '.join(names)}"
            )
        for reward in self.rewards:
            reward.load_state_dict(state_dict[reward.__name__])


class WatchCallback:
    """Makes the watch of a run; see :class:`rrg_rewards.callbacks.RewardWatchCallback` for the arguments."""

    def __init__(
        self,
        metrics: Sequence[Reward] = (),
        *,
        stop: bool | Collection[str] = False,
        reference_column: str = "reference",
        folder: str | Path | None = None,
        metric_every: int = 1,
        watch: RewardWatch | None = None,
        **options: Any,
    ) -> None:
        if watch is not None and (options or stop):
            raise ValueError("watch: give either a watch, or stop and the options of a watch, not both")
        self.session = WatchSession(
            watch or RewardWatch(stop=stop, **options),
            metrics,
            reference_column=reference_column,
            metric_every=metric_every,
            folder=folder,
        )

    @property
    def watch(self) -> RewardWatch:
        """The watch, with its alarms."""
        return self.session.watch
