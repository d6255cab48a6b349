"""Advantages of a rollout, which weight its tokens in the policy loss."""

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
from rrg_rewards.training.policy.rollouts import Rollout
from rrg_rewards.utilities.processes import gather_objects, process_index

__all__ = ["against_greedy", "against_group", "against_others", "against_values"]


def against_group(rollout: Rollout, group_size: int, scale: RewardScale) -> None:
    """Set advantages relative to the group mean. The scale ``"batch"`` uses the batches of all processes."""
    everyone = gather_objects(rollout.total.tolist())
    advantages = group_advantages(torch.tensor([total for own in everyone for total in own]), group_size, scale=scale)
    first = sum(map(len, everyone[: process_index()]))
    rollout.advantages = advantages[first : first + len(rollout)].to(rollout.mask.device)


def against_others(rollout: Rollout, group_size: int, beta: float) -> None:
    """Set advantages relative to the other rewards of the group, with the divergence subtracted from the rewards."""
    total = rollout.total.to(rollout.mask.device)
    if rollout.reference_log_probs is not None:
        total = total - beta * (_divergences(rollout) * rollout.mask).sum(1)
    rollout.advantages = leave_one_out_advantages(total, group_size)


def against_greedy(rollout: Rollout, greedy_total: Tensor) -> None:
    """Set advantages relative to the reward of the greedy completion of each group."""
    repeated = greedy_total.repeat_interleave(len(rollout) // len(greedy_total))
    rollout.advantages = greedy_baseline_advantages(rollout.total, repeated).to(rollout.mask.device)


def against_values(rollout: Rollout, beta: float, gamma: float, lam: float) -> None:
    """Set returns, and whitened advantages of each token relative to a value head.

    The reward of a token is its negated weighted divergence. The reward of the completion is added at the last token.
    Unscorable completions are removed from the rollout's mask because they have no return.
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
    """Whiten over the tokens of all processes."""
    inside = advantages[mask.bool()].double()
    parts = gather_objects((len(inside), float(inside.sum()), float(inside.square().sum())))
    count, total, squares = (sum(column) for column in zip(*parts, strict=True))
    mean = total / max(count, 1)
    deviation = max(squares / max(count, 1) - mean**2, 0.0) ** 0.5
    whitened: Tensor = (advantages - mean) / (deviation + 1e-8) * mask
    return whitened
