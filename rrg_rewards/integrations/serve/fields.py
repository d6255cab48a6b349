"""Fields of requests, with errors that name the field and the row but quote no text."""

from collections.abc import Mapping
from typing import Any

from rrg_rewards.integrations.common.columns import read_row
from rrg_rewards.integrations.serve.errors import RequestError
from rrg_rewards.integrations.serve.settings import ServerOptions

__all__ = ["listed", "named_columns", "same_length"]


def listed(body: Mapping[str, Any], name: str, kind: type | None = None) -> list[Any]:
    """Return a field that must be a list, optionally of values of one type.

    Raises:
        RequestError: If it is not.

    Example:
        >>> listed({"query": ["No effusion."]}, "query", str)
        ['No effusion.']
    """
    if name not in body:
        raise RequestError(422, f"the request lacks {name!r}, a list with a value for each completion")
    values = body[name]
    if not isinstance(values, list):
        raise RequestError(422, f"{name} must be a list, got {type(values).__name__}")
    for row, value in enumerate(values):
        if kind is not None and not isinstance(value, kind):
            raise RequestError(422, f"{name}[{row}] must be {kind.__name__}, got {type(value).__name__}")
    return values


def same_length(body: Mapping[str, Any], name: str, length: int, kind: type | None = None) -> list[Any]:
    """Return a field that must be a list of ``length`` values; see :func:`listed`."""
    values = listed(body, name, kind)
    if len(values) != length:
        raise RequestError(422, f"{name} has {len(values)} values, but the number of completions is {length}")
    return values


def named_columns(label: Any, options: ServerOptions, where: str) -> Mapping[str, Any]:
    """Return the columns of the reward from one label: a reference, or the columns as a JSON object or in JSON.

    Args:
        label: The label.
        options: The reward.
        where: Name of the field in errors.

    Raises:
        RequestError: If the label lacks a column.
    """
    row = read_row(label, options.reference_column)
    for name in options.reward.columns:
        if name not in row:
            raise RequestError(
                422,
                f"{where} lacks the column {name!r}; a label must be the reference, or a JSON object of all columns",
            )
    return {name: row[name] for name in options.reward.columns}
