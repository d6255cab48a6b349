"""Arithmetic: the type that a device computes fastest, and independence of the precision of a surrounding training."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch

_DEVICES = ("cpu", "cuda", "xpu", "mps")
# Names of torch.cpu.get_capabilities: x86 and Arm.
_BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")
# The first NVIDIA GPUs that multiply matrices in bfloat16: A100 and its contemporaries.
_AMPERE = (8, 0)


def cpu_computes_in_bfloat16() -> bool | None:
    """Return whether the CPU has instructions for products in bfloat16, or ``None`` if torch cannot tell.

    These are AMX and AVX-512 BF16 on x86, and BF16 on Arm. Without them, bfloat16 is slower than float32. Torch uses
    them through oneDNN; without it, as in torch's builds for Apple's processors, the result is false.

    Example:
        >>> cpu_computes_in_bfloat16() in (True, False, None)
        True
    """
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    if not capabilities:
        return None
    onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return onednn and any(capabilities.get(name, False) for name in _BFLOAT16)


def fastest_dtype(device: torch.device) -> Literal["float32", "bfloat16"]:
    """Return the type in which a device runs a model fastest, among those with the range of float32.

    - CPU: ``bfloat16`` if the CPU has instructions for it (:func:`cpu_computes_in_bfloat16`), else ``float32``.
    - CUDA: ``bfloat16`` from compute capability 8.0 on, else ``float32``. Older GPUs have float16 only, in which large
      language models can overflow.
    - Other devices, among them MPS: ``float32``, because it is not measured whether bfloat16 gains there.

    Args:
        device: The device.

    Example:
        >>> fastest_dtype(torch.device("mps"))
        'float32'
    """
    if device.type == "cpu":
        return "bfloat16" if cpu_computes_in_bfloat16() else "float32"
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.get_device_capability(device) >= _AMPERE else "float32"
    return "float32"


@contextmanager
def own_precision() -> Iterator[None]:
    """Compute with float32 as torch's default type and without autocast within the context.

    Trainers change both in their steps: Lightning's ``bf16-true`` makes bfloat16 the default type, and ``bf16-mixed``
    switches autocast on. A metric must give the same value in every training, and the models of metrics must keep the
    type in which they were trained. The default type belongs to the process, so other threads see it, too. It is only
    set if it differs.

    Example:
        >>> import torch
        >>> with torch.autocast("cpu", dtype=torch.bfloat16), own_precision():
        ...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
        torch.float32
    """
    before = torch.get_default_dtype()
    with ExitStack() as stack:
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if before != torch.float32:
            torch.set_default_dtype(torch.float32)
            stack.callback(torch.set_default_dtype, before)
        yield
