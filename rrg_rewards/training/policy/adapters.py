"""Detection and deactivation of LoRA and other PEFT adapters."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn


def _adapted(module: nn.Module) -> list[Any]:
    # Recognise adapters by attributes instead of PEFT's class, so that PEFT need not be installed.
    return [part for part in module.modules() if hasattr(part, "peft_config") and hasattr(part, "disable_adapter")]


def has_adapters(module: nn.Module) -> bool:
    """Whether the module contains a PEFT model."""
    return bool(_adapted(module))


@contextmanager
def adapters_off(module: nn.Module) -> Iterator[None]:
    """Disable the adapters of the module, and restore the original weights of layers that PEFT trains completely."""
    with ExitStack() as stack:
        for part in _adapted(module):
            stack.enter_context(part.disable_adapter())
        yield


def adapted_layers(module: nn.Module) -> dict[str, Any]:
    """Return the layers with an adapter that can be merged into their weights, by name."""
    return {
        name: part
        for name, part in module.named_modules()
        if hasattr(part, "get_base_layer") and hasattr(part, "merge") and hasattr(part, "base_layer")
    }


@contextmanager
def adapters_merged(module: nn.Module) -> Iterator[None]:
    """Merge the adapters of the module into its weights, and restore the weights exactly afterwards.

    The weights with adapters are stored twice meanwhile.
    """
    layers = [layer for layer in adapted_layers(module).values() if not layer.merged]
    stored = [[(part, part.data.clone()) for part in layer.get_base_layer().parameters()] for layer in layers]
    try:
        for layer in layers:
            layer.merge()
        yield
    finally:
        for layer, parts in zip(layers, stored, strict=True):
            if layer.merged:
                layer.unmerge()
            for part, values in parts:
                # Unmerging subtracts, which leaves rounding errors.
                part.data.copy_(values)
