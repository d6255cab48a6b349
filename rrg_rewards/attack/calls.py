"""Calls of a reward within a budget, and a table of the rewards of policies."""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.analysis.outcomes import PairCounts
from rrg_rewards.attack.families import HONEST, Policy
from rrg_rewards.rewards.base import Reward
from rrg_rewards.utilities.processes import run_coroutine
from rrg_rewards.utilities.worker_pool import WorkerPool, calls, divided

Batch = tuple[list[str], dict[str, list[Any]]]
"""Completions with the columns of the reward."""

RewardedBatch = tuple[list[float], str]
"""Rewards of completions, NaN if unscorable, and kind and reason of the first failure of a judge, if there is one."""

# References of the first comparison of a search; each further comparison has four times as many.
_FIRST = 8


def reward_name(reward: Callable[..., Any]) -> str:
    """Return the name under which trainers log a reward function."""
    return str(getattr(reward, "__name__", type(reward).__name__))


class RewardCalls:
    """Calls a reward and counts the calls. A call is one completion scored against one reference.

    A :class:`~rrg_rewards.rewards.Reward` is called without updating its state. Any other callable is called as
    trainers do, with ``prompts``, ``completions`` and the columns; its result is awaited if necessary.

    Args:
        reward: The reward.
        columns: Columns of the data set.
        budget: Maximum number of calls.
        batch_size: Maximum number of completions per call of the function.
        report_progress: Function of the number of finished calls and the number of calls to add to the total.
        pool: Processes that call a :class:`RewardFunction`; default: this process.

    Raises:
        RuntimeError: When called, if the budget does not suffice.
        ValueError: If ``batch_size`` is not positive; when called, if the reward returns another number of values, or
            an infinite one.
    """

    def __init__(
        self,
        reward: Callable[..., Any],
        columns: Mapping[str, Sequence[Any]],
        budget: int,
        batch_size: int = 256,
        report_progress: Callable[[int, int], None] | None = None,
        pool: WorkerPool[Batch, RewardedBatch] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive, got {batch_size}")
        self._function = RewardFunction(reward)
        self._pool = pool
        self.columns = columns
        self.budget = budget
        self.batch_size = batch_size
        self.spent = 0
        self.first_failure = ""
        """Kind and reason of the first failure of the reward's judge."""
        self._report = report_progress or (lambda _finished, _added: None)
        self._report(0, budget)

    @property
    def left(self) -> int:
        """Number of calls that the budget still allows."""
        return self.budget - self.spent

    def __call__(self, completions: Sequence[str], rows: Sequence[int]) -> Tensor:
        """Return the rewards of completions, NaN if unscorable.

        Args:
            completions: ``N`` completions.
            rows: Row of the columns for each completion.
        """
        if len(completions) > self.left:
            raise RuntimeError(f"{len(completions)} calls exceed the budget of {self.budget}; {self.left} are left")
        rewards: list[float] = []
        for values, failure in self._computed(completions, rows):
            self.first_failure = self.first_failure or failure
            rewards += values
            self.spent += len(values)
            self._report(len(values), 0)
        return torch.tensor(rewards, dtype=torch.float64)

    def _computed(self, completions: Sequence[str], rows: Sequence[int]) -> Iterator[RewardedBatch]:
        """Yield the rewards of each batch, in order. Workers share the rows of a reward that scores each by itself."""

        def task(part: slice) -> Batch:
            columns = {name: [cells[row] for row in rows[part]] for name, cells in self.columns.items()}
            return list(completions[part]), columns

        size, reward = self.batch_size, self._function.reward
        if self._pool is not None and isinstance(reward, Reward) and reward.has_independent_rows:
            # Completions with the same text follow each other, so that few texts are read by several workers.
            size = min(size, max(1, math.ceil(len(rows) / self._pool.workers)))
        tasks = ((part, task(part)) for part in divided(len(rows), size))
        yield from (result() for _, result in calls(self._function, tasks, self._pool))


@dataclass(frozen=True)
class RewardFunction:
    """Calls a reward for completions and columns; see :class:`RewardCalls`.

    Args:
        reward: The reward.
    """

    reward: Callable[..., Any]

    def __call__(self, batch: Batch) -> RewardedBatch:
        """Return the rewards of completions, and the first failure of the judge."""
        completions, columns = batch
        counts = PairCounts()
        if isinstance(self.reward, Reward):
            scores = self.reward.score(completions, **columns)
            given = self.reward.rewards(scores)
            counts.add(scores)
        else:
            given = self.reward(prompts=[""] * len(completions), completions=completions, **columns)
            if inspect.isawaitable(given):
                given = run_coroutine(_result(given))
        name = reward_name(self.reward)
        if len(given) != len(completions):
            raise ValueError(f"reward {name!r} returned {len(given)} rewards for {len(completions)} completions")
        values = [math.nan if value is None else float(value) for value in given]
        if any(map(math.isinf, values)):
            raise ValueError(f"reward {name!r} returned an infinite reward; use None if a completion has none")
        return values, counts.first_failure


async def _result(awaitable: Any) -> Any:
    return await awaitable


@dataclass
class PolicyTable:
    """The rewards of policies on some rows; each pair of policy and row is scored once.

    Args:
        calls: Calls of the reward.
        rows: Rows of the columns, in random order. All policies are compared on the same first rows.
        honest: Honest report of each row of the columns, if there are any.
        baseline: Policy to which constant texts are compared. Edits are compared to the honest reports.
    """

    calls: RewardCalls
    rows: Sequence[int]
    honest: Sequence[str] | None
    baseline: Policy
    _known: dict[tuple[str, str], Tensor] = field(default_factory=dict, init=False)

    @property
    def sizes(self) -> list[int]:
        """Numbers of rows of the comparisons of a search: 8, 32, ... and the number of rows."""
        sizes = []
        size = _FIRST
        while size < len(self.rows):
            sizes.append(size)
            size *= 4
        return [*sizes, len(self.rows)]

    def cost(self, policy: Policy, count: int) -> int:
        """Return the number of calls for the rewards of a policy on the first ``count`` rows."""
        return max(count - len(self.rewards(policy)), 0)

    def compare(self, policies: Iterable[Policy], count: int, budget: int) -> tuple[list[Policy], int]:
        """Score the first policies that the budget suffices for on the first ``count`` rows.

        Returns:
            These policies, the best first, and the number of calls.
        """
        chosen: dict[tuple[str, str], Policy] = {}
        for policy in policies:
            if policy.key not in chosen:
                budget -= self.cost(policy, count)
                if budget < 0:
                    break
                chosen[policy.key] = policy
        calls = self.evaluate([*chosen.values()], count)
        return self.ranked(chosen.values(), count), calls

    def compared_rows(self, policy: Policy) -> int:
        """Return the number of rows on which a policy was scored, at most those of the first comparison."""
        return min(len(self.rewards(policy)), self.sizes[0])

    def evaluate(self, policies: Sequence[Policy], count: int) -> int:
        """Score policies on the first ``count`` rows, and return the number of calls."""
        wanted = {policy.key: policy for policy in policies if self.cost(policy, count)}
        completions: list[str] = []
        rows: list[int] = []
        for policy in wanted.values():
            for row in self.rows[len(self.rewards(policy)) : count]:
                completions.append(policy.completion(None if self.honest is None else self.honest[row]))
                rows.append(row)
        rewards = self.calls(completions, rows)
        done = 0
        for key, policy in wanted.items():
            before = self.rewards(policy)
            self._known[key] = torch.cat([before, rewards[done : done + count - len(before)]])
            done += count - len(before)
        return len(completions)

    def rewards(self, policy: Policy, count: int | None = None) -> Tensor:
        """Return the rewards of an evaluated policy on the first ``count`` rows, NaN if unscorable."""
        return self._known.get(policy.key, torch.empty(0, dtype=torch.float64))[:count]

    def gains(self, policy: Policy, count: int | None = None) -> Tensor:
        """Return the differences of the rewards of an evaluated policy and of its baseline, on the rows of both."""
        rewards = self.rewards(policy, count)
        return rewards - self.rewards(HONEST if policy.edit else self.baseline, len(rewards))

    def gain(self, policy: Policy, count: int | None = None) -> float:
        """Return the mean gain over the rows on which both are scored; negative infinity if there are none."""
        mean = float(self.gains(policy, count).nanmean())
        return -math.inf if math.isnan(mean) else mean

    def ranked(self, policies: Iterable[Policy], count: int | None = None) -> list[Policy]:
        """Return evaluated policies by falling mean gain."""
        return sorted(policies, key=lambda policy: -self.gain(policy, count))
