"""Advantages of completions and tokens: differences between their rewards and a baseline."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from rrg_rewards.utilities.names import shown

RewardScale = Literal["group", "batch", "none"]
"""Divisor of the rewards: the standard deviation of their group, of the batch, or none."""

MAX_REWARD = 1e18
"""Greatest absolute value of a reward."""

# TRL adds this number to a standard deviation.
_EPSILON = 1e-4


def group_advantages(rewards: Tensor, group_size: int, *, scale: RewardScale = "group") -> Tensor:
    r"""Compute advantages over the mean of all completions of a prompt (GRPO).

    .. math::
        A_i = \frac{r_i - \operatorname{mean}(r_1, \dots, r_G)}{\operatorname{std}(\cdot) + 10^{-4}}

    with the standard deviation (:math:`n - 1` degrees of freedom) of the group or of the whole batch. ``scale="none"``
    omits the divisor (Dr. GRPO) and does not favour prompts with similar rewards.

    A NaN reward is missing. Means and standard deviations exclude it, and its advantage is 0. The advantage is also 0
    for a completion that is the only one of its group with a reward, and for rewards that differ by no more than
    rounding (:func:`group_deviations`). Sums are computed in float64.

    Source: Shao et al., "DeepSeekMath", Section 4.1.2; Liu et al., "Understanding R1-Zero-Like Training", Eq. 3;
    ``scale="batch"``: Hu et al., "REINFORCE++".

    Args:
        rewards: Rewards ``(N,)`` of ``N / G`` consecutive groups; NaN where unscorable.
        group_size: :math:`G`, number of completions of a prompt, at least 2.
        scale: ``"group"``, ``"batch"`` or ``"none"``.

    Returns:
        Advantages ``(N,)`` as float32, without gradient.

    Raises:
        ValueError: If the rewards are not a vector of whole groups, one is beyond ±1e18, or the scale is unknown.

    Example:
        >>> import torch
        >>> rewards = torch.tensor([1.0, 3.0, 5.0, float("nan"), 2.0, 4.0])
        >>> group_advantages(rewards, 3, scale="none")
        tensor([-2.,  0.,  2.,  0., -1.,  1.])
    """
    if scale not in get_args(RewardScale):
        raise ValueError(f"scale must be 'group', 'batch' or 'none', got {shown(scale)}")
    groups = _groups(rewards, group_size)
    advantages = _centred(groups)
    if scale != "none":
        advantages = advantages / (_deviations(groups if scale == "group" else groups.view(1, -1)) + _EPSILON)
    return advantages.flatten().nan_to_num(nan=0.0).float()


def group_deviations(rewards: Tensor, group_size: int) -> Tensor:
    """Compute the standard deviation (n - 1 degrees of freedom) of the rewards of each group.

    It is 0 if the rewards differ by no more than rounding: by twice the precision of float32, or of the rewards' type
    if that is higher, times the greatest absolute reward of the group.

    Args:
        rewards: Rewards ``(N,)`` of ``N / G`` consecutive groups; NaN where unscorable.
        group_size: Number of completions of a prompt, at least 2.

    Returns:
        Deviations ``(N / G,)`` as float64; NaN for a group with fewer than two rewards.

    Raises:
        ValueError: If the rewards are not a vector of whole groups, or one is beyond ±1e18.

    Example:
        >>> import torch
        >>> group_deviations(torch.tensor([-1000.3, -1000.3, 1.0, 3.0]), 2)
        tensor([0.0000, 1.4142], dtype=torch.float64)
    """
    return _deviations(_groups(rewards, group_size)).flatten()


def decoupled_advantages(rewards: Tensor, weights: Tensor, group_size: int) -> Tensor:
    r"""Compute advantages from several rewards that are normalised one by one (GDPO).

    The advantages of each reward :math:`k` over its group are summed, and normalised over the batch:

    .. math::
        s_i = \sum_k w_k A_i^{(k)}, \qquad A_i = \frac{s_i - \operatorname{mean}(s)}{\operatorname{std}(s) + 10^{-4}}

    with :math:`A^{(k)}` of :func:`group_advantages`. A reward of a small range therefore counts as much as one of a
    large range. A NaN reward counts as the mean of its group. A completion whose rewards are all NaN has the
    advantage 0, and means and deviations exclude it.

    Source: Liu et al., "GDPO: Group reward-Decoupled Normalization Policy Optimization", Eq. 4 to 6; TRL's
    ``multi_objective_aggregation="normalize_then_sum"``.

    Args:
        rewards: Rewards ``(N, K)`` of ``N / G`` consecutive groups; NaN where unscorable.
        weights: Weights ``(K,)``, :math:`w`.
        group_size: :math:`G`, number of completions of a prompt, at least 2.

    Returns:
        Advantages ``(N,)`` as float32, without gradient.

    Raises:
        ValueError: If the rewards are not those of whole groups, or one is beyond ±1e18.

    Example:
        >>> import torch
        >>> decoupled_advantages(torch.tensor([[0.0, 100.0], [1.0, 100.0]]), torch.ones(2), 2)
        tensor([-0.7070,  0.7070])
    """
    own = torch.stack([group_advantages(column, group_size) for column in rewards.unbind(1)], dim=1)
    total = (own @ weights.to(own)).masked_fill(rewards.isnan().all(1), math.nan)
    return group_advantages(total, len(total))


def leave_one_out_advantages(rewards: Tensor, group_size: int, *, normalize: bool = False) -> Tensor:
    r"""Compute advantages over the mean of the other completions of a prompt, an unbiased baseline (RLOO).

    .. math::
        A_i = r_i - \frac{1}{G - 1} \sum_{j \ne i} r_j

    A NaN reward is missing. The baselines of other completions exclude it, and its advantage is 0. The advantage is
    also 0 for a completion that is the only one of its group with a reward, and for rewards that differ by no more than
    rounding (:func:`group_deviations`). Sums are computed in float64.

    Source: Ahmadian et al., "Back to Basics: Revisiting REINFORCE Style Optimization", Eq. 5 (Kool et al., 2019).

    Args:
        rewards: Rewards ``(N,)`` of ``N / G`` consecutive groups; NaN where unscorable.
        group_size: :math:`G`, number of completions of a prompt, at least 2.
        normalize: Whether advantages are centred and divided by their standard deviation over the batch.

    Returns:
        Advantages ``(N,)`` as float32, without gradient.

    Raises:
        ValueError: If the rewards are not a vector of whole groups, or one is beyond ±1e18.

    Example:
        >>> import torch
        >>> leave_one_out_advantages(torch.tensor([1.0, 3.0, 8.0]), 3)
        tensor([-4.5000, -1.5000,  6.0000])
    """
    groups = _groups(rewards, group_size)
    count = (~groups.isnan()).sum(1, keepdim=True)
    # The mean of the others subtracted from a reward is n / (n - 1) times the centred reward; 0 / 0 for n = 1.
    advantages = _centred(groups) * (count / (count - 1).double())
    if normalize:
        every = advantages.view(1, -1)
        advantages = _centred(every) / (_deviations(every) + _EPSILON)
    return advantages.flatten().nan_to_num(nan=0.0).float()


def greedy_baseline_advantages(rewards: Tensor, greedy_rewards: Tensor) -> Tensor:
    r"""Compute advantages over the reward of the greedy completion (self-critical sequence training).

    .. math::
        A_i = r(y_i) - r(\hat y), \qquad \hat y_t = \arg\max_v \pi(v \mid \hat y_{<t})

    Source: Rennie et al., "Self-critical Sequence Training for Image Captioning", Eq. 8.

    Args:
        rewards: Rewards ``(N,)`` of sampled completions; NaN where unscorable.
        greedy_rewards: Rewards ``(N,)`` of the greedy completions of the same prompts; NaN where unscorable.

    Returns:
        Advantages ``(N,)`` as float32, without gradient; 0 if either reward is missing.

    Raises:
        ValueError: If shapes differ, or a reward is beyond ±1e18.

    Example:
        >>> import torch
        >>> greedy_baseline_advantages(torch.tensor([0.5, 0.75]), torch.tensor([0.5, 0.5]))
        tensor([0.0000, 0.2500])
    """
    if rewards.shape != greedy_rewards.shape:
        raise ValueError(
            f"greedy_rewards must have the shape of rewards {tuple(rewards.shape)}, got {tuple(greedy_rewards.shape)}"
        )
    _check_range(rewards, "rewards")
    _check_range(greedy_rewards, "greedy_rewards")
    return (rewards.double() - greedy_rewards.double()).detach().nan_to_num(nan=0.0).float()


def generalized_advantages(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float = 1.0, lam: float = 0.95
) -> tuple[Tensor, Tensor]:
    r"""Compute generalised advantage estimates of the tokens of completions (PPO).

    .. math::
        \delta_t = r_t + \gamma V_{t+1} - V_t, \qquad A_t = \delta_t + \gamma \lambda A_{t+1},
        \qquad R_t = A_t + V_t

    with :math:`V_{T+1} = A_{T+1} = 0` after the last token of a completion.

    Source: Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation", Eq. 16.

    Args:
        rewards: Rewards ``(N, T)``, one per token; the reward of a completion is at its last token.
        values: Predicted values ``(N, T)``.
        mask: ``(N, T)``, 1 at the tokens of a completion, 0 at its padding, which must be on the right.
        gamma: :math:`\gamma` in [0, 1], the discount.
        lam: :math:`\lambda` in [0, 1].

    Returns:
        Advantages and returns ``(N, T)`` as float32, without gradient, 0 at padding.

    Raises:
        ValueError: If shapes differ, a factor lies outside [0, 1], a reward is beyond ±1e18, or a completion has
            padding between its tokens.

    Example:
        >>> import torch
        >>> mask = torch.tensor([[1, 1, 0]])
        >>> generalized_advantages(torch.tensor([[0.0, 1.0, 0.0]]), torch.tensor([[0.5, 0.5, 9.0]]), mask, lam=1.0)
        (tensor([[0.5000, 0.5000, 0.0000]]), tensor([[1., 1., 0.]]))
    """
    for name, factor in {"gamma": gamma, "lam": lam}.items():
        if not 0 <= factor <= 1:
            raise ValueError(f"{name} must lie in [0, 1], got {factor}")
    for name, other in {"values": values, "mask": mask}.items():
        if rewards.ndim != 2 or other.shape != rewards.shape:
            raise ValueError(
                f"{name} must have shape (N, T), that of rewards {tuple(rewards.shape)}, got {tuple(other.shape)}"
            )
    inside = mask.bool()
    if (inside[:, 1:] & ~inside[:, :-1]).any():
        raise ValueError("mask must be 1 at a completion's tokens and 0 behind them, without a gap")
    rewards, values = (tensor.detach().double().masked_fill(~inside, 0.0) for tensor in (rewards, values))
    _check_range(rewards, "rewards")
    advantages = torch.zeros_like(rewards)
    # After the last token and at padding, value and advantage are 0.
    following = rewards.new_zeros(len(rewards))
    next_values = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + gamma * next_values - values[:, t]
        following = (delta + gamma * lam * following) * inside[:, t]
        next_values = values[:, t]
        advantages[:, t] = following
    return advantages.float(), ((advantages + values) * inside).float()


def _groups(rewards: Tensor, group_size: int) -> Tensor:
    if group_size < 2:
        raise ValueError(
            f"group_size must be at least 2: one completion has none to be compared with, got {group_size}"
        )
    if rewards.ndim != 1 or len(rewards) % group_size:
        raise ValueError(f"rewards must be a vector of whole groups of {group_size}, got shape {tuple(rewards.shape)}")
    _check_range(rewards, "rewards")
    groups = rewards.detach().double().view(-1, group_size)
    # Rewards that differ by no more than rounding are equal.
    precision = torch.finfo(torch.promote_types(rewards.dtype, torch.float32)).eps
    lowest, highest = groups.nan_to_num(nan=math.inf).amin(1, True), groups.nan_to_num(nan=-math.inf).amax(1, True)
    rounding = 2 * precision * torch.maximum(lowest.abs(), highest.abs())
    return torch.where((highest - lowest <= rounding) & ~groups.isnan(), lowest, groups)


def _check_range(rewards: Tensor, name: str) -> None:
    beyond = rewards.abs() > MAX_REWARD
    if beyond.any():
        raise ValueError(
            f"{name} must lie within ±{MAX_REWARD:g}, or be NaN where unscorable; row {int(beyond.nonzero()[0, 0])} "
            "does not"
        )


def _centred(groups: Tensor) -> Tensor:
    """Subtract the mean of the values that are not NaN from each row; exactly 0 for equal values."""
    first = groups.nan_to_num(nan=math.inf).amin(1, keepdim=True)
    shifted = groups - first
    return shifted - shifted.nanmean(1, keepdim=True)


def _deviations(groups: Tensor) -> Tensor:
    """Return the standard deviations ``(R, 1)`` of the values of rows that are not NaN; NaN for fewer than two."""
    count = (~groups.isnan()).sum(1, keepdim=True)
    variance = _centred(groups).square().nansum(1, keepdim=True) / (count - 1)
    return variance.sqrt().masked_fill(count < 2, math.nan)
