"""Relative error of tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor


def relative_error(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the L2 norm of the differences divided by that of the expected values, over all tensors together."""
    pairs = [(a.detach().double().cpu(), b.detach().double().cpu()) for a, b in zip(found, expected, strict=True)]
    difference = torch.stack([(a - b).square().sum() for a, b in pairs]).sum()
    return float((difference / torch.stack([b.square().sum() for _, b in pairs]).sum()).sqrt())
