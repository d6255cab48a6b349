"""Calls of reward functions with TRL's signature."""

import asyncio
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rrg_rewards.functional.advantages import MAX_REWARD
from rrg_rewards.rewards.base import Reward, check_names
from rrg_rewards.training.policy.generators import Batch, Completions, RepeatedRows
from rrg_rewards.utilities.processes import run_coroutine

Weights = Sequence[float] | Callable[[int], Sequence[float]] | None

# Arguments that the trainer passes to a reward in addition to columns.
_RESERVED = ("prompts", "completions", "completion_ids", "trainer_state", "log_metric", "log_extra")


class TrainerState(NamedTuple):
    """Progress of a run: a subset of TRL's ``trainer_state``, for rewards that depend on it.

    Args:
        global_step: Number of completed optimiser steps.
        max_steps: Number of optimiser steps of the run; -1 if there is no limit.
        epoch: Number of completed passes over the data, which may be fractional.
    """

    global_step: int
    max_steps: int
    epoch: float


@dataclass
class RewardTable:
    """Rewards of completions and the values that the reward functions logged.

    Args:
        values: Rewards ``(N, F)`` of ``N`` completions by ``F`` functions; NaN for ``None``.
        total: Weighted sums ``(N,)``; NaN if a reward with a non-zero weight is NaN.
        weights: Weights of the functions at this step, ``F`` numbers.
        logged: Sum and number of the logged values by name, without NaN.
        extras: Columns of ``N`` values for a table of completions.
    """

    values: Tensor
    total: Tensor
    weights: list[float]
    logged: dict[str, tuple[float, int]] = field(default_factory=dict)
    extras: dict[str, list[Any]] = field(default_factory=dict)

    def replaced(self, rows: Tensor, other: "RewardTable") -> "RewardTable":
        """Return the table with the rows of another at some rows, and the logged values of both."""
        logged = dict.fromkeys((*self.logged, *other.logged), (0.0, 0))
        for name, (added, count) in (*self.logged.items(), *other.logged.items()):
            logged[name] = (logged[name][0] + added, logged[name][1] + count)
        extras = {
            name: replaced_values(
                self.extras.get(name, [None] * len(self.total)), rows, other.extras.get(name, [None] * len(rows))
            )
            for name in dict.fromkeys((*self.extras, *other.extras))
        }
        values, total = self.values.index_copy(0, rows, other.values), self.total.index_copy(0, rows, other.total)
        return RewardTable(values, total, self.weights, logged, extras)


def replaced_values(values: Sequence[Any], rows: Tensor, others: Sequence[Any]) -> list[Any]:
    """Return a list with other values at some places.

    Example:
        >>> replaced_values(["a", "b", "c"], torch.tensor([2, 0]), ["x", "y"])
        ['y', 'b', 'x']
    """
    by_row = dict(zip(rows.tolist(), others, strict=True))
    return [by_row.get(row, value) for row, value in enumerate(values)]


