"""Training steps whose loss is a sum over parts of the rows: only the activations of one part are in memory."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

MicroBatchTokens = int | Literal["auto"] | None

# Number of tokens of a part on the CPU. Larger parts take more memory, and are not faster.
_TOKENS_ON_CPU = 4096


def checked_setting(setting: MicroBatchTokens) -> MicroBatchTokens:
    """Return the setting.

    Raises:
        ValueError: If it is not a positive number, ``"auto"`` or ``None``.
    """
    if setting not in (None, "auto") and (not isinstance(setting, int) or setting < 1):
        raise ValueError(f"micro_batch_tokens must be at least 1, 'auto' or None, got {setting!r}")
    return setting


def micro_batch_tokens(setting: MicroBatchTokens, module: Any) -> int | None:
    """Return the number of tokens of a part in training, or ``None`` for steps on all rows at once.

    Raises:
        ValueError: If a number is given for a strategy, a precision or a generator for which steps cannot be divided.
    """
    if setting is None or (setting == "auto" and module.device.type != "cpu"):
        return None
    reason = _reason_against(module)
    if reason is not None and setting != "auto":
        raise ValueError(f"micro_batch_tokens={setting} cannot be used with {reason}; set it to None or 'auto'")
    if reason is not None:
        return None
    return _TOKENS_ON_CPU if setting == "auto" else setting


def _reason_against(module: Any) -> str | None:
    """Return why steps cannot be divided: gradients are computed within the forward pass, before the loss is scaled."""
    strategy = module.trainer.strategy
    if isinstance(strategy, DeepSpeedStrategy) or not isinstance(strategy, SingleDeviceStrategy | DDPStrategy):
        return type(strategy).__name__
    if getattr(strategy.precision_plugin, "scaler", None) is not None:
        return "a gradient scaler (precision='16-mixed')"
    # Batch norms would see parts, and reentrant checkpoints, which are active in training mode only, fail.
    return "train_mode=True" if module.train_mode else None


def divide_rows(lengths: Tensor, group_size: int, tokens: int | None) -> list[Tensor]:
    """Divide rows into parts of at most ``tokens`` tokens with padding, if a group has no more, and of similar lengths.

    The rows of a group stay together, because they share a prompt.

    Args:
        lengths: Lengths of the rows, ``(N,)``.
        group_size: Number of consecutive rows that form a group.
        tokens: Greatest number of tokens, or ``None`` for one part.

    Example:
        >>> [part.tolist() for part in divide_rows(torch.tensor([2, 8, 1, 3, 7, 7]), 2, 16)]
        [[2, 3], [4, 5], [0, 1]]
    """
    if tokens is None or len(lengths) % group_size:
        return [torch.arange(len(lengths))]
    longest = lengths.view(-1, group_size).amax(1).tolist()
    parts: list[list[int]] = []
    for group in sorted(range(len(longest)), key=longest.__getitem__):
        # Groups come in the order of their lengths, so this one determines the width of its part.
        if not parts or (len(parts[-1]) + 1) * group_size * longest[group] > tokens:
            parts.append([])
        parts[-1].append(group)
    offsets = torch.arange(group_size)
    return [(torch.tensor(part).unsqueeze(1) * group_size + offsets).flatten() for part in parts]


def sum_of_losses(losses: Sequence[Callable[[], Tensor]], module: nn.Module) -> Tensor:
    """Return the sum of losses, whose gradients are computed one after the other, before the next loss.

    Args:
        losses: Functions that compute a loss with gradient.
        module: The module with the parameters of the losses.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    total: Tensor = _SumOfLosses.apply(losses, *parameters)  # type: ignore[no-untyped-call]
    return total


class _SumOfLosses(torch.autograd.Function):
    """Computes gradients in the forward pass; the backward pass scales them."""

    @staticmethod
    def forward(ctx: Any, losses: Sequence[Callable[[], Tensor]], *parameters: Tensor) -> Tensor:
        total: Tensor | None = None
        gradients: list[Tensor | None] = [None] * len(parameters)
        for compute in losses:
            with torch.enable_grad():
                loss = compute()
                new = torch.autograd.grad(loss, parameters, allow_unused=True)
            for index, gradient in enumerate(new):
                known = gradients[index]
                if gradient is not None:
                    gradients[index] = gradient if known is None else known.add_(gradient)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        ctx.gradients = gradients
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> Any:
        gradients, ctx.gradients = ctx.gradients, None
        return None, *(None if gradient is None else gradient.mul_(scale) for gradient in gradients)
