"""Weights that correct policy losses for samples from another program than the trainer."""

import math
from typing import Literal

import torch
from torch import Tensor

from rrg_rewards.functional.token_loss import check_choice

__all__ = ["ImportanceMode", "importance_weights"]

ImportanceMode = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
"""Level of the ratios and treatment of ratios outside the bounds; see :func:`importance_weights`."""


def importance_weights(
    log_probs: Tensor,
    sampler_log_probs: Tensor,
    mask: Tensor,
    *,
    mode: ImportanceMode = "token_truncate",
    clip_min: float | None = None,
    clip_max: float | None = 3.0,
) -> Tensor:
    r"""Compute truncated importance sampling weights of tokens.

    An inference engine such as vLLM rounds differently from the trainer, so its samples follow :math:`\mu` instead of
    the policy :math:`\pi` with the same weights. The weight of a token is

    .. math::
        w_t = \operatorname{clip}\bigl(\pi(y_t) / \mu(y_t),\; c_\text{min},\; c_\text{max}\bigr)

    with ``mode="token_truncate"``. ``"token_mask"`` sets ratios outside the bounds to 0 instead.
    ``"sequence_truncate"`` and ``"sequence_mask"`` use the product of the ratios of a sequence for each of its tokens.
    The weights are factors of the token losses, ``token_weights`` of :func:`policy_loss`.

    Source: Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"; TRL's
    ``vllm_importance_sampling_mode``.

    Args:
        log_probs: Log-probabilities ``(N, T)`` of the sampled tokens, computed by the trainer with the weights of
            sampling.
        sampler_log_probs: Log-probabilities ``(N, T)`` that the sampler returned. A NaN counts as a ratio of 1.
        mask: ``(N, T)``, 1 at the tokens of completions; values at other tokens are ignored.
        mode: ``"token_truncate"``, ``"token_mask"``, ``"sequence_truncate"`` or ``"sequence_mask"``.
        clip_min: :math:`c_\text{min}`, or ``None`` for no bound.
        clip_max: :math:`c_\text{max}`, or ``None`` for no bound.

    Returns:
        Weights ``(N, T)`` of at least 0, without gradient.

    Raises:
        ValueError: If shapes differ, the mode is unknown, or the bounds are not ordered.

    Example:
        >>> import torch
        >>> ones = torch.ones(1, 2)
        >>> importance_weights(torch.log(torch.tensor([[0.5, 0.8]])), torch.log(torch.tensor([[0.4, 0.1]])), ones)
        tensor([[1.2500, 3.0000]])
    """
    check_choice("mode", mode, ImportanceMode)
    for name, tensor in {"sampler_log_probs": sampler_log_probs, "mask": mask}.items():
        if tensor.shape != log_probs.shape:
            raise ValueError(f"{name} must have shape {tuple(log_probs.shape)}, got {tuple(tensor.shape)}")
    low, high = (-math.inf if clip_min is None else clip_min), (math.inf if clip_max is None else clip_max)
    if not low < high:
        raise ValueError(f"clip_min must be less than clip_max, got {clip_min} and {clip_max}")
    level, treatment = mode.split("_")
    differences = (log_probs - sampler_log_probs).detach().masked_fill(mask == 0, 0.0)
    # An engine returns no number for a token that it could not score.
    differences = torch.nan_to_num(differences, nan=0.0)
    if level == "sequence":
        differences = differences.sum(1, keepdim=True).expand_as(log_probs)
    ratios = differences.exp()
    if treatment == "truncate":
        return ratios.clamp(low, high)
    return ratios.masked_fill((ratios < low) | (ratios > high), 0.0)
