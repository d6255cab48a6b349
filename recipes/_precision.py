"""Warn of bfloat16 on a CPU without instructions for it."""

import logging
from typing import Any

import torch

__all__ = ["computes_in_bfloat16", "warn_of_slow_bfloat16"]

logger = logging.getLogger(__name__)

# Names of torch.cpu.get_capabilities: x86 and ARM.
_BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")


def computes_in_bfloat16() -> bool | None:
    """Return whether the CPU has instructions for bfloat16, or ``None`` if torch does not know."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in _BFLOAT16) if capabilities else None


def warn_of_slow_bfloat16(training: Any, model: Any) -> None:
    """Log a warning if a run uses bfloat16 on a CPU that computes it much more slowly than float32.

    Args:
        training: Arguments of a trainer of transformers, or ``PolicyTraining``.
        model: TRL's ``ModelConfig``.
    """
    on_cpu = getattr(training, "use_cpu", False) or not getattr(torch, "accelerator", torch.cuda).is_available()
    weights = str(getattr(model, "dtype", None)).endswith("bfloat16")
    mixed = bool(getattr(training, "bf16", False)) or getattr(training, "precision", "").startswith("bf16")
    if on_cpu and (weights or mixed) and computes_in_bfloat16() is False:
        logger.warning(
            "this CPU has no instructions for bfloat16 (AMX or AVX-512 BF16), and a step can take several times as "
            "long as in float32; set dtype: float32 and %s",
            "precision: 32-true" if hasattr(training, "precision") else "bf16: false",
        )
