"""Losses of reinforcement learning on token sequences, for the policy and for a value head."""

from dataclasses import fields
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from rrg_rewards.functional.token_loss import TokenLoss, check_choice, sequence_mean
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["Aggregation", "PolicyLoss", "policy_loss", "value_loss"]

Aggregation = Literal["sequence_mean", "token_mean", "constant", "sequence_sum"]
"""How the losses of tokens are averaged; see :func:`policy_loss`."""


class PolicyLoss(NamedTuple):
    """The loss of the policy, with statistics for logging.

    Args:
        loss: The loss.
        clipped: Share of tokens whose loss is clipped.
        mean_ratio: Mean over tokens of the ratio of the policy's probabilities to those at sampling.
    """

    loss: Tensor
    clipped: Tensor
    mean_ratio: Tensor


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    token_loss: TokenLoss | None = None,
    aggregation: Aggregation = "sequence_mean",
    normalizer: float | Tensor | None = None,
    token_weights: Tensor | None = None,
    kl: Tensor | None = None,
    beta: float = 0.0,
    **options: Any,
) -> PolicyLoss:
    r"""Compute the loss of a policy on completions that it sampled, in this step or an earlier one.

    The loss of a token is that of :class:`TokenLoss` plus :math:`\beta` times ``kl``. ``aggregation`` selects how the
    losses :math:`l_{i,t}` of the tokens of :math:`N` sequences are averaged:

    - ``"sequence_mean"`` (GRPO): :math:`\frac1N \sum_i \frac{1}{T_i} \sum_t l_{i,t}`, which gives tokens of short
      sequences a larger weight;
    - ``"token_mean"`` (BNPO, DAPO): :math:`\sum l_{i,t} / \sum_i T_i`, where ``normalizer``, if given, replaces the
      divisor, for example by the mean number of tokens over processes and accumulation steps;
    - ``"constant"`` (Dr. GRPO): :math:`\sum l_{i,t} / (N T_\text{max})`, without length bias, where ``normalizer`` is
      the maximum length :math:`T_\text{max}` of a completion;
    - ``"sequence_sum"`` (LUSPO): :math:`\frac1N \sum_i \sum_t l_{i,t}`.

    Source: :class:`TokenLoss` names the objectives' papers; Liu et al., "Understanding R1-Zero-Like Training"
    (``"constant"``).

    Args:
        log_probs: Log-probabilities ``(N, T)`` of the tokens under the policy, with gradient.
        old_log_probs: Log-probabilities ``(N, T)`` at sampling.
        advantages: ``(N,)``, one per sequence, or ``(N, T)``, one per token.
        mask: ``(N, T)``, 1 at the tokens that count; values at other tokens are ignored.
        token_loss: The loss of a token; default: built from ``options``.
        aggregation: ``"sequence_mean"``, ``"token_mean"``, ``"constant"`` or ``"sequence_sum"``.
        normalizer: Divisor of ``"token_mean"`` and ``"constant"``.
        token_weights: Factors ``(N, T)`` of the policy's losses, applied before the divergence is added. A weight of 0
            excludes a token, for example to train only on tokens of high entropy. Probability ratios of trainer and
            sampler as weights correct the difference between the two.
        kl: Divergence ``(N, T)`` of each token; see :func:`kl_estimate`.
        beta: :math:`\beta`, the weight of the divergence.
        options: Fields of :class:`TokenLoss`: ``objective``, ``level``, ``clip_low``, ``clip_high``, ``max_ratio``,
            ``temperatures``, ``shape_positive`` and ``shape_negative``.

    Returns:
        The loss and statistics for logging.

    Raises:
        TypeError: If an option is unknown, naming the nearest known one, or if both ``token_loss`` and options are
            given.
        ValueError: If shapes do not fit, a setting is unknown or out of range, or only one of ``kl`` and ``beta`` is
            given.

    Example:
        >>> import torch
        >>> old = torch.full((1, 2), -1.0)
        >>> policy_loss(old + 0.5, old, torch.tensor([1.0]), torch.ones(1, 2)).loss  # clipped at 1.2
        tensor(-1.2000)
    """
    if options or token_loss is None:
        token_loss = _make_token_loss(token_loss, options)
    check_choice("aggregation", aggregation, Aggregation)
    if (kl is None) != (beta == 0):
        raise ValueError("kl and beta must be given together, or neither")
    others = {"old_log_probs": old_log_probs, "mask": mask, "kl": kl, "token_weights": token_weights}
    _check_shapes(log_probs, {name: tensor for name, tensor in others.items() if tensor is not None})
    if advantages.shape not in (log_probs.shape, log_probs.shape[:1]):
        raise ValueError(
            f"advantages must have shape ({len(log_probs)},) or {tuple(log_probs.shape)}, got {tuple(advantages.shape)}"
        )
    advantages = advantages.unsqueeze(1) if advantages.ndim == 1 else advantages
    # Fill instead of multiplying by the mask: padding may contain infinities.
    outside = ~mask.bool()
    log_probs = log_probs.masked_fill(outside, 0.0)
    log_ratio = log_probs - old_log_probs.masked_fill(outside, 0.0)
    losses, ratio, clipped = token_loss(log_probs, log_ratio, advantages, mask)
    if token_weights is not None:
        losses = losses * token_weights.masked_fill(outside, 0.0)
    if kl is not None:
        losses = losses + beta * kl.masked_fill(outside, 0.0)
    return PolicyLoss(
        _aggregate(losses.expand_as(log_probs), mask, aggregation, normalizer),
        _masked_mean(clipped.expand_as(log_probs).to(log_probs), mask),
        _masked_mean(ratio.detach().expand_as(log_probs), mask),
    )


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, clip: float | None = 0.2
) -> Tensor:
    r"""Compute the loss of a value head (PPO).

    .. math::
        \tfrac12 \overline{\max\bigl((V - R)^2, (\operatorname{clip}(V, V_\text{old} \pm \epsilon) - R)^2\bigr)}

    averaged over tokens.

    Source: Schulman et al., "Proximal Policy Optimization", Eq. 9; the clipping is that of OpenAI's code.

    Args:
        values: Predicted values ``(N, T)``, with gradient.
        old_values: Values ``(N, T)`` predicted when the completions were sampled.
        returns: Returns ``(N, T)`` of :func:`rrg_rewards.functional.generalized_advantages`.
        mask: ``(N, T)``, 1 at the tokens that count.
        clip: :math:`\epsilon`, positive; ``None`` for the plain squared error.

    Returns:
        A scalar.

    Raises:
        ValueError: If shapes differ or ``clip`` is not positive.

    Example:
        >>> import torch
        >>> ones = torch.ones(1, 1)
        >>> value_loss(3 * ones, 2 * ones, 5 * ones, ones, clip=0.5)
        tensor(3.1250)
    """
    _check_shapes(values, {"old_values": old_values, "returns": returns, "mask": mask})
    errors = (values - returns).square()
    if clip is not None:
        if clip <= 0:
            raise ValueError(f"clip must be positive or None, got {clip}")
        near = torch.clamp(values, old_values - clip, old_values + clip)
        errors = torch.max(errors, (near - returns).square())
    return 0.5 * _masked_mean(errors, mask)


