"""LoRA and other PEFT adapters of a model: whether it has any, and the model without them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

__all__ = ["adapters_off", "has_adapters"]


def _adapted(module: nn.Module) -> list[Any]:
    # By PEFT's method and not by its class: PEFT is not needed where there are no adapters.
    return [part for part in module.modules() if hasattr(part, "peft_config") and hasattr(part, "disable_adapter")]


def has_adapters(module: nn.Module) -> bool:
    """Whether a part of the module is a PEFT model."""
    return bool(_adapted(module))


@contextmanager
def adapters_off(module: nn.Module) -> Iterator[None]:
    """The module as it would be without its adapters, parts that PEFT trains whole beside them included."""
    with ExitStack() as stack:
        for part in _adapted(module):
            stack.enter_context(part.disable_adapter())
        yield
