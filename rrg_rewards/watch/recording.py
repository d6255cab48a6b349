"""A recorder of reward function calls, because trainers pass completions to reward functions only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rrg_rewards.rewards.base import check_names, is_asynchronous
from rrg_rewards.rewards.completions import Completion

_FAILED = "/failed"


def failure_shares(logged: Mapping[str, float]) -> dict[str, float]:
    """Select the fractions of judge failures from logged values, by name of the reward.

    Example:
        >>> failure_shares({"crimson/failed": 0.25, "crimson/unscorable": 0.5})
        {'crimson': 0.25}
    """
    return {name.removesuffix(_FAILED): share for name, share in logged.items() if name.endswith(_FAILED)}


@dataclass
class RecordedBatch:
    """The calls of all reward functions since the last :meth:`RewardRecorder.take`.

    Args:
        completions: ``N`` completions.
        columns: ``N`` values of the recorded columns.
        rewards: ``N`` rewards by name.
        judge_failures: Number of completions for which the judge failed, by name of the reward.
    """

    completions: list[Completion] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    rewards: dict[str, list[float | None]] = field(default_factory=dict)
    judge_failures: dict[str, float] = field(default_factory=dict)


class RewardRecorder:
    """Wraps reward functions and records their arguments and results.

    The recorder works with any reward function and any trainer because it uses only the public interface of
    ``reward_funcs``. A wrapped reward keeps its name, all arguments and results, and other attributes (``columns``,
    ``signature``, ...). It is asynchronous if the reward is.

    Args:
        columns: Columns of the data set to record with the completions, if the trainer passes them.

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
        """Whether calls are recorded. It is false during evaluations, which call the same rewards."""
        self._batch = RecordedBatch()

    def wrap(self, rewards: Sequence[Callable[..., Any]]) -> list[Any]:
        """Wrap all reward functions of a run.

        Raises:
            ValueError: If two have the same name.
        """
        self.names = [str(getattr(reward, "__name__", type(reward).__name__)) for reward in rewards]
        check_names(self.names)
        return [
            (_AsyncRecordedReward if is_asynchronous(reward) else _RecordedReward)(reward, name, self)
            for reward, name in zip(rewards, self.names, strict=True)
        ]

    def take(self) -> RecordedBatch:
        """Return the calls since the last :meth:`take` and clear the record."""
        batch, self._batch = self._batch, RecordedBatch()
        return batch

    def note(
        self, name: str, completions: Sequence[Completion], columns: dict[str, Any], rewards: Sequence[float | None]
    ) -> None:
        """Record a call of a reward."""
        if name == self.names[0]:
            # All rewards receive the same completions. Record them once.
            self._batch.completions += completions
            for column in self.columns:
                if column in columns:
                    self._batch.columns.setdefault(column, []).extend(columns[column])
        self._batch.rewards.setdefault(name, []).extend(rewards)

    def note_metric(self, name: str, value: float, count: int) -> None:
        """Record a logged value of a batch of ``count`` completions if it is a fraction of judge failures."""
        for key, share in failure_shares({name: value}).items():
            self._batch.judge_failures[key] = self._batch.judge_failures.get(key, 0.0) + share * count


class _RecordedReward:
    def __init__(self, reward: Callable[..., Any], name: str, recorder: RewardRecorder) -> None:
        self.reward = reward
        self.recorder = recorder
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        # Python calls this method for missing attributes only. While an object is copied, it has no reward yet.
        if name.startswith("__") or "reward" not in vars(self):
            raise AttributeError(name)
        return getattr(self.reward, name)

    def __repr__(self) -> str:
        return f"recorded {self.reward!r}"

    def _noting(self, completions: Sequence[Completion], columns: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with a ``log_metric`` that also records the logged values."""
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
    # Trainers recognise an asynchronous reward because its __call__ is a coroutine function.
    async def __call__(self, completions: Sequence[Completion], **columns: Any) -> Any:
        rewards = await self.reward(completions=completions, **self._noting(completions, columns))
        return self._note(completions, columns, rewards)
