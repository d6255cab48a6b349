"""Reward functions in TRL's contract, called as TRL calls them."""

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rrg_rewards.judges.base import run_coroutine
from rrg_rewards.rewards.base import Reward
from rrg_rewards.training.generators import Batch, Completions

__all__ = ["RewardSet", "RewardTable", "TrainerState"]

# What the trainer itself passes to a reward.
_RESERVED = ("prompts", "completions", "completion_ids", "trainer_state", "log_metric", "log_extra")


class TrainerState(NamedTuple):
    """Where a run stands, for rewards that change with it: the part of TRL's ``trainer_state`` that is of use.

    Args:
        global_step: Optimiser steps done.
        max_steps: Optimiser steps of the run; -1 where it has no end.
        epoch: Passes over the data.
    """

    global_step: int
    max_steps: int
    epoch: float


@dataclass
class RewardTable:
    """Rewards of completions, and what the reward functions logged.

    Args:
        values: ``(N, F)`` by completion and function, NaN where a function gave none.
        total: ``(N,)`` weighted sums, NaN where one of them is.
        logged: Sum and number of what was logged under each name; NaN is left out.
        extras: Columns of ``N`` values for a table of completions.
    """

    values: Tensor
    total: Tensor
    logged: dict[str, tuple[float, int]] = field(default_factory=dict)
    extras: dict[str, list[Any]] = field(default_factory=dict)


class RewardSet:
    """Reward functions in TRL's contract, with weights.

    Each is called as ``f(prompts=…, completions=…, completion_ids=…, <column>=…, trainer_state=…, log_metric=…,
    log_extra=…)`` with lists of ``N`` and gives ``N`` rewards, ``None`` where a completion is unscorable. Completions
    are texts, or, where the prompts are conversations, lists of one assistant message. Coroutine functions run
    together. A column is each list of the batch, and each of its tensors that holds a number or a row of integers for
    each row.

    Args:
        functions: One reward function or several.
        weights: Their weights; default: 1 each. A function of weight 0 is logged only.

    Raises:
        TypeError: If a function is no callable, or a module or metric.
        ValueError: If there is none, two have the same name, or weights are not one finite number for each.

    Example:
        >>> def brevity(completions, **columns):
        ...     return [-len(text.split()) for text in completions]
        >>> RewardSet(brevity, [2.0]).names
        ['brevity']
    """

    def __init__(
        self,
        functions: Callable[..., Any] | Sequence[Callable[..., Any]],
        weights: Sequence[float] | None = None,
    ) -> None:
        self.functions: list[Any] = [functions] if callable(functions) else list(functions)
        if not self.functions:
            raise ValueError("rewards must hold at least one reward function")
        for function in self.functions:
            if isinstance(function, nn.Module) or not callable(function):
                raise TypeError(
                    f"rewards must be functions, got {type(function).__name__}; wrap a metric by "
                    "rrg_rewards.rewards.MetricReward, or make one by make_reward"
                )
        self.names = [str(getattr(function, "__name__", type(function).__name__)) for function in self.functions]
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ValueError(f"rewards must differ in name, got {', '.join(twice)} twice; set name=")
        self.weights = [1.0] * len(self.functions) if weights is None else [float(weight) for weight in weights]
        if len(self.weights) != len(self.functions) or not all(map(math.isfinite, self.weights)):
            raise ValueError(f"weights must be one finite number for each of {', '.join(self.names)}, got {weights}")
        if not any(self.weights):
            raise ValueError("weights must not all be 0: nothing would be rewarded")

    def __call__(
        self, batch: Batch, completions: Completions, texts: Sequence[str], state: TrainerState
    ) -> RewardTable:
        """Reward completions of a batch's rows.

        Raises:
            ValueError: If a function gives another number of rewards than there are completions, or an infinite one;
                if a column has a name that a trainer uses.
        """
        logged: dict[str, tuple[float, int]] = {}
        extras: dict[str, list[Any]] = {}

        def log_metric(name: str, value: float) -> None:
            if not math.isnan(value):
                total, count = logged.get(name, (0.0, 0))
                logged[name] = (total + float(value), count + 1)

        arguments = {
            **_columns(batch),
            "prompts": list(batch.get("prompt", [None] * len(texts))),
            "completions": _as_completions(batch, texts),
            "completion_ids": completions.token_lists(),
            "trainer_state": state,
            "log_metric": log_metric,
            "log_extra": lambda name, values: extras.__setitem__(name, list(values)),
        }
        given = [function(**arguments) for function in self.functions]
        given = run_coroutine(_all_of(given)) if any(map(inspect.isawaitable, given)) else given
        values = torch.stack(
            [_as_tensor(rewards, name, len(texts)) for rewards, name in zip(given, self.names, strict=True)], dim=1
        )
        # A weight of 0 is for logging: what such a function cannot score does not spoil the sum.
        weights = torch.tensor(self.weights)
        total = values[:, weights != 0] @ weights[weights != 0]
        return RewardTable(values, total, logged, extras)

    def synchronize(self) -> None:
        """Share what was learnt with all processes, each of which calls it after a rollout."""
        for function in self.functions:
            if isinstance(function, Reward):
                function.synchronize()

    def state_dict(self) -> dict[str, Any]:
        """What the functions that have a ``state_dict`` have learnt, by name."""
        named = zip(self.names, self.functions, strict=True)
        return {name: function.state_dict() for name, function in named if hasattr(function, "state_dict")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the functions back what :meth:`state_dict` told.

        Raises:
            ValueError: If it is of other functions.
        """
        if state.keys() != self.state_dict().keys():
            raise ValueError(
                f"the checkpoint holds the state of the rewards {sorted(state)}, but the run's that have one are "
                f"{sorted(self.state_dict())}"
            )
        for name, function in zip(self.names, self.functions, strict=True):
            if name in state:
                function.load_state_dict(state[name])


async def _all_of(given: Sequence[Any]) -> list[Any]:
    async def result(rewards: Any) -> Any:
        return await rewards if inspect.isawaitable(rewards) else rewards

    return list(await asyncio.gather(*map(result, given)))


def _columns(batch: Batch) -> dict[str, list[Any]]:
    columns = {}
    for name, column in batch.items():
        if name in _RESERVED:
            raise ValueError(f"a batch must have no column {name!r}: rewards are called with one of the trainer's")
        if not isinstance(column, Tensor):
            columns[name] = list(column)
        elif column.ndim == 1 or (column.ndim == 2 and not column.is_floating_point()):
            columns[name] = column.tolist()
    columns.pop("prompt", None)
    return columns


def _as_completions(batch: Batch, texts: Sequence[str]) -> list[Any]:
    prompts = batch.get("prompt")
    if prompts and not isinstance(prompts[0], str):
        return [[{"role": "assistant", "content": text}] for text in texts]
    return list(texts)


def _as_tensor(rewards: Any, name: str, length: int) -> Tensor:
    values = [math.nan if reward is None else float(reward) for reward in rewards]
    if len(values) != length:
        raise ValueError(f"reward {name!r} gave {len(values)} rewards for {length} completions")
    if any(map(math.isinf, values)):
        row = next(row for row, value in enumerate(values) if math.isinf(value))
        raise ValueError(f"reward {name!r} of row {row} is infinite; give None where a completion is unscorable")
    return torch.tensor(values, dtype=torch.float32)
