"""From a rollout's rewards to the advantages that the policy's loss weighs its tokens with."""

import torch
from torch import Tensor

from rrg_rewards.functional import (
    generalized_advantages,
    greedy_baseline_advantages,
    group_advantages,
    kl_estimate,
    leave_one_out_advantages,
)
from rrg_rewards.functional.advantages import RewardScale
from rrg_rewards.training.rollouts import Rollout
from rrg_rewards.utilities.processes import gather_objects, process_index

__all__ = ["against_greedy", "against_group", "against_others", "against_values"]


def against_group(rollout: Rollout, group_size: int, scale: RewardScale) -> None:
    """Advantages against the mean of the group; a deviation of the batch is that of all processes."""
    everyone = gather_objects(rollout.total.tolist())
    advantages = group_advantages(torch.tensor([total for own in everyone for total in own]), group_size, scale=scale)
    first = sum(map(len, everyone[: process_index()]))
    rollout.advantages = advantages[first : first + len(rollout)].to(rollout.mask.device)


def against_others(rollout: Rollout, group_size: int, beta: float) -> None:
    """Advantages against the others of the group, of rewards that the divergence is taken off."""
    total = rollout.total.to(rollout.mask.device)
    if rollout.reference_log_probs is not None:
        total = total - beta * (_divergences(rollout) * rollout.mask).sum(1)
    rollout.advantages = leave_one_out_advantages(total, group_size)


def against_greedy(rollout: Rollout, greedy_total: Tensor) -> None:
    """Advantages against the greedy completion's reward, one for each group."""
    repeated = greedy_total.repeat_interleave(len(rollout) // len(greedy_total))
    rollout.advantages = greedy_baseline_advantages(rollout.total, repeated).to(rollout.mask.device)


def against_values(rollout: Rollout, beta: float, gamma: float, lam: float) -> None:
    """Whitened advantages by token, and returns, against a value head.

    A token's reward is what its divergence costs; the completion's reward is added at the last one. What is
    unscorable is left out of the rollout's mask: there is no return to be predicted.
    """
    assert rollout.values is not None
    scored = ~rollout.total.isnan().to(rollout.mask.device)
    rollout.mask = rollout.mask * scored.unsqueeze(1)
    rewards = torch.zeros_like(rollout.values)
    if rollout.reference_log_probs is not None:
        rewards -= beta * _divergences(rollout)
    last = rollout.completions.lengths.unsqueeze(1) - 1
    rewards.scatter_add_(1, last.clamp(min=0), rollout.total.to(rewards).nan_to_num(0.0).unsqueeze(1))
    advantages, rollout.returns = generalized_advantages(rewards, rollout.values, rollout.mask, gamma=gamma, lam=lam)
    rollout.advantages = _whitened(advantages, rollout.mask)


def _divergences(rollout: Rollout) -> Tensor:
    assert rollout.old_log_probs is not None
    assert rollout.reference_log_probs is not None
    return kl_estimate(rollout.old_log_probs, rollout.reference_log_probs, "k1").masked_fill(rollout.mask == 0, 0.0)


def _whitened(advantages: Tensor, mask: Tensor) -> Tensor:
    """Over the tokens of all processes."""
    inside = advantages[mask.bool()].double()
    parts = gather_objects((len(inside), float(inside.sum()), float(inside.square().sum())))
    count, total, squares = (sum(column) for column in zip(*parts, strict=True))
    mean = total / max(count, 1)
    deviation = max(squares / max(count, 1) - mean**2, 0.0) ** 0.5
    whitened: Tensor = (advantages - mean) / (deviation + 1e-8) * mask
    return whitened
