"""Whether a checkpoint belongs to the optimiser of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

# States of optimisers with one number per weight. Others, such as those of 8-bit optimisers, have shapes of their own.
_PER_WEIGHT = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")


class CheckpointError(RuntimeError):
    """A checkpoint does not belong to the run that it should resume."""


def check_optimizer_state(saved: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], source: str) -> None:
    """Check that the shapes of a saved state of an optimiser fit the weights of a run.

    Optimisers compare numbers of weights themselves, but no shapes. With a state of another shape, fused ones read and
    write memory beyond it without an error.

    Args:
        saved: State of an optimiser, as its ``state_dict`` returns it.
        groups: Parameter groups of the run's optimiser.
        source: Where the state comes from, for the message.

    Raises:
        CheckpointError: If shapes differ.

    Example:
        >>> import torch
        >>> def trained(*shape):
        ...     weights = torch.ones(*shape, requires_grad=True)
        ...     optimizer = torch.optim.AdamW([weights])
        ...     weights.sum().backward()
        ...     optimizer.step()
        ...     return optimizer
        >>> check_optimizer_state(trained(3).state_dict(), trained(2).param_groups, "optimizer.pt")
        Traceback (most recent call last):
        ...
        rrg_rewards.utilities.checkpoints.CheckpointError: optimizer.pt belongs to another run: ...
    """
    for theirs, own in zip(saved["param_groups"], groups, strict=False):
        for number, weights in zip(theirs["params"], own["params"], strict=False):
            for name, value in saved["state"].get(number, {}).items():
                if name in _PER_WEIGHT and value.shape != weights.shape:
                    raise CheckpointError(
                        f"{source} belongs to another run: {name} of weight {number} has the shape "
                        f"{tuple(value.shape)}, and not {tuple(weights.shape)}. Resume from a checkpoint of the same "
                        "model, adapter and optimiser, or set another output_dir to start again"
                    )
