"""Losses of reinforcement learning on token sequences, for the policy and for a value head, and their weights."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from rrg_rewards.functional.log_probs import bounded_exp
from rrg_rewards.utilities.names import shown, unknown_name_message

Objective = Literal["clipped", "cispo", "sapo", "vespo"]
"""The loss of a token; see :class:`TokenLoss`."""

RatioLevel = Literal["token", "sequence", "sequence_product"]
"""The level of probability ratios: a token's ratio, or the geometric mean or the product of a sequence's ratios."""


@dataclass(frozen=True)
class TokenLoss:
    r"""The loss of a token as a function of its probability ratio and advantage.

    The ratio of a token is :math:`\rho_t = \pi(y_t) / \pi_\text{old}(y_t)`. With ``level="sequence"`` it is replaced by
    the geometric mean of the ratios of its sequence (GSPO), and with ``"sequence_product"`` by their product (RLOO).
    With advantages :math:`A`, ``objective`` selects the loss of a token:

    - ``"clipped"`` (PPO, GRPO): :math:`-\min(\rho A, \operatorname{clip}(\rho, 1 - \epsilon_\text{low}, 1 +
      \epsilon_\text{high}) A)`. ``max_ratio`` also bounds the first :math:`\rho` (two-sided clipping). Clip-higher
      (DAPO) is :math:`\epsilon_\text{high} > \epsilon_\text{low}`.
    - ``"cispo"``: :math:`-\operatorname{sg}[\min(\rho, \epsilon_\text{high})] A \log \pi(y_t)`. Here ``clip_high`` is
      the greatest ratio itself.
    - ``"sapo"``: :math:`-\frac{4}{\tau} \sigma(\tau (\rho - 1)) A`, with :math:`\tau` the first of ``temperatures``
      if :math:`A > 0`, else the second.
    - ``"vespo"``: :math:`-\operatorname{sg}[e^{\lambda} w^{k} e^{-\lambda w}] A \log \pi(y_t)` where :math:`w` is the
      product of a sequence's ratios, and :math:`(k, \lambda)` depends on the sign of the advantage.

    The logarithm of a ratio is bounded from above (:func:`rrg_rewards.functional.log_probs.bounded_exp`): a token or
    sequence beyond the bound, 80 in float32, has a finite loss and no gradient, where the paper's overflow.

    RLOO and SCST use ``"clipped"`` with ratios of 1; its gradient is then that of :math:`-A \log \pi`.

    Source: Schulman et al., "Proximal Policy Optimization", Eq. 7; Shao et al., "DeepSeekMath", Eq. 3; Yu et al.,
    "DAPO", Eq. 8; Zheng et al., "Group Sequence Policy Optimization", Eq. 7; MiniMax, "MiniMax-M1", Eq. 4 (CISPO). The
    defaults of SAPO and VESPO are TRL's.

    Args:
        objective: ``"clipped"``, ``"cispo"``, ``"sapo"`` or ``"vespo"``.
        level: ``"token"``, ``"sequence"`` or ``"sequence_product"``.
        clip_low: :math:`\epsilon_\text{low}` in [0, 1].
        clip_high: :math:`\epsilon_\text{high}`; default: ``clip_low``. Required for ``"cispo"``.
        max_ratio: Greatest ratio of the unclipped term, above ``1 + clip_high``; default: unbounded.
        temperatures: Temperatures of SAPO for positive advantages and for others.
        shape_positive: :math:`(k, \lambda)` of VESPO for advantages of at least 0.
        shape_negative: :math:`(k, \lambda)` of VESPO for negative advantages.

    Raises:
        ValueError: If a setting is unknown or out of range.

    Example:
        >>> TokenLoss(clip_high=0.28).objective
        'clipped'
    """

    objective: Objective = "clipped"
    level: RatioLevel = "token"
    clip_low: float = 0.2
    clip_high: float | None = None
    max_ratio: float | None = None
    temperatures: tuple[float, float] = (1.0, 1.05)
    shape_positive: tuple[float, float] = (2.0, 3.0)
    shape_negative: tuple[float, float] = (3.0, 2.0)

    def __post_init__(self) -> None:
        _check_choice("objective", self.objective, Objective)
        _check_choice("level", self.level, RatioLevel)
        if not 0 <= self.clip_low <= 1:
            raise ValueError(f"clip_low must lie in [0, 1], got {self.clip_low}")
        if self.clip_high is None and self.objective == "cispo":
            raise ValueError("cispo needs clip_high, the greatest ratio")
        if self.greatest_clip < 0:
            raise ValueError(f"clip_high must not be negative, got {self.clip_high}")
        if self.max_ratio is not None and self.max_ratio <= 1 + self.greatest_clip:
            raise ValueError(
                f"max_ratio must be above 1 + clip_high = {1 + self.greatest_clip:g}, got {self.max_ratio}"
            )

    @property
    def greatest_clip(self) -> float:
        """``clip_high``, or its default ``clip_low``."""
        return self.clip_low if self.clip_high is None else self.clip_high

    def __call__(
        self, log_probs: Tensor, log_ratio: Tensor, advantages: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the losses of tokens, their ratios, and whether they are clipped.

        Args:
            log_probs: Log-probabilities ``(N, T)`` under the policy, with gradient, 0 outside the mask.
            log_ratio: ``log_probs`` minus the log-probabilities at sampling, ``(N, T)``, 0 outside the mask.
            advantages: ``(N, 1)`` or ``(N, T)``.
            mask: ``(N, T)``, 1 at the tokens that count.

        Returns:
            Losses, ratios and a bool tensor, each ``(N, 1)`` or ``(N, T)``.
        """
        ratio = _ratio(log_ratio, mask, self.level)
        clipped = torch.zeros_like(ratio, dtype=torch.bool)
        if self.objective == "clipped":
            bounded = ratio.clamp(1 - self.clip_low, 1 + self.greatest_clip) * advantages
            free = (ratio if self.max_ratio is None else ratio.clamp(max=self.max_ratio)) * advantages
            losses = -torch.min(free, bounded)
            clipped = bounded < ratio * advantages
        elif self.objective == "cispo":
            losses = -ratio.clamp(max=self.greatest_clip).detach() * advantages * log_probs
            clipped = (ratio > self.greatest_clip) & (advantages > 0)
        elif self.objective == "sapo":
            tau = torch.where(advantages > 0, *self.temperatures)
            losses = -torch.sigmoid(tau * (ratio - 1)) * 4 / tau * advantages
        else:
            weights = _gamma_weights(log_ratio, advantages, self.shape_positive, self.shape_negative)
            losses = -weights * advantages * log_probs
        return losses, ratio, clipped


