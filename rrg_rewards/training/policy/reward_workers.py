"""Rewards in the background: a thread or a process that scores completions while the policy computes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from lightning.pytorch import Callback
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from rrg_rewards.rewards.background import PendingScores, RowScorer, check_picklable, divide_rows, join_parts
from rrg_rewards.rewards.base import Reward, is_asynchronous
from rrg_rewards.rewards.overlap import PART, SHARE, has_free_core
from rrg_rewards.training.policy.generators import Batch, num_rows
from rrg_rewards.training.policy.rewards import RewardSet, RewardTable, as_completions, columns_of
from rrg_rewards.utilities.concurrency import BackgroundThread
from rrg_rewards.utilities.worker_pool import WorkerPool

OverlapName = Literal["thread", "process"]
"""What scores completions in the background."""


class RewardWorker:
    """Calls reward functions in the background, one batch at a time and in the order of :meth:`submit`.

    Rewards with :attr:`~rrg_rewards.rewards.Reward.has_independent_rows` score the completions that :meth:`begin`
    gets early. Other functions are called once with the whole batch.

    Args:
        rewards: The reward functions.
        kind: ``"thread"``; or ``"process"`` for functions that hold Python's global lock. Asynchronous rewards with
            independent rows are computed in a thread in both cases. The process of other functions gets their states
            before a call and returns them after it.
        processes: Number of processes of rewards with independent rows.

    Raises:
        SettingError: If a reward function cannot be pickled for the process; the message names it. If several processes
            would have copies of a model.
    """

    def __init__(self, rewards: RewardSet, kind: OverlapName, processes: int = 1) -> None:
        self._rewards = rewards
        self._processes = processes if kind == "process" else 1
        self._by_rows = [one for one, reward in enumerate(rewards.functions) if _has_independent_rows(reward)]
        self._whole = [one for one in range(len(rewards.functions)) if one not in self._by_rows]
        self._process = None
        if kind == "process" and self._whole:
            self._process = _RewardProcess(RewardSet([rewards.functions[one] for one in self._whole]))
        chosen = [rewards.functions[one] for one in self._by_rows]
        self._scorer = RowScorer(chosen, processes if kind == "process" else 0) if chosen else None
        self._thread = BackgroundThread("rewards")

    def begin(self, batch: Batch) -> "EarlyRewards":
        """Return an object that takes the completions of a batch while others are sampled."""
        rewards = [self._rewards.functions[one] for one in self._by_rows]
        return EarlyRewards(self._scorer, rewards, batch, self._processes)

    def submit(self, arguments: dict[str, Any], early: "EarlyRewards") -> Callable[[], RewardTable]:
        """Start a call with :meth:`RewardSet.arguments`; return a function that waits for the result.

        An exception of a reward function is raised there.

        Args:
            arguments: Arguments of the reward functions.
            early: The completions of the batch that are scored already.

        Raises:
            ValueError: If a completion differs from the one that was given early.
        """
        early.complete(arguments["completions"])
        return self._thread.submit(self._call, arguments, early).result

    def close(self) -> None:
        """End the processes, and the threads after their current calls."""
        self._thread.close()
        if self._process is not None:
            self._process.close()
        if self._scorer is not None:
            self._scorer.close()

    def _call(self, arguments: dict[str, Any], early: "EarlyRewards") -> RewardTable:
        functions = list(self._rewards.functions)
        whole = None if self._process is None else self._process(arguments)
        if whole is not None:
            for one, column in zip(self._whole, whole.values.unbind(1), strict=True):
                functions[one] = partial(_known, column.tolist())
        for place, one in enumerate(self._by_rows):
            functions[one] = partial(early.rewards, place)
        # The setting belongs to a thread.
        with torch.no_grad():
            table = self._rewards.score(arguments, functions)
        return table if whole is None else table.with_logged(whole)


class EarlyRewards:
    """The completions of a batch that are scored while others are sampled.

    Args:
        scorer: Scores them; ``None`` without rewards.
        rewards: The rewards of the scorer.
        batch: The batch, with one row per completion.
        processes: Number of processes of the scorer, between which completions are divided.
    """

    def __init__(self, scorer: RowScorer | None, rewards: Sequence[Reward], batch: Batch, processes: int = 1) -> None:
        self._scorer = scorer
        self._processes = processes
        self._rewards = rewards
        self._batch = batch
        read = {name for reward in rewards for name in reward.columns}
        self._columns = columns_of({name: column for name, column in batch.items() if name in read})
        self._given: dict[int, Any] = {}
        self._waiting: list[int] = []
        self._parts: list[tuple[list[int], list[PendingScores]]] = []

    def add(self, rows: Sequence[int], texts: Sequence[str]) -> None:
        """Take the completions of some rows, and start to score those that wait if they are a quarter of the batch."""
        self._given.update(zip(rows, as_completions(self._batch, texts), strict=True))
        self._waiting += rows
        if len(self._waiting) >= PART * num_rows(self._batch):
            self._start(self._waiting)
            self._waiting = []

    def complete(self, completions: Sequence[Any]) -> None:
        """Start to score the completions of the remaining rows.

        Raises:
            ValueError: If a completion differs from the one that was given before.
        """
        if wrong := [row for row, one in self._given.items() if completions[row] != one]:
            raise ValueError(f"sample gave on_finished another completion of row {min(wrong)} than it returned")
        rows = [row for row in range(len(completions)) if row not in self._given]
        self._given.update((row, completions[row]) for row in rows)
        self._start([*self._waiting, *rows])

    def _start(self, rows: list[int]) -> None:
        if self._scorer is None or not rows:
            return
        for part in divide_rows(rows, self._processes):
            completions = [self._given[row] for row in part]
            columns = {name: [column[row] for row in part] for name, column in self._columns.items()}
            self._parts.append((part, self._scorer.submit(completions, columns)))

    def rewards(
        self,
        place: int,
        *,
        log_metric: Callable[[str, float], None],
        log_extra: Callable[[str, list[Any]], None],
        **_: Any,
    ) -> list[float | None]:
        """Wait for the scores of a reward, and return its rewards of the batch."""
        scores = join_parts([(rows, pending[place].wait()) for rows, pending in self._parts])
        return self._rewards[place].finish(scores, len(scores), log_metric, log_extra)


def _has_independent_rows(function: Any) -> bool:
    return isinstance(function, Reward) and function.has_independent_rows


def _known(rewards: list[float], **_: Any) -> list[float]:
    return rewards


class _RewardProcess:
    """Computes rewards of whole batches in a process, which gets and returns their states with each call."""

    def __init__(self, rewards: RewardSet) -> None:
        self._rewards = rewards
        check_picklable(rewards.functions)
        # Torch's own number of threads, because a reward may have a model.
        self._pool = WorkerPool(partial(_score_whole, rewards), 1, threads=0)

    def __call__(self, arguments: dict[str, Any]) -> RewardTable:
        table, state = self._pool.submit((arguments, self._rewards.state_dict()))()
        self._rewards.load_state_dict(state)
        return table

    def close(self) -> None:
        self._pool.close(at_once=True)


def _score_whole(rewards: RewardSet, task: tuple[dict[str, Any], dict[str, Any]]) -> tuple[RewardTable, dict[str, Any]]:
    arguments, state = task
    rewards.load_state_dict(state)
    with torch.no_grad():
        return rewards.score(arguments), rewards.state_dict()


class CloseRewards(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Ends the worker of a policy module's rewards with the run, also after an exception or an interrupt."""

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Close the worker."""
        pl_module.close_rewards()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        """Close the worker."""
        pl_module.close_rewards()


def choose_overlap(rewards: Sequence[Any], share: float, uses_cpu: bool) -> OverlapName | None:
    """Return what computes rewards in the background with ``overlap_rewards="auto"``; ``None`` for nothing.

    Results must not change. Therefore nothing does if a function is no :class:`~rrg_rewards.rewards.Reward`: it may
    draw random numbers.

    Args:
        rewards: The reward functions.
        share: Time of the rewards over all time.
        uses_cpu: Whether the policy computes on the CPU.
    """
    if share <= SHARE or not all(isinstance(reward, Reward) for reward in rewards):
        return None
    others = [reward for reward in rewards if not is_asynchronous(reward)]
    if not others:
        return "thread"
    if has_free_core(uses_cpu) and all(reward.has_independent_rows for reward in others):
        return "process"
    return "thread" if len(others) < len(rewards) else None


_NOTHING_CHOSEN = "no core is free for rules, a reward needs its whole batch, or a function may draw random numbers"


def tell_share(share: float, chosen: OverlapName | Literal["auto"] | None) -> None:
    """Log the share of the rewards, and what computes them in the background from now on."""
    if chosen == "auto":
        why = "at most 1 %" if share <= SHARE else _NOTHING_CHOSEN
        text = f"overlap_rewards='auto': nothing is computed in the background ({why})"
    elif chosen is not None:
        text = f"overlap_rewards='auto': they are computed in the background from now on, as with {chosen!r}"
    else:
        text = (
            "overlap_rewards='thread' (judges) or 'process' (rules) computes them while the policy samples and computes"
        )
    rank_zero_info(f"rewards take {share:.1%} of the time; {text}")


def check_overlap(kind: Any) -> None:
    """Raise ``ValueError`` unless the setting is known."""
    if kind not in (None, "thread", "process", "auto"):
        raise ValueError(f"overlap_rewards must be None, 'thread', 'process' or 'auto', got {kind!r}")
