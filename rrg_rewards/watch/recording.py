"""Rewards that note what they are called with, since trainers show completions to nobody else."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rrg_rewards.rewards.base import Completion

__all__ = ["RecordedBatch", "RewardRecorder"]

_FAILED = "/failed"


@dataclass
class RecordedBatch:
    """What the rewards of a run were called with between two looks.

    Args:
        completions: ``N`` completions.
        columns: ``N`` values of the columns that were asked for.
        rewards: ``N`` rewards by name.
        judge_failures: On how many completions the judge of a reward failed, by the name it logs under.
    """

    completions: list[Completion] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    rewards: dict[str, list[float | None]] = field(default_factory=dict)
    judge_failures: dict[str, float] = field(default_factory=dict)


class RewardRecorder:
    """Wraps reward functions so that what they are called with, and what they give, can be looked at after a step.

    The public contract of ``reward_funcs`` is all that is used, so any reward function will do, and any trainer that
    takes them. A wrapped reward keeps its name, is a coroutine function if the reward is one, passes on every argument
    and result, and has the reward's other attributes (``columns``, ``signature``, ...).

    Args:
        columns: Columns of the data set to keep beside the completions, where the trainer passes them.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> recorder = RewardRecorder(["reference"])
        >>> (reward,) = recorder.wrap([make_reward("rouge")])
        >>> recorder.active = True
        >>> reward(completions=["Clear lungs."], reference=["Clear lungs."]), reward.__name__
        ([1.0], 'rouge')
        >>> recorder.take()
        RecordedBatch(completions=['Clear lungs.'], columns={'reference': ['Clear lungs.']}, rewards={'rouge': [1.0]},
            judge_failures={})
    """

    def __init__(self, columns: Sequence[str] = ()) -> None:
        self.columns = list(columns)
        self.names: list[str] = []
        self.active = False
        """Whether calls are noted now: an evaluation calls the same rewards, and is none of a watch's business."""
        self._batch = RecordedBatch()

    def wrap(self, rewards: Sequence[Callable[..., Any]]) -> list[Any]:
        """Wrap the reward functions of a run, all at once.

        Raises:
            ValueError: If two have the same name.
        """
        self.names = [str(getattr(reward, "__name__", type(reward).__name__)) for reward in rewards]
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"rewards must differ in name, got {', '.join(self.names)}")
        return [
            (_AsyncRecordedReward if _is_coroutine_function(reward) else _RecordedReward)(reward, name, self)
            for reward, name in zip(rewards, self.names, strict=True)
        ]

    def take(self) -> RecordedBatch:
        """What was noted since the last time, which is forgotten."""
        batch, self._batch = self._batch, RecordedBatch()
        return batch

    def note(
        self, name: str, completions: Sequence[Completion], columns: dict[str, Any], rewards: Sequence[float | None]
    ) -> None:
        """Note a call of a reward."""
        if name == self.names[0]:
            # Each batch of completions goes to all rewards: those of the first one are all.
            self._batch.completions += completions
            for column in self.columns:
                if column in columns:
                    self._batch.columns.setdefault(column, []).extend(columns[column])
        self._batch.rewards.setdefault(name, []).extend(rewards)

    def note_metric(self, name: str, value: float, count: int) -> None:
        """Note what a reward logged of a batch: shares of failures of a judge."""
        if name.endswith(_FAILED):
            key = name.removesuffix(_FAILED)
            self._batch.judge_failures[key] = self._batch.judge_failures.get(key, 0.0) + value * count


def _is_coroutine_function(reward: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(type(reward).__call__)


class _RecordedReward:
    def __init__(self, reward: Callable[..., Any], name: str, recorder: RewardRecorder) -> None:
        self.reward = reward
        self.recorder = recorder
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        # Only for what it lacks itself. A copy that is being made has no reward yet.
        if name.startswith("__") or "reward" not in vars(self):
            raise AttributeError(name)
        return getattr(self.reward, name)

    def __repr__(self) -> str:
        return f"recorded {self.reward!r}"

    def _noting(self, completions: Sequence[Completion], columns: dict[str, Any]) -> dict[str, Any]:
        """The arguments, with a ``log_metric`` that notes what is logged."""
        log_metric = columns.get("log_metric")
        if log_metric is None or not self.recorder.active:
            return columns

        def noted(name: str, value: float) -> None:
            self.recorder.note_metric(name, value, len(completions))
            log_metric(name, value)

        return {**columns, "log_metric": noted}

    def _note(self, completions: Sequence[Completion], columns: dict[str, Any], rewards: Any) -> Any:
        if self.recorder.active:
            self.recorder.note(self.__name__, completions, columns, rewards)
        return rewards

    def __call__(self, completions: Sequence[Completion], **columns: Any) -> Any:
        return self._note(
            completions, columns, self.reward(completions=completions, **self._noting(completions, columns))
        )


class _AsyncRecordedReward(_RecordedReward):
    # Trainers tell asynchronous rewards by their __call__ being a coroutine function.
    async def __call__(self, completions: Sequence[Completion], **columns: Any) -> Any:
        rewards = await self.reward(completions=completions, **self._noting(completions, columns))
        return self._note(completions, columns, rewards)
