"""Losses of reinforcement learning on token sequences: of the policy and of a value head."""

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

__all__ = [
    "Aggregation",
    "Objective",
    "PolicyLoss",
    "RatioLevel",
    "policy_loss",
    "value_loss",
]

Aggregation = Literal["sequence_mean", "token_mean", "constant", "sequence_sum"]
"""How token losses become one number; see :func:`policy_loss`."""

Objective = Literal["clipped", "cispo", "sapo", "vespo"]
"""What a token's loss is; see :func:`policy_loss`."""

RatioLevel = Literal["token", "sequence", "sequence_product"]
"""Whose ratio of probabilities counts: a token's, or a sequence's as geometric mean or product of its tokens'."""


class PolicyLoss(NamedTuple):
    """The policy's loss, and what to watch of it.

    Args:
        loss: What is minimised.
        clipped: Share of tokens whose loss the clipping bounds, so that they do not move the policy.
        mean_ratio: Mean over tokens of the ratio of the policy's probabilities to those of sampling.
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
    objective: Objective = "clipped",
    clip_low: float = 0.2,
    clip_high: float | None = None,
    max_ratio: float | None = None,
    level: RatioLevel = "token",
    aggregation: Aggregation = "sequence_mean",
    normalizer: float | Tensor | None = None,
    token_weights: Tensor | None = None,
    kl: Tensor | None = None,
    beta: float = 0.0,
    temperatures: tuple[float, float] = (1.0, 1.05),
    shape_positive: tuple[float, float] = (2.0, 3.0),
    shape_negative: tuple[float, float] = (3.0, 2.0),
) -> PolicyLoss:
    r"""The loss of a policy on completions that it sampled, perhaps some steps ago.

    With the ratio :math:`\rho_t = \pi(y_t) / \pi_\text{old}(y_t)`, at ``level="sequence"`` the geometric mean of a
    sequence's ratios (GSPO) and at ``"sequence_product"`` their product (RLOO), and advantages :math:`A`, a token's
    loss is by ``objective``

    - ``"clipped"`` (PPO, GRPO): :math:`-\min(\rho A, \operatorname{clip}(\rho, 1 - \epsilon_\text{low}, 1 +
      \epsilon_\text{high}) A)`, where ``max_ratio`` bounds the first :math:`\rho` too (two-sided clipping). Clip-higher
      (DAPO) is :math:`\epsilon_\text{high} > \epsilon_\text{low}`.
    - ``"cispo"``: :math:`-\operatorname{sg}[\min(\rho, \epsilon_\text{high})] A \log \pi(y_t)`; here ``clip_high`` is
      the greatest ratio itself.
    - ``"sapo"``: :math:`-\frac{4}{\tau} \sigma(\tau (\rho - 1)) A`, with :math:`\tau` the first of ``temperatures``
      where :math:`A > 0`, else the second.
    - ``"vespo"``: :math:`-\operatorname{sg}[e^{\lambda} w^{k} e^{-\lambda w}] A \log \pi(y_t)` with :math:`w` the
      product of a sequence's ratios and :math:`(k, \lambda)` by the advantage's sign.

    To it :math:`\beta` times ``kl`` is added. The losses :math:`l_{i,t}` of :math:`N` sequences become one number by
    ``aggregation``

    - ``"sequence_mean"`` (GRPO): :math:`\frac1N \sum_i \frac{1}{T_i} \sum_t l_{i,t}`, which weighs a token of a short
      sequence more;
    - ``"token_mean"`` (BNPO, DAPO): :math:`\sum l_{i,t} / \sum_i T_i`, over ``normalizer`` tokens if given, such as
      those of all processes and accumulation steps divided by their number;
    - ``"constant"`` (Dr. GRPO): :math:`\sum l_{i,t} / (N T_\text{max})`, free of length bias, with ``normalizer``
      the :math:`T_\text{max}` that a completion may have;
    - ``"sequence_sum"`` (LUSPO): :math:`\frac1N \sum_i \sum_t l_{i,t}`.

    RLOO and SCST are ``"clipped"`` on ratios of 1, where the gradient is that of :math:`-A \log \pi`.

    Source: Schulman et al., "Proximal Policy Optimization", Eq. 7; Shao et al., "DeepSeekMath", Eq. 3; Yu et al.,
    "DAPO", Eq. 8; Liu et al., "Understanding R1-Zero-Like Training"; Zheng et al., "Group Sequence Policy
    Optimization", Eq. 7; MiniMax, "MiniMax-M1", Eq. 4 (CISPO). The defaults of SAPO and VESPO are TRL's.

    Args:
        log_probs: Log-probabilities ``(N, T)`` of the tokens under the policy, with gradient.
        old_log_probs: Those that they were sampled with.
        advantages: ``(N,)`` by sequence or ``(N, T)`` by token.
        mask: ``(N, T)``, 1 at the tokens that count; what stands elsewhere is never read.
        objective: ``"clipped"``, ``"cispo"``, ``"sapo"`` or ``"vespo"``.
        clip_low: :math:`\epsilon_\text{low}` in [0, 1].
        clip_high: :math:`\epsilon_\text{high}`; default: ``clip_low``. Needed for ``"cispo"``.
        max_ratio: Greatest ratio of the unclipped side, above ``1 + clip_high``; default: none.
        level: ``"token"``, ``"sequence"`` or ``"sequence_product"``.
        aggregation: ``"sequence_mean"``, ``"token_mean"``, ``"constant"`` or ``"sequence_sum"``.
        normalizer: What ``"token_mean"`` and ``"constant"`` divide by; see there.
        token_weights: Factors ``(N, T)`` of the policy's losses, before the divergence is added: 0 leaves a token out,
            as training on tokens of high entropy alone does, or the ratio between trainer and sampler corrects them.
        kl: Divergences ``(N, T)`` by token, as :func:`kl_estimate` gives them.
        beta: :math:`\beta`, what a nat of divergence costs.
        temperatures: SAPO's, for positive and other advantages.
        shape_positive: VESPO's :math:`(k, \lambda)` for advantages from 0 on.
        shape_negative: VESPO's :math:`(k, \lambda)` for negative ones.

    Returns:
        The loss and what to watch.

    Raises:
        ValueError: If shapes do not fit, a setting is unknown or out of range, or ``kl`` and ``beta`` do not come
            together.

    Example:
        >>> import torch
        >>> old = torch.full((1, 2), -1.0)
        >>> policy_loss(old + 0.5, old, torch.tensor([1.0]), torch.ones(1, 2)).loss  # clipped at 1.2
        tensor(-1.2000)
    """
    clip_high = clip_low if clip_high is None and objective != "cispo" else clip_high
    _check_settings(objective, clip_low, clip_high, max_ratio, level, aggregation)
    if (kl is None) != (beta == 0):
        raise ValueError("kl and beta come together: give both, or neither")
    weighed = {"old_log_probs": old_log_probs, "mask": mask, "kl": kl, "token_weights": token_weights}
    _check_shapes(log_probs, {name: tensor for name, tensor in weighed.items() if tensor is not None})
    if advantages.shape not in (log_probs.shape, log_probs.shape[:1]):
        raise ValueError(
            f"advantages must have shape ({len(log_probs)},) or {tuple(log_probs.shape)}, got {tuple(advantages.shape)}"
        )
    advantages = advantages.unsqueeze(1) if advantages.ndim == 1 else advantages
    # Not by a product with the mask: padding may hold infinities.
    outside = ~mask.bool()
    log_probs = log_probs.masked_fill(outside, 0.0)
    log_ratio = log_probs - old_log_probs.masked_fill(outside, 0.0)
    ratio = _ratio(log_ratio, mask, level)
    clipped = torch.zeros_like(ratio, dtype=torch.bool)
    assert clip_high is not None
    if objective == "clipped":
        bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
        free = (ratio if max_ratio is None else ratio.clamp(max=max_ratio)) * advantages
        losses = -torch.min(free, bounded)
        clipped = bounded < ratio * advantages
    elif objective == "cispo":
        losses = -ratio.clamp(max=clip_high).detach() * advantages * log_probs
        clipped = (ratio > clip_high) & (advantages > 0)
    elif objective == "sapo":
        tau = torch.where(advantages > 0, *temperatures)
        losses = -torch.sigmoid(tau * (ratio - 1)) * 4 / tau * advantages
    else:
        losses = -_gamma_weights(log_ratio, advantages, shape_positive, shape_negative) * advantages * log_probs
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
    r"""The loss of a value head (PPO).

    .. math::
        \tfrac12 \overline{\max\bigl((V - R)^2, (\operatorname{clip}(V, V_\text{old} \pm \epsilon) - R)^2\bigr)}

    averaged over tokens.

    Source: Schulman et al., "Proximal Policy Optimization", Eq. 9; the clipping is OpenAI's code's.

    Args:
        values: Predicted values ``(N, T)``, with gradient.
        old_values: Values predicted when the completions were sampled.
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


