"""Errors of checkpoints: what to do if one cannot be written, and whether one belongs to the optimiser of a run."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

# States of optimisers with one number per weight. Others, such as those of 8-bit optimisers, have shapes of their own.
_PER_WEIGHT = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, or does not belong to the run that it should resume."""


def unwritten_message(path: Path, error: BaseException, former: str) -> str:
    """Return the message of an error in writing a checkpoint, with the free space of the disk.

    Args:
        path: The checkpoint, in an existing folder.
        error: The error.
        former: What remains, and how to continue.
    """
    free = shutil.disk_usage(path.parent).free / 1e9
    cause = f"{type(error).__name__}: {error}".splitlines()[0]
    return (
        f"the checkpoint {path} could not be written ({cause}); its disk has {free:.3f} GB of free space. The "
        f"incomplete checkpoint was removed. {former}"
    )


def check_optimizer_state(saved: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], source: str) -> None:
    """Check that a saved state of an optimiser fits the weights of a run.

    Optimisers compare only the numbers of weights. With a state of another shape, fused ones read and write memory
    beyond it without an error.

    Args:
        saved: State of an optimiser, as its ``state_dict`` returns it.
        groups: Parameter groups of the run's optimiser.
        source: Where the state comes from, for the message.

    Raises:
        CheckpointError: If the numbers or shapes of weights, or the settings of groups differ.

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
    saved_groups, states = saved.get("param_groups"), saved.get("state")
    if not isinstance(saved_groups, Sequence) or not isinstance(states, Mapping):
        raise _foreign(source, "it contains no state of an optimiser of torch")
    sizes, expected = ([len(group["params"]) for group in one] for one in (saved_groups, groups))
    if sizes != expected:
        raise _foreign(source, f"it has groups of {sizes} weights, and those of the run have {expected}")
    for index, (theirs, own) in enumerate(zip(saved_groups, groups, strict=True)):
        # Settings that a later version of torch has added get their defaults.
        if unknown := sorted(theirs.keys() - own.keys() - {"param_names"}):
            raise _foreign(source, f"its group {index} has the settings {', '.join(unknown)} of another optimiser")
        for number, weights in zip(theirs["params"], own["params"], strict=True):
            _check_shapes(states.get(number, {}), weights, number, source)


def _check_shapes(state: Mapping[str, Any], weights: Tensor, number: int, source: str) -> None:
    for name in _PER_WEIGHT:
        value = state.get(name)
        if isinstance(value, Tensor) and value.shape != weights.shape:
            raise _foreign(
                source, f"{name} of weight {number} has the shape {tuple(value.shape)}, and not {tuple(weights.shape)}"
            )


def _foreign(source: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{source} belongs to another run: {why}. Resume from a checkpoint of the same model, adapter and optimiser, "
        "or set another output_dir to start again"
    )