class RewardSet:
    """Reward functions with TRL's signature, and their weights.

    Each function is called as ``f(prompts=…, completions=…, completion_ids=…, <column>=…, trainer_state=…,
    log_metric=…, log_extra=…)`` with lists of ``N`` values and returns ``N`` rewards, or ``None`` for an unscorable
    completion. Completions are texts, or lists of one assistant message if the prompts are conversations. Coroutine
    functions run concurrently. Columns are the lists of the batch, and its tensors with one number or one vector of
    integers per row.

    Args:
        functions: One or several reward functions.
        weights: Weights of the functions, or a function that returns them for a number of completed optimiser steps.
            Default: 1 each. A function with weight 0 is only logged.

    Raises:
        TypeError: If a function is not callable, or is a module or metric.
        ValueError: If there is no function, two functions have the same name, a weight is not finite, all weights are
            0, or the numbers of weights and functions differ.

    Example:
        >>> def brevity(completions, **columns):
        ...     return [-len(text.split()) for text in completions]
        >>> RewardSet(brevity, [2.0]).names
        ['brevity']
    """

    def __init__(
        self,
        functions: Callable[..., Any] | Sequence[Callable[..., Any]],
        weights: Weights = None,
    ) -> None:
        self.functions: list[Any] = [functions] if callable(functions) else list(functions)
        if not self.functions:
            raise ValueError("rewards must contain at least one reward function")
        for function in self.functions:
            if isinstance(function, nn.Module) or not callable(function):
                raise TypeError(
                    f"rewards must be functions, got {type(function).__name__}; wrap a metric by "
                    "rrg_rewards.rewards.MetricReward, or make one by make_reward"
                )
        self.names = [str(getattr(function, "__name__", type(function).__name__)) for function in self.functions]
        check_names(self.names)
        self.weights = weights
        self.weights_at(0)

    def weights_at(self, step: int) -> Tensor:
        """Return the weights ``(F,)`` of the functions after a number of optimiser steps.

        Raises:
            ValueError: If a weight is not finite, all weights are 0, or the numbers of weights and functions differ.
        """
        given = self.weights(step) if callable(self.weights) else self.weights
        weights = torch.tensor([1.0] * len(self.names) if given is None else [float(weight) for weight in given])
        if len(weights) != len(self.names) or not bool(weights.isfinite().all()):
            raise ValueError(f"weights must be one finite number for each of {', '.join(self.names)}, got {given}")
        if not bool(weights.any()):
            raise ValueError("weights must not all be 0: nothing would be rewarded")
        return weights

    def __call__(
        self, batch: Batch, completions: Completions, texts: Sequence[str], state: TrainerState
    ) -> RewardTable:
        """Reward the completions of a batch.

        Raises:
            ValueError: If a function returns a wrong number of rewards or one beyond ±1e18, or a column has the name
                of an argument of the trainer.
        """
        arguments = {
            **_columns_of(batch),
            "prompts": list(batch.get("prompt", [None] * len(texts))),
            "completion_ids": completions.token_lists(),
            "trainer_state": state,
        }
        logged: dict[str, tuple[float, int]] = {}
        extras: dict[str, list[Any]] = {}

        def log_metric(name: str, value: float) -> None:
            if not math.isnan(value):
                total, count = logged.get(name, (0.0, 0))
                logged[name] = (total + float(value), count + 1)

        def log_extra(name: str, values: Sequence[Any]) -> None:
            extras[name] = list(values)

        messages = _as_completions(batch, texts)
        given = [
            # Rewards of this package take texts, which they need not extract from conversations.
            function(
                completions=list(texts) if isinstance(function, Reward) else messages,
                log_metric=log_metric,
                log_extra=log_extra,
                **arguments,
            )
            for function in self.functions
        ]
        given = run_coroutine(_all_of(given)) if any(map(inspect.isawaitable, given)) else given
        values = torch.stack(
            [_as_tensor(rewards, name, len(texts)) for rewards, name in zip(given, self.names, strict=True)], dim=1
        )
        # Functions with weight 0 are only logged. Their missing rewards do not affect the sum.
        weights = self.weights_at(state.global_step)
        total = values[:, weights != 0] @ weights[weights != 0]
        return RewardTable(values, total, weights.tolist(), logged, extras)


async def _all_of(given: Sequence[Any]) -> list[Any]:
    async def result(rewards: Any) -> Any:
        return await rewards if inspect.isawaitable(rewards) else rewards

    return list(await asyncio.gather(*map(result, given)))


def _columns_of(batch: Batch) -> dict[str, list[Any]]:
    """Return the columns of a batch that reward functions get, as lists.

    Raises:
        ValueError: If a column has the name of an argument of the trainer.
    """
    columns = {}
    # Only columns that are passed are repeated for the completions of a prompt.
    for name, column in (batch.prompts if isinstance(batch, RepeatedRows) else batch).items():
        if name in _RESERVED:
            raise ValueError(f"a batch must not have a column {name!r}: the trainer passes an argument of this name")
        if not isinstance(column, Tensor):
            columns[name] = list(batch[name])
        elif column.ndim == 1 or (column.ndim == 2 and not column.is_floating_point()):
            columns[name] = batch[name].tolist()
    columns.pop("prompt", None)
    return columns


def _as_completions(batch: Batch, texts: Sequence[str]) -> list[Any]:
    """Return texts as completions: lists of one assistant message if the prompts of the batch are conversations."""
    prompts = batch.get("prompt")
    if prompts and not isinstance(prompts[0], str):
        return [[{"role": "assistant", "content": text}] for text in texts]
    return list(texts)


def _as_tensor(rewards: Any, name: str, length: int) -> Tensor:
    values = [math.nan if reward is None else float(reward) for reward in rewards]
    if len(values) != length:
        raise ValueError(f"reward {name!r} gave {len(values)} rewards for {length} completions")
    if (row := next((row for row, value in enumerate(values) if abs(value) > MAX_REWARD), None)) is not None:
        raise ValueError(
            f"reward {name!r} of row {row} must lie within ±{MAX_REWARD:g}, got {values[row]:g}; return None for "
            "unscorable completions"
        )
    return torch.tensor(values, dtype=torch.float32)
