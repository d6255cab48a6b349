"""Settings of :class:`~rrg_rewards.training.PolicyModule`, their checks, and functions that apply them."""

import copy
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from rrg_rewards.functional import policy_loss
from rrg_rewards.functional.advantages import RewardScale
from rrg_rewards.functional.importance_weights import ImportanceMode, importance_weights
from rrg_rewards.functional.log_probs import KLEstimator
from rrg_rewards.training.policy.adapters import has_adapters

__all__ = [
    "DivergenceSettings",
    "ReferenceName",
    "RolloutSettings",
    "SamplerSettings",
    "ValueSettings",
    "check_generator",
    "make_loss_options",
    "make_value_head",
]

ReferenceName = Literal["auto", "copy", "adapter_off"]

_METHODS = ("sample", "log_probs", "decode")


@dataclass(frozen=True)
class RolloutSettings:
    """Settings of rollouts and of the steps on them; see :class:`~rrg_rewards.training.PolicyModule`."""

    num_generations: int = 8
    minibatches: int = 1
    epochs: int = 1
    scale: RewardScale | None = None
    train_mode: bool = False

    def __post_init__(self) -> None:
        _check_at_least(1, num_generations=self.num_generations, minibatches=self.minibatches, epochs=self.epochs)


@dataclass(frozen=True)
class SamplerSettings:
    """Correction for samples of another program; see :class:`~rrg_rewards.training.PolicyModule`."""

    sampler_correction: ImportanceMode | None = "token_truncate"
    sampler_clip_min: float | None = None
    sampler_clip_max: float | None = 3.0

    def __post_init__(self) -> None:
        # The function checks its arguments. Call it now instead of at the first step.
        self.weights(*[torch.zeros(1, 1)] * 3)

    def weights(self, log_probs: Tensor, sampler_log_probs: Tensor, mask: Tensor) -> Tensor | None:
        """Return the weights of tokens in the policy loss, or ``None`` without correction."""
        if self.sampler_correction is None:
            return None
        return importance_weights(
            log_probs,
            sampler_log_probs,
            mask,
            mode=self.sampler_correction,
            clip_min=self.sampler_clip_min,
            clip_max=self.sampler_clip_max,
        )


@dataclass(frozen=True)
class DivergenceSettings:
    """Settings of the divergence from a reference policy; see :class:`~rrg_rewards.training.PolicyModule`."""

    beta: float = 0.0
    reference: ReferenceName = "auto"
    kl_estimator: KLEstimator = "k3"
    kl_correction: bool = True

    def __post_init__(self) -> None:
        _check_at_least(0, beta=self.beta)
        if self.reference not in get_args(ReferenceName):
            raise ValueError(f"reference must be 'auto', 'copy' or 'adapter_off', got {self.reference!r}")

    def make_reference(self, generator: nn.Module) -> nn.Module | None:
        """Return a frozen copy of the generator, or ``None`` without divergence or for ``"adapter_off"``."""
        if not self.beta:
            return None
        if self.reference == "adapter_off" or (self.reference == "auto" and has_adapters(generator)):
            if not has_adapters(generator):
                raise ValueError("reference='adapter_off' needs a generator with PEFT adapters; this one has none")
            return None
        return copy.deepcopy(generator).requires_grad_(False).eval()


@dataclass(frozen=True)
class ValueSettings:
    """Settings of the value head and the advantages of ``ppo``; see :class:`~rrg_rewards.training.PolicyModule`."""

    gamma: float = 1.0
    lam: float = 0.95
    value_weight: float = 0.1
    value_clip: float | None = 0.2

    def __post_init__(self) -> None:
        _check_at_least(0, value_weight=self.value_weight)


def check_generator(generator: nn.Module) -> None:
    """Check that the generator is a module with the methods of a report generator."""
    missing = [name for name in _METHODS if not callable(getattr(generator, name, None))]
    if not isinstance(generator, nn.Module) or missing:
        what = f"lacks {', '.join(missing)}" if missing else "is no nn.Module"
        raise TypeError(
            f"generator must be a module with sample, log_probs and decode; {type(generator).__name__} {what}"
        )


def make_loss_options(options: dict[str, Any], generator: nn.Module) -> dict[str, Any]:
    """Return checked options of the policy loss, with the maximum length if the loss is divided by it."""
    if own := sorted(options.keys() & {"kl", "beta", "token_weights"}):
        raise ValueError(f"loss must not contain {', '.join(own)}, which the module sets")
    if options.get("aggregation") == "constant" and "normalizer" not in options:
        if not hasattr(generator, "max_new_tokens"):
            raise ValueError(
                "the loss is divided by the maximum length of a completion: give the generator an attribute "
                "max_new_tokens, or loss={'normalizer': ...}"
            )
        options["normalizer"] = generator.max_new_tokens
    # The loss checks its arguments. Call it now instead of at the first step.
    once = torch.zeros(1, 1)
    policy_loss(once, once, once[0], once + 1, **options)
    return options


def make_value_head(generator: nn.Module, seed: int) -> nn.Sequential:
    """Make a value head that predicts 0 for every state."""
    width = getattr(generator, "hidden_size", None)
    if width is None:
        raise ValueError("ppo needs the width of the generator's hidden states: give it an attribute hidden_size")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden, last = nn.Linear(width, width), nn.Linear(width, 1)
    # Predict 0 at first, because random predictions would affect the advantages.
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(hidden, nn.Tanh(), last)


def _check_at_least(least: float, **values: float) -> None:
    for name, value in values.items():
        if not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
