"""One reward per process and settings, which returns numbers to a trainer."""

import asyncio
import math
import os
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

from rrg_rewards.integrations.common.background import start_in_background, without_exits
from rrg_rewards.integrations.common.batching import BatchLimits, BatchQueue
from rrg_rewards.integrations.common.columns import gather_columns, read_row
from rrg_rewards.integrations.common.settings import Missing, TrainerSettings, read_settings, settings_key
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import is_asynchronous
from rrg_rewards.rewards.completions import Completion
from rrg_rewards.rewards.compose import ComposedReward
from rrg_rewards.rewards.unrewarded import UnrewardedCalls

# A judge limits its concurrent requests itself.
_JUDGED_AT_A_TIME = 64
# The trainer limits its rollouts itself.
_WAITING = 1_000_000
_OWN_KEYS = frozenset({"score", "scorable"})
TRAINER_COLUMNS = ("prompts", "completion_ids")
"""Columns that trainers pass beside those of the data set: the prompts and token ids of completions."""


@dataclass(frozen=True)
class RewardedCompletion:
    """The reward of one completion.

    Args:
        reward: The reward; ``None`` only if the completion is unscorable and the settings have no ``missing``.
        is_scorable: Whether the completion was scored.
        details: Further numbers, with the same names for each completion: the logged sub-scores, NaN where they are
            undefined; and for each part of a composed reward its contribution and whether it was scored.
    """

    reward: float | None
    is_scorable: bool
    details: Mapping[str, float]

    def numbers(self, name: str = "score") -> dict[str, float]:
        """Return reward, ``scorable`` (1 or 0) and details as numbers; the reward is called ``name``."""
        reward = math.nan if self.reward is None else self.reward
        return {name: reward, "scorable": float(self.is_scorable), **self.details}


class MissingRewards:
    """Replaces missing rewards by a number or by the mean of other rewards.

    The mean is that of the other completions of the same group in the call; without any, of the call; without any, of
    all earlier calls.

    Args:
        missing: The number, or ``"mean"``; ``None`` to leave them out.

    Example:
        >>> replace = MissingRewards("mean")
        >>> replace([1.0, 2.0, None, 6.0], groups=["a", "a", "a", "b"])
        [1.0, 2.0, 1.5, 6.0]
        >>> replace([None], groups=["a"])
        [3.0]
    """

    def __init__(self, missing: Missing | None) -> None:
        self.missing = missing
        self._sum, self._count = 0.0, 0

    def __call__(self, rewards: Sequence[float | None], groups: Sequence[Hashable]) -> list[float | None]:
        """Return the rewards of a call with numbers in the place of ``None``.

        Args:
            rewards: ``N`` rewards.
            groups: The group of each, equal for the completions of one study.

        Raises:
            ValueError: If the mean is asked for and this process has scored no completion yet.
        """
        known = [(group, reward) for group, reward in zip(groups, rewards, strict=True) if reward is not None]
        self._sum += sum(reward for _, reward in known)
        self._count += len(known)
        return [
            self._replacement(group, known) if reward is None else reward
            for group, reward in zip(groups, rewards, strict=True)
        ]

    def _replacement(self, group: Hashable, known: Sequence[tuple[Hashable, float]]) -> float | None:
        if self.missing != "mean":
            return None if self.missing is None else float(self.missing)
        others = [reward for own, reward in known if own == group] or [reward for _, reward in known]
        if others:
            return sum(others) / len(others)
        if not self._count:
            raise ValueError(
                "missing is mean, but this process has scored no completion yet, and the first one is unscorable; "
                "give a number, and check the judge and the references"
            )
        return self._sum / self._count


Sample = tuple[Completion, Mapping[str, Any]]


