"""Losses of tokens in reinforcement learning, as functions of probability ratios and advantages."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

__all__ = ["Objective", "RatioLevel", "TokenLoss", "check_choice", "sequence_mean"]

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
        check_choice("objective", self.objective, Objective)
        check_choice("level", self.level, RatioLevel)
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
    if level == "token":
        return log_ratio.exp()
    if level == "sequence":
        return sequence_mean(log_ratio, mask).unsqueeze(1).exp()
    return log_ratio.sum(1, keepdim=True).exp()


def _gamma_weights(
    log_ratio: Tensor, advantages: Tensor, positive: tuple[float, float], negative: tuple[float, float]
) -> Tensor:
    # Bounds of the published code; the weight is 0 outside them.
    total = log_ratio.detach().clamp(-20, 20).sum(1, keepdim=True).clamp(math.log(1e-8), 20)
    k, lam = (torch.where(advantages >= 0, *pair) for pair in zip(positive, negative, strict=True))
    return (lam + k * total - lam * total.exp()).exp()


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the means ``(N,)`` of values over the tokens of each sequence."""
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)


def check_choice(name: str, value: str, kind: Any) -> None:
    """Raise unless ``value`` is one of the literals of ``kind``."""
    if value not in get_args(kind):
        raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {value!r}")
