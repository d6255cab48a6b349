"""Logged statistics of a rollout over all processes."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rrg_rewards.training.policy.generators import Completions
from rrg_rewards.training.policy.rewards import RewardTable
from rrg_rewards.utilities.processes import gather_objects

__all__ = ["rollout_statistics"]


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
        (table.values.tolist(), table.total.tolist(), completions.lengths.tolist(), finished, table.logged)
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
        spread = torch.tensor([_deviation(group) for group in total.view(-1, group_size)])
        statistics["frac_reward_zero_std"] = _mean(spread < 1e-8)
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
