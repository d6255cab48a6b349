"""Arithmetic that does not depend on the precision of the surrounding training."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_DEVICES = ("cpu", "cuda", "xpu", "mps")


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
