"""Detection and deactivation of LoRA and other PEFT adapters."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

__all__ = ["adapters_off", "has_adapters"]


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