class TrainerReward:
    """A reward as trainers call it that are not written for ``None`` and statistics.

    It reads the columns of rows, and never changes state that affects rewards.
    Completions of concurrent single calls are scored in batches. All scoring is done in the background of the process,
    so that it blocks no event loop.

    Args:
        settings: The settings.

    Raises:
        ValueError: If the settings are invalid; see :class:`TrainerSettings`.
    """

    def __init__(self, settings: TrainerSettings) -> None:
        self.settings = settings
        self.reward = settings.make_reward()
        own = self.reward
        self.parts = [part.name for part in own.parts if part.weight] if isinstance(own, ComposedReward) else []
        if reserved := _OWN_KEYS.intersection(self.parts):
            raise ValueError(
                f"a part is called {min(reserved)!r}, which is a key of its own; give it another name (as)"
            )
        # Of the reward, which has no name of its own here, and of its parts.
        self._missing = {name: MissingRewards(settings.missing) for name in ("", *self.parts)}
        self._unrewarded = UnrewardedCalls(settings.max_unrewarded_calls)
        self._names: list[str] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rrg-rewards-scoring")
        self._queue = BatchQueue(
            self._score,
            BatchLimits(
                max_batch=settings.max_batch,
                max_wait=settings.max_wait_ms / 1000,
                max_pending=_WAITING,
                max_concurrent=_JUDGED_AT_A_TIME if is_asynchronous(own) else 1,
            ),
        )

    @property
    def __name__(self) -> str:
        return self.reward.__name__

    def read_row(self, reference: Any, beside: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the columns of one completion; see :func:`rrg_rewards.integrations.common.columns.read_row`."""
        names = {*self.reward.columns, *TRAINER_COLUMNS}
        return read_row(reference, self.settings.reference_column, beside, names)

    def read_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the columns of one completion, of which that of the reference may contain others."""
        name = self.settings.reference_column
        return self.read_row(columns[name], columns) if name in columns else columns

    def reward_one(self, completion: Completion, row: Mapping[str, Any]) -> RewardedCompletion:
        """Reward one completion; concurrent calls of other threads are scored together with it."""
        return start_in_background(self._reward_one(completion, row)).result()

    async def reward_one_async(self, completion: Completion, row: Mapping[str, Any]) -> RewardedCompletion:
        """Reward one completion; concurrent calls are scored together with it."""
        return await asyncio.wrap_future(start_in_background(self._reward_one(completion, row)))

    def reward_batch(
        self, completions: Sequence[Completion], rows: Sequence[Mapping[str, Any]]
    ) -> list[RewardedCompletion]:
        """Reward the completions of a batch.

        Args:
            completions: ``N`` completions.
            rows: The columns of each.

        Raises:
            ValueError: If a row lacks a column that the reward reads.
        """
        return start_in_background(self._reward_batch(list(zip(completions, rows, strict=True)))).result()

    async def reward_batch_async(
        self, completions: Sequence[Completion], rows: Sequence[Mapping[str, Any]]
    ) -> list[RewardedCompletion]:
        """Do the same as :meth:`reward_batch` without blocking the event loop."""
        samples = list(zip(completions, rows, strict=True))
        return await asyncio.wrap_future(start_in_background(self._reward_batch(samples)))

    async def _reward_one(self, completion: Completion, row: Mapping[str, Any]) -> RewardedCompletion:
        scored = await self._queue.submit((completion, row))
        self._unrewarded.add(scored[0] is not None, self.settings.max_batch)
        return self._finish([scored], [row])[0]

    async def _reward_batch(self, samples: Sequence[Sample]) -> list[RewardedCompletion]:
        if not samples:
            return []
        scored = await self._score(samples)
        self._unrewarded.add(any(reward is not None for reward, _ in scored))
        return self._finish(scored, [row for _, row in samples])

    async def _score(self, samples: Sequence[Sample]) -> list[tuple[float | None, dict[str, float]]]:
        """Return reward and sub-scores of each sample."""
        completions = [completion for completion, _ in samples]
        rows = [row for _, row in samples]
        self.reward.warn_of_unread(rows[0])
        columns = gather_columns(rows, self.reward.columns)
        further = [name for name in TRAINER_COLUMNS if all(name in row for row in rows)]
        columns |= {name: [row[name] for row in rows] for name in further}
        scores = await self._scores(completions, columns)
        details = {name: values.tolist() for name, values in self.reward.logged_details(scores).items()}
        names = await self._detail_names()
        by_row = [
            {name: details[name][place] if name in details else math.nan for name in names}
            for place in range(len(rows))
        ]
        return list(zip(self.reward.checked_rewards(scores, len(rows)), by_row, strict=True))

    async def _detail_names(self) -> list[str]:
        """Return the names of the sub-scores of every completion.

        They are those of an empty batch. The served reward of a reward server has further sub-scores only while the
        server answers, and trainers need the same keys from all workers.
        """
        if self._names is None:
            scores = await self._scores([], {name: [] for name in self.reward.columns})
            self._names = list(self.reward.logged_details(scores))
        return self._names

    async def _scores(self, completions: Sequence[Completion], columns: Mapping[str, Any]) -> Scores:
        if is_asynchronous(self.reward):
            return await without_exits(self.reward.score_async(completions, **columns))
        call = partial(self.reward.score, completions, **columns)
        return await without_exits(asyncio.get_running_loop().run_in_executor(self._thread, call))

    def _finish(
        self, scored: Sequence[tuple[float | None, dict[str, float]]], rows: Sequence[Mapping[str, Any]]
    ) -> list[RewardedCompletion]:
        """Put numbers in the place of missing rewards."""
        groups = [repr([row[name] for name in self.reward.columns]) for row in rows]
        known = {name: [None if math.isnan(own[name]) else own[name] for _, own in scored] for name in self.parts}
        known[""] = [reward for reward, _ in scored]
        filled = {name: replace(known[name], groups) for name, replace in self._missing.items()}
        rewarded = []
        for place, (reward, own) in enumerate(scored):
            parts = {name: math.nan if (value := filled[name][place]) is None else value for name in self.parts}
            scorable = {f"{name}_scorable": float(known[name][place] is not None) for name in self.parts}
            rewarded.append(RewardedCompletion(filled[""][place], reward is not None, {**own, **parts, **scorable}))
        return rewarded


_REWARDS: dict[tuple[int, str], TrainerReward] = {}
_LOCK = Lock()


def get_trainer_reward(arguments: Mapping[str, Any] | None = None) -> TrainerReward:
    """Return the reward of this process for the given settings, for a trainer that needs a number for each completion.

    It is made by the first call.

    Args:
        arguments: Arguments of :func:`rrg_rewards.integrations.common.settings.read_settings`.

    Raises:
        ValueError: If the settings are invalid, or lack ``missing``.
    """
    key = (os.getpid(), settings_key(arguments))
    with _LOCK:
        if key not in _REWARDS:
            _REWARDS[key] = TrainerReward(read_settings(arguments))
        reward = _REWARDS[key]
    if reward.settings.missing is None:
        raise ValueError(
            "this trainer needs a number for each completion: set missing to the reward of unscorable completions, or "
            "to mean"
        )
    return reward
