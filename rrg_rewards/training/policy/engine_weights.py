"""The weights of a policy under the names of its checkpoint, for inference engines."""

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from rrg_rewards.training.policy.adapters import adapted_layers

__all__ = ["checkpoint_weights"]


def checkpoint_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a model under the names of its checkpoint, with PEFT adapters merged.

    The model is not changed: layers with adapters are copied one at a time, because merging and unmerging in place
    would add rounding errors to the base weights at each call.

    Args:
        model: A Hugging Face model, or a PEFT model that wraps one.

    Example:
        >>> from torch import nn
        >>> [name for name, _ in checkpoint_weights(nn.Sequential(nn.Linear(2, 1)))]
        ['0.weight', '0.bias']
    """
    adapted = adapted_layers(model)
    for name, parameter in model.named_parameters():
        if not any(name.startswith(f"{layer}.") for layer in adapted) and ".original_module." not in name:
            yield _checkpoint_name(name), parameter.data
    for name, module in adapted.items():
        merged: Any = copy.deepcopy(module)
        merged.merge()
        for part, parameter in merged.get_base_layer().named_parameters():
            yield _checkpoint_name(f"{name}.{part}"), parameter.data


def _checkpoint_name(name: str) -> str:
    return name.removeprefix("base_model.model.").replace("modules_to_save.default.", "")
