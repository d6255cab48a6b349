"""Rollouts: sampled completions with rewards and advantages, the data of training steps, and their statistics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.functional.advantages import group_deviations
from rrg_rewards.training.policy.generators import Completions, RepeatedRows
from rrg_rewards.training.policy.rewards import RewardTable
from rrg_rewards.utilities.processes import gather_objects


@dataclass
class Rollout:
    """Completions with the data of the training steps on them. Tensors ``(N, ...)`` have one row per completion.

    Args:
        batch: Columns of the data set with one row per completion, each prompt stored once.
        completions: The completions as tokens.
        texts: The completions as texts.
        rewards: Rewards ``(N, F)`` by function; NaN for unscorable completions.
        total: Weighted sums of the rewards ``(N,)``.
        weights: Weights of the reward functions, ``F`` numbers.
        mask: ``(N, T)``, 1 for the tokens in the loss.
        advantages: ``(N,)``, or ``(N, T)`` with a value head.
        old_log_probs: Log-probabilities ``(N, T)`` of the tokens in sampling. ``None`` if all training steps use the
            unchanged policy and therefore compute them.
        reference_log_probs: Log-probabilities ``(N, T)`` under the reference policy.
        values: Predictions of the value head, ``(N, T)``.
        returns: Targets of the value head, ``(N, T)``.
        tokens_per_step: Mean number of tokens of one process in one training step.
        kept: Share of the completions of all processes whose group has spread, if others are left out.
        statistics: Logged statistics, which are equal in all processes.
        extras: Columns that reward functions added for a table of completions.
    """

    batch: RepeatedRows
    completions: Completions
    texts: list[str]
    rewards: Tensor
    total: Tensor
    weights: list[float]
    mask: Tensor
    advantages: Tensor
    old_log_probs: Tensor | None = None
    reference_log_probs: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None
    tokens_per_step: float = 1.0
    kept: float = 1.0
    statistics: dict[str, float] = field(default_factory=dict)
    extras: dict[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self, rows: Tensor) -> "Rollout":
        """Return some of the rows, truncated to their longest completion."""
        completions = self.completions.rows(rows)
        tokens = {"mask", "advantages", "old_log_probs", "reference_log_probs", "values", "returns"}
        width = completions.tokens.shape[1]
        parts: dict[str, Any] = {}
        for name, value in self._tensors().items():
            part = value[rows.to(value.device)]
            parts[name] = part[:, :width] if name in tokens and part.ndim == 2 else part
        extras = {name: [values[row] for row in rows.tolist()] for name, values in self.extras.items()}
        texts = [self.texts[row] for row in rows.tolist()]
        return replace(self, batch=self.batch.take(rows), completions=completions, texts=texts, extras=extras, **parts)

    def state_dict(self) -> dict[str, Any]:
        """Return the rollout as CPU tensors, lists and numbers, which load without executing pickled code."""
        completions = {name: getattr(self.completions, name) for name in ("tokens", "mask", "finished", "log_probs")}
        state = {name: getattr(self, name) for name in _PLAIN} | self._tensors()
        batch = {"prompts": dict(self.batch.prompts), "index": self.batch.index}
        moved: dict[str, Any] = _moved({**state, "batch": batch, "completions": completions}, torch.device("cpu"))
        return moved

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Rollout":
        """Return the rollout with a given :meth:`state_dict`."""
        batch = RepeatedRows(state["batch"]["prompts"], state["batch"]["index"].cpu())
        return cls(**{**state, "batch": batch, "completions": Completions(**state["completions"])})

    def to(self, device: torch.device) -> "Rollout":
        """Return a copy on a device."""
        return Rollout.from_state_dict(_moved(self.state_dict(), device))

    def _tensors(self) -> dict[str, Tensor]:
        named = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}


_PLAIN = ("texts", "weights", "tokens_per_step", "kept", "statistics", "extras")


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _moved(item, device) for key, item in value.items()}
    return value


def rollout_statistics(
    table: RewardTable, completions: Completions, names: Sequence[str], group_size: int
) -> dict[str, float]:
    """Compute statistics of rewards and lengths, which are equal in all processes. Every process must call it.

    Args:
        table: Rewards of this process.
        completions: The rewarded completions.
        names: Names of the reward functions.
        group_size: Number of completions per row.

    Returns:
        Statistics by name, without those that are undefined.
    """
    finished = None if completions.finished is None else completions.finished.tolist()
    parts = gather_objects(
        (table.values.tolist(), table.total.tolist(), completions.length_list, finished, table.logged)
    )
    values = torch.tensor([row for part in parts for row in part[0]])
    total = torch.tensor([reward for part in parts for reward in part[1]])
    statistics = {
        "reward": _mean(total),
        "reward_std": _deviation(total),
        "unscorable": _mean(total.isnan()),
        "completions/mean_length": _mean(torch.tensor([length for part in parts for length in part[2]])),
    }
    if group_size > 1:
        statistics["frac_reward_zero_std"] = _mean(group_deviations(total, group_size) < 1e-8)
    if finished is not None:
        statistics["completions/clipped_ratio"] = 1 - _mean(
            torch.tensor([end for part in parts for end in part[3] or []])
        )
    for name, column in zip(names, values.unbind(1), strict=True):
        statistics |= {f"rewards/{name}/mean": _mean(column), f"rewards/{name}/std": _deviation(column)}
    logged = [part[4] for part in parts]
    for name in dict.fromkeys(name for sums in logged for name in sums):
        totals, counts = zip(*(sums[name] for sums in logged if name in sums), strict=True)
        statistics[name] = sum(totals) / sum(counts)
    return {name: value for name, value in statistics.items() if not math.isnan(value)}


def _mean(values: Tensor) -> float:
    return float(values.double().nanmean())


def _deviation(values: Tensor) -> float:
    given = values[~values.isnan()].double()
    return float(given.std()) if len(given) > 1 else math.nan
