"""Scores in the background: completions are scored in parts while the policy computes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import torch

from rrg_rewards.judges.base import Judge
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import AsyncReward, Completion, Reward, is_asynchronous
from rrg_rewards.rewards.overlap import RewardClock
from rrg_rewards.utilities.concurrency import BackgroundThread, LoopThread
from rrg_rewards.utilities.worker_pool import WorkerPool, pickled

_Batch = tuple[Sequence[Completion], Sequence[Mapping[str, Any]]]


class RowScorer:
    """Scores completions in the background, with rewards whose rows are independent.

    Asynchronous rewards run in an event loop in a thread of this process, all calls concurrently: the limits of a
    judge's requests hold for all of them together. Other rewards run in processes, or one call at a time in a thread.

    Args:
        rewards: Rewards with :attr:`~rrg_rewards.rewards.Reward.has_independent_rows`.
        processes: Number of processes; 0 for a thread.

    Raises:
        ValueError: If a reward's rows are not independent, or ``processes`` is negative.
        SettingError: If a reward cannot be pickled for the processes; the message names it. If several processes would
            have copies of a model or of a language model.
    """

    def __init__(self, rewards: Sequence[Reward], processes: int = 0) -> None:
        if processes < 0:
            raise ValueError(f"processes must be at least 0, got {processes}")
        for reward in rewards:
            if not reward.has_independent_rows:
                raise ValueError(
                    f"reward {reward.__name__!r} cannot be computed in parts: its reward of a completion may depend on "
                    "the other completions of the batch, or on earlier batches"
                )
        self._rewards = list(rewards)
        # The setting of gradients belongs to a thread.
        self._loop = LoopThread("rewards", torch.no_grad) if any(map(is_asynchronous, rewards)) else None
        self._others = [reward for reward in rewards if not is_asynchronous(reward)]
        self._pool: WorkerPool[_Batch, list[Scores]] | None = None
        self._thread: BackgroundThread | None = None
        if self._others and processes:
            check_picklable(self._others)
            self._pool = WorkerPool(partial(_score_all, self._others), processes)
        elif self._others:
            self._thread = BackgroundThread("rewards")

    def submit(self, completions: Sequence[Completion], columns: Mapping[str, Any]) -> list["PendingScores"]:
        """Start to score completions with all rewards, and return their scores, in the order of the rewards.

        Args:
            completions: ``n`` completions.
            columns: ``n`` values of each column of the data set; only those that a reward reads are used.

        Raises:
            ValueError: If a column that a reward reads is missing.
        """
        given = list(completions)
        read = [reward.read_columns(columns) for reward in self._rewards]
        # One call for all rewards that are not asynchronous, because each call to a process costs a switch.
        together = (given, [own for reward, own in zip(self._rewards, read, strict=True) if reward in self._others])
        if self._pool is not None:
            result = self._pool.submit(together)
            others = PendingScores(result.future, result)
        elif self._thread is not None:
            future = self._thread.submit(_score_all, self._others, together)
            others = PendingScores(future, future.result)
        pending = []
        for reward, own in zip(self._rewards, read, strict=True):
            if is_asynchronous(reward):
                assert self._loop is not None
                future = self._loop.submit(_score_asynchronously(reward, given, own))
                pending.append(PendingScores(future, future.result))
            else:
                pending.append(others._replace(place=self._others.index(reward)))
        return pending

    def close(self) -> None:
        """End the processes and threads. Calls that have not begun are cancelled."""
        if self._loop is not None:
            self._loop.close()
        if self._thread is not None:
            self._thread.close()
        if self._pool is not None:
            # A reward that does not return must not keep the run from its end.
            self._pool.close(at_once=True)


class PendingScores(NamedTuple):
    """Scores that are being computed.

    Args:
        future: Is done when the scores of one or several rewards are computed.
        read: Waits for them and returns them.
        place: Number of the reward among them.
    """

    future: "Future[Any]"
    read: Callable[[], list[Scores]]
    place: int = 0

    def wait(self) -> Scores:
        """Wait for the scores."""
        return self.read()[self.place]

    async def wait_async(self) -> Scores:
        """Wait for the scores without blocking the event loop."""
        # `read` says more about a process that was killed.
        with suppress(BrokenProcessPool):
            await asyncio.wrap_future(self.future)
        return self.wait()


def join_parts(parts: Sequence[tuple[Sequence[int], Scores]]) -> Scores:
    """Return the scores of a batch from those of its parts, in the order of the rows.

    Args:
        parts: Numbers of rows with the scores of these rows; each row of the batch is in one part.

    Example:
        >>> join_parts([([1], Scores(torch.tensor([0.5]))), ([0], Scores(torch.tensor([1.0])))]).value
        tensor([1.0000, 0.5000])
    """
    rows = torch.tensor([row for numbers, _ in parts for row in numbers])
    (_, first), *others = parts
    return first.joined([scores for _, scores in others]).take(rows.argsort())


class BackgroundReward(AsyncReward):
    """An asynchronous reward that is computed in processes, while other rewards and judges run.

    TRL's trainers call synchronous rewards one after the other, and asynchronous ones concurrently. A call of this
    reward divides the completions between its processes and does not block the event loop meanwhile. Its rewards and
    logged values are those of the given reward.

    Pickled copies start processes of their own.

    Args:
        reward: A reward with :attr:`~rrg_rewards.rewards.Reward.has_independent_rows`, such as that of a metric by
            rules. An asynchronous reward runs in an event loop in a thread of this process instead.
        processes: Number of processes. They start at the first call, which takes some seconds; a script therefore
            needs ``if __name__ == "__main__":``.

    Raises:
        ValueError: If the reward's rows are not independent, or ``processes`` is not positive.

    Example:
        >>> from rrg_rewards.rewards import make_reward
        >>> reward = make_reward("crimson", background=2)
        >>> reward.__name__, reward.processes
        ('crimson', 2)
    """

    def __init__(self, reward: Reward, processes: int = 1) -> None:
        if not isinstance(processes, int) or processes < 1:
            raise ValueError(f"processes must be a positive integer, got {processes!r}")
        if not reward.has_independent_rows:
            RowScorer([reward])
        super().__init__(reward.__name__, reward.log_explanations, reward.log_details)
        self.reward = reward
        self.processes = processes
        self.output = reward.output
        self.is_active = True
        """Whether calls use the processes; otherwise they block, as those of the given reward."""
        self.clock = RewardClock()
        """Measures the calls that are not active."""
        self._scorer: RowScorer | None = None
        self._early: list[tuple[list[int], list[Completion], PendingScores]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_scorer": None, "_early": []}

    @property
    def signature(self) -> str:
        """Signature of the given reward."""
        return self.reward.signature

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the data set that the reward reads."""
        return self.reward.columns

    @property
    def has_independent_rows(self) -> bool:
        """Whether the given reward has independent rows, which is always true."""
        return self.reward.has_independent_rows

    def judges(self) -> Mapping[str, Judge]:
        """Return the judges of the given reward."""
        return self.reward.judges()

    @property
    def estimated(self) -> tuple[str, ...]:
        """Settings of the given reward that are not known yet."""
        return self.reward.estimated

    def fitted_options(self) -> dict[str, Any]:
        """Return the options that the given reward has estimated."""
        return self.reward.fitted_options()

    def fit(self, **columns: Sequence[Any]) -> "BackgroundReward":
        """Fit the given reward; processes that have started before are ended."""
        self.reward.fit(**columns)
        self.close()
        return self

    def score(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Score completions in this process, as the given reward does."""
        return self.reward.score(completions, **columns)

    def score_early(
        self, rows: Sequence[int], completions: Sequence[Completion], columns: Mapping[str, Sequence[Any]]
    ) -> None:
        """Start to score some completions of the next call, while others are generated.

        The next call uses these scores for completions that it gets in the same rows, and scores the others.

        Args:
            rows: Their numbers in the batch of the next call.
            completions: The completions of these rows.
            columns: Values of the columns of the data set for these rows.
        """
        if self.is_active:
            (pending,) = self._start().submit(completions, columns)
            self._early.append((list(rows), list(completions), pending))

    def drop_early(self) -> None:
        """Forget the completions of :meth:`score_early`, before another batch begins."""
        for _, _, pending in self._early:
            pending.future.cancel()
        self._early = []

    async def score_async(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Score completions in the processes, without blocking the event loop."""
        if not self.is_active:
            with self.clock.timed():
                return await self.reward.score_async(completions, **columns)
        early, self._early = self._early, []
        read = self.reward.read_columns(columns)
        known = [part for part in early if _are_in(completions, *part[:2])]
        scored = {row for rows, _, _ in known for row in rows}
        remaining = [row for row in range(len(completions)) if row not in scored]
        parts = [(rows, pending) for rows, _, pending in known]
        for rows in divide_rows(remaining, 1 if is_asynchronous(self.reward) else self.processes):
            chosen = {name: [column[row] for row in rows] for name, column in read.items()}
            (pending,) = self._start().submit([completions[row] for row in rows], chosen)
            parts.append((rows, pending))
        if not parts:
            return self.reward.score(completions, **columns)
        results = await asyncio.gather(*(pending.wait_async() for _, pending in parts))
        return join_parts([(rows, scores) for (rows, _), scores in zip(parts, results, strict=True)])

    def _finish(self, scores: Scores, *arguments: Any) -> list[float | None]:
        return self.reward.finish(scores, *arguments)

    def _start(self) -> RowScorer:
        if self._scorer is None:
            self._scorer = RowScorer([self.reward], self.processes)
        return self._scorer

    def close(self) -> None:
        """End the processes. The next call starts others."""
        self.drop_early()
        scorer, self._scorer = self._scorer, None
        if scorer is not None:
            scorer.close()


def _are_in(completions: Sequence[Completion], rows: Sequence[int], known: Sequence[Completion]) -> bool:
    return all(row < len(completions) and completions[row] == one for row, one in zip(rows, known, strict=True))


def divide_rows(rows: list[int], count: int) -> list[list[int]]:
    """Divide rows into at most ``count`` parts of nearly equal size; no part is empty.

    Example:
        >>> divide_rows([0, 1, 2, 5, 7], 2)
        [[0, 2, 7], [1, 5]]
    """
    return [part for start in range(count) if (part := rows[start::count])]


def _score_all(rewards: Sequence[Reward], batch: _Batch) -> list[Scores]:
    completions, columns = batch
    # The setting belongs to a thread.
    with torch.no_grad():
        return [reward.score(completions, **own) for reward, own in zip(rewards, columns, strict=True)]


async def _score_asynchronously(
    reward: Reward, completions: Sequence[Completion], columns: Mapping[str, Any]
) -> list[Scores]:
    return [await reward.score_async(completions, **columns)]


def check_picklable(rewards: Sequence[Any]) -> None:
    """Raise a ``SettingError`` with the name of a reward function that cannot be pickled for a process."""
    for reward in rewards:
        pickled(reward, f"reward {getattr(reward, '__name__', type(reward).__name__)!r}")