def _aggregate(losses: Tensor, mask: Tensor, aggregation: Aggregation, normalizer: float | Tensor | None) -> Tensor:
    if aggregation == "sequence_mean":
        return sequence_mean(losses, mask).mean()
    if aggregation == "sequence_sum":
        return (losses * mask).sum(1).mean()
    total = (losses * mask).sum()
    if aggregation == "token_mean":
        tokens = mask.sum() if normalizer is None else torch.as_tensor(normalizer)
        return total / tokens.clamp(min=1)
    return total / (len(losses) * (losses.shape[1] if normalizer is None else normalizer))


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)


def _check_shapes(log_probs: Tensor, others: dict[str, Tensor]) -> None:
    for name, tensor in others.items():
        if tensor.shape != log_probs.shape:
            raise ValueError(f"{name} must have shape {tuple(log_probs.shape)}, got {tuple(tensor.shape)}")


def _make_token_loss(given: TokenLoss | None, options: dict[str, Any]) -> TokenLoss:
    known = [field.name for field in fields(TokenLoss)]
    if unknown := [name for name in options if name not in known]:
        raise TypeError(unknown_name_message("option of policy_loss", unknown[0], known))
    if given is not None:
        raise TypeError(f"give token_loss or its fields, not both: {', '.join(options)}")
    return TokenLoss(**options)
