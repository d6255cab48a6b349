"""Columns of a completion that trainers pass as one string, as JSON, or beside the reference."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any


def read_row(
    reference: Any,
    reference_column: str,
    beside: Mapping[str, Any] | None = None,
    names: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return the columns of one completion.

    Values of numpy, as Parquet readers yield them, become those of Python if they are read. Features of images are
    columns, too, and converting them takes longer than the reward.

    Args:
        reference: The trainer's one value for a completion (its label, answer or ground truth): the reference report,
            or a mapping of columns, or this mapping as JSON.
        reference_column: Column of a reference that is a plain text.
        beside: Further columns that the trainer passes; those of ``reference`` have priority.
        names: Columns that are read. Default: all.

    Raises:
        ValueError: If ``reference`` is JSON that is nested too deeply to be read.

    Example:
        >>> read_row("Cardiomegaly.", "report")
        {'report': 'Cardiomegaly.'}
        >>> read_row('{"report": "Cardiomegaly.", "age": 66}', "report", {"site": "A"})
        {'site': 'A', 'report': 'Cardiomegaly.', 'age': 66}
    """
    packed = _unpacked(reference)
    row = {**(beside or {}), **({reference_column: reference} if packed is None else packed)}
    return {name: _plain(value) if names is None or name in names else value for name, value in row.items()}


def gather_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the named columns of rows.

    Raises:
        ValueError: If a row lacks a column; the message names it.

    Example:
        >>> gather_columns([{"report": "Normal.", "age": 66}], ["report"])
        {'report': ['Normal.']}
    """
    for place, row in enumerate(rows):
        if missing := [name for name in names if name not in row]:
            raise ValueError(
                f"row {place} lacks the column {missing[0]!r}, read by the reward; it has {', '.join(row) or 'none'}. "
                "Pass it beside the reference, or pass a JSON object of all columns in place of the reference"
            )
    return {name: [row[name] for row in rows] for name in names}


def _unpacked(reference: Any) -> dict[str, Any] | None:
    """Return the columns in a reference, or ``None`` if it is a report."""
    if isinstance(reference, str) and reference.lstrip().startswith("{"):
        try:
            reference = json.loads(reference)
        except ValueError:
            return None  # A report that begins with a brace.
        except RecursionError:
            raise ValueError(
                "the reference is JSON that is nested too deeply; pass the report itself, or a JSON object whose "
                "values are the columns of the reward"
            ) from None
    if not isinstance(reference, Mapping):
        return None
    return {str(name): value for name, value in reference.items()}


def _plain(value: Any) -> Any:
    """Return numpy scalars and arrays as numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else value