def _ratio(log_ratio: Tensor, mask: Tensor, level: RatioLevel) -> Tensor:
    """Return the ratios ``(N, T)`` of tokens, or ``(N, 1)`` of sequences."""
    if level == "sequence":
        log_ratio = _sequence_mean(log_ratio, mask).unsqueeze(1)
    elif level == "sequence_product":
        log_ratio = log_ratio.sum(1, keepdim=True)
    return bounded_exp(log_ratio)


def _gamma_weights(
    log_ratio: Tensor, advantages: Tensor, positive: tuple[float, float], negative: tuple[float, float]
) -> Tensor:
    # Bounds of the published code; the weight is 0 outside them.
    total = log_ratio.detach().clamp(-20, 20).sum(1, keepdim=True).clamp(math.log(1e-8), 20)
    k, lam = (torch.where(advantages >= 0, *pair) for pair in zip(positive, negative, strict=True))
    return (lam + k * total - lam * total.exp()).exp()


def _sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the means ``(N,)`` of values over the tokens of each sequence."""
    return _inside(values, mask).sum(1) / mask.sum(1).clamp(min=1)


def _inside(values: Tensor, mask: Tensor) -> Tensor:
    """Return values, 0 outside the mask. A product with the mask would be NaN where padding is infinite."""
    return values.masked_fill(~mask.bool(), 0.0)


def _check_choice(name: str, value: str, kind: Any) -> None:
    """Raise unless ``value`` is one of the literals of ``kind``."""
    if value not in get_args(kind):
        raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {shown(value)}")


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
    _check_choice("aggregation", aggregation, Aggregation)
    if (kl is None) != (beta == 0):
        raise ValueError("kl and beta must be given together, or neither")
    others = {"old_log_probs": old_log_probs, "mask": mask, "kl": kl, "token_weights": token_weights}
    _check_shapes(log_probs, {name: tensor for name, tensor in others.items() if tensor is not None})
    if advantages.shape not in (log_probs.shape, log_probs.shape[:1]):
        raise ValueError(
            f"advantages must have shape ({len(log_probs)},) or {tuple(log_probs.shape)}, got {tuple(advantages.shape)}"
        )
    advantages = advantages.unsqueeze(1) if advantages.ndim == 1 else advantages
    if advantages.shape == log_probs.shape:
        advantages = _inside(advantages, mask)
    log_probs = _inside(log_probs, mask)
    log_ratio = log_probs - _inside(old_log_probs, mask)
    losses, ratio, clipped = token_loss(log_probs, log_ratio, advantages, mask)
    if token_weights is not None:
        losses = losses * _inside(token_weights, mask)
    if kl is not None:
        losses = losses + beta * _inside(kl, mask)
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
        mask: ``(N, T)``, 1 at the tokens that count; values at other tokens are ignored.
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
    values, old_values, returns = (_inside(tensor, mask) for tensor in (values, old_values, returns))
    errors = (values - returns).square()
    if clip is not None:
        if clip <= 0:
            raise ValueError(f"clip must be positive or None, got {clip}")
        near = torch.clamp(values, old_values - clip, old_values + clip)
        errors = torch.max(errors, (near - returns).square())
    return 0.5 * _masked_mean(errors, mask)


def _aggregate(losses: Tensor, mask: Tensor, aggregation: Aggregation, normalizer: float | Tensor | None) -> Tensor:
    if aggregation == "sequence_mean":
        return _sequence_mean(losses, mask).mean()
    if aggregation == "sequence_sum":
        return _inside(losses, mask).sum(1).mean()
    total = _inside(losses, mask).sum()
    if aggregation == "token_mean":
        tokens = mask.sum() if normalizer is None else torch.as_tensor(normalizer)
        return total / tokens.clamp(min=1)
    return total / (len(losses) * (losses.shape[1] if normalizer is None else normalizer))


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return _inside(values, mask).sum() / mask.sum().clamp(min=1)


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
    _check_choice("mode", mode, ImportanceMode)
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
    ratios = bounded_exp(differences)
    if treatment == "truncate":
        return ratios.clamp(low, high)
    return ratios.masked_fill((ratios < low) | (ratios > high), 0.0)
