"""Context columns of metrics in the forms that users and data loaders give them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.utilities.checks import check_same_length

__all__ = ["Column", "read_column"]

Column = Sequence[Any] | Tensor
"""A context column of ``N`` values: a sequence, or a tensor whose first dimension is ``N``."""


def read_column(name: str, column: Column, num_rows: int) -> Sequence[Any]:
    """Return a context column as a sequence of ``num_rows`` plain values.

    The default collation of data loaders turns ``N`` numbers into a tensor ``(N,)``, and ``N`` lists of ``L`` labels
    into a list of ``L`` tensors ``(N,)``, one for each label. Such a list is transposed.

    Args:
        name: Name of the column, for messages.
        column: The column.
        num_rows: Number of report pairs.

    Raises:
        TypeError: If the argument is not a column.
        ValueError: If the number of values is wrong, or ``N`` tensors ``(N,)`` may be rows or collated columns.

    Example:
        >>> import torch
        >>> read_column("target_labels", [torch.tensor([1, 0]), torch.tensor([0, 0]), torch.tensor([1, 1])], 2)
        [[1, 0, 1], [0, 0, 1]]
    """
    if isinstance(column, list | tuple) and column and all(isinstance(value, Tensor) for value in column):
        column = _stacked(name, column, num_rows)
    if hasattr(column, "tolist"):
        column = column.tolist()
    if isinstance(column, str) or not hasattr(column, "__len__"):
        raise TypeError(f"{name} must be a column of {num_rows} values, got {type(column).__name__}")
    check_same_length("preds", range(num_rows), name, column)
    return column


def _stacked(name: str, tensors: Sequence[Tensor], num_rows: int) -> Column:
    """Return a list of tensors as one tensor whose first dimension is the report pairs."""
    if len({tensor.shape for tensor in tensors}) > 1 or tensors[0].ndim > 1:
        return tensors
    stacked = torch.stack([*tensors])
    if tensors[0].ndim == 0 or len(tensors[0]) != num_rows:
        return stacked
    if len(tensors) == num_rows and not torch.equal(stacked, stacked.T):
        raise ValueError(
            f"{name} is a list of {num_rows} tensors of {num_rows} values, which may be rows or the columns that a "
            f"data loader makes of rows; pass one tensor: torch.stack({name}) of rows, torch.stack({name}, 1) of "
            "columns"
        )
    return stacked.T
