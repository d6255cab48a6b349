"""Checks of a policy's settings, and what is made of them."""

import copy
from typing import Any, Literal, get_args

import torch
from torch import nn

from rrg_rewards.functional import policy_loss
from rrg_rewards.training.adapters import has_adapters

__all__ = ["ReferenceName", "check_generator", "loss_options", "make_reference", "make_value_head"]

ReferenceName = Literal["auto", "copy", "adapter_off"]

_METHODS = ("sample", "log_probs", "decode")


def check_generator(generator: nn.Module) -> None:
    """Raise unless it is a module with the methods of a report generator."""
    missing = [name for name in _METHODS if not callable(getattr(generator, name, None))]
    if not isinstance(generator, nn.Module) or missing:
        what = f"lacks {', '.join(missing)}" if missing else "is no nn.Module"
        raise TypeError(
            f"generator must be a module with sample, log_probs and decode; {type(generator).__name__} {what}"
        )


def loss_options(options: dict[str, Any], generator: nn.Module) -> dict[str, Any]:
    """Options of the policy's loss, checked, with the greatest length where it divides the loss."""
    if own := sorted(options.keys() & {"kl", "beta", "token_weights"}):
        raise ValueError(f"loss must not hold {', '.join(own)}, which the module itself gives")
    if options.get("aggregation") == "constant" and "normalizer" not in options:
        if not hasattr(generator, "max_new_tokens"):
            raise ValueError(
                "the loss is divided by the greatest length of a completion: give the generator an attribute "
                "max_new_tokens, or loss={'normalizer': ...}"
            )
        options["normalizer"] = generator.max_new_tokens
    # Now, and not at the first step.
    once = torch.zeros(1, 1)
    policy_loss(once, once, once[0], once + 1, **options)
    return options


def make_value_head(generator: nn.Module, seed: int) -> nn.Sequential:
    """A head that expects a reward of 0 of every state."""
    width = getattr(generator, "hidden_size", None)
    if width is None:
        raise ValueError("ppo needs the width of the generator's states: give it an attribute hidden_size")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden, last = nn.Linear(width, width), nn.Linear(width, 1)
    # Nothing is expected at first: a random guess would be taken for an advantage.
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(hidden, nn.Tanh(), last)


def make_reference(generator: nn.Module, kind: ReferenceName) -> nn.Module | None:
    """A frozen copy, or ``None`` where the adapters are turned off instead."""
    if kind not in get_args(ReferenceName):
        raise ValueError(f"reference must be 'auto', 'copy' or 'adapter_off', got {kind!r}")
    if kind == "adapter_off" or (kind == "auto" and has_adapters(generator)):
        if not has_adapters(generator):
            raise ValueError("reference='adapter_off' needs a generator with PEFT adapters; this one has none")
        return None
    return copy.deepcopy(generator).requires_grad_(False).eval()