def _ratio(log_ratio: Tensor, mask: Tensor, level: RatioLevel) -> Tensor:
    """Ratios ``(N, T)`` of tokens, or ``(N, 1)`` of sequences."""
    if level == "token":
        return log_ratio.exp()
    if level == "sequence":
        return _sequence_mean(log_ratio, mask).unsqueeze(1).exp()
    return log_ratio.sum(1, keepdim=True).exp()


def _gamma_weights(
    log_ratio: Tensor, advantages: Tensor, positive: tuple[float, float], negative: tuple[float, float]
) -> Tensor:
    # Bounds as in the published code: outside of them the weight is 0 anyhow.
    total = log_ratio.detach().clamp(-20, 20).sum(1, keepdim=True).clamp(math.log(1e-8), 20)
    k, lam = (torch.where(advantages >= 0, *pair) for pair in zip(positive, negative, strict=True))
    return (lam + k * total - lam * total.exp()).exp()


def _aggregate(losses: Tensor, mask: Tensor, aggregation: Aggregation, normalizer: float | Tensor | None) -> Tensor:
    if aggregation == "sequence_mean":
        return _sequence_mean(losses, mask).mean()
    if aggregation == "sequence_sum":
        return (losses * mask).sum(1).mean()
    total = (losses * mask).sum()
    if aggregation == "token_mean":
        tokens = mask.sum() if normalizer is None else torch.as_tensor(normalizer)
        return total / tokens.clamp(min=1)
    return total / (len(losses) * (losses.shape[1] if normalizer is None else normalizer))


def _sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)


def _check_shapes(log_probs: Tensor, others: dict[str, Tensor]) -> None:
    for name, tensor in others.items():
        if tensor.shape != log_probs.shape:
            raise ValueError(f"{name} must have shape {tuple(log_probs.shape)}, got {tuple(tensor.shape)}")


def _check_settings(
    objective: str, clip_low: float, clip_high: float | None, max_ratio: float | None, level: str, aggregation: str
) -> None:
    for name, value, kind in (
        ("objective", objective, Objective),
        ("level", level, RatioLevel),
        ("aggregation", aggregation, Aggregation),
    ):
        if value not in get_args(kind):
            raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {value!r}")
    if not 0 <= clip_low <= 1:
        raise ValueError(f"clip_low must lie in [0, 1], got {clip_low}")
    if clip_high is None:
        raise ValueError("cispo needs clip_high, the greatest ratio")
    if clip_high < 0:
        raise ValueError(f"clip_high must not be negative, got {clip_high}")
    if max_ratio is not None and max_ratio <= 1 + clip_high:
        raise ValueError(f"max_ratio must be above 1 + clip_high = {1 + clip_high:g}, got {max_ratio}")
