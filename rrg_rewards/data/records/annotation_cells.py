"""Checks of the columns and cells of annotation files, for their readers."""

import math
from collections.abc import Collection, Sequence
from typing import Any

from rrg_rewards.data.tables.table import Table, TableError, is_missing


class AnnotationWarning(UserWarning):
    """Annotations that are incomplete, or that contradict each other."""


def check_names(found: Collection[str], required: Sequence[str], where: str, advice: str = "") -> None:
    """Check that all columns (or keys) of a layout exist.

    Args:
        found: Names in the file.
        required: Names that the layout has.
        where: The file, for messages.
        advice: What the user can do, for messages.

    Raises:
        TableError: If a name is missing. The message lists all missing names and all names of the file.

    Example:
        >>> check_names(["gt", "output"], ["gt", "pred"], "pairs.csv", "pass columns")
        Traceback (most recent call last):
        ...
        rrg_rewards.data.tables.table.TableError: pairs.csv: lacks pred; it has gt, output; pass columns
    """
    if missing := [name for name in required if name not in found]:
        remedy = f"; {advice}" if advice else ""
        raise TableError(f"{where}: lacks {', '.join(missing)}; it has {', '.join(map(str, found))}{remedy}")


def number_cell(table: Table, row: int, name: str) -> float | None:
    """Return the cell of a number from 0 on, ``None`` if it is empty.

    Raises:
        TableError: If the cell is not such a number. The message names the row and the column.

    Example:
        >>> number_cell(Table({"count": ["2", None]}), 0, "count"), number_cell(Table({"count": [" "]}), 0, "count")
        (2.0, None)
    """
    text = cell_text(table, row, name)
    return parse_number(table.column(name)[row], f"{table.where(row)}, column {name!r}") if text else None


def cell_text(table: Table, row: int, name: str) -> str:
    """Return a cell as text without surrounding spaces, ``""`` if it is missing.

    Example:
        >>> table = Table({"study": [" s1 ", 7, None, float("nan")]})
        >>> [cell_text(table, row, "study") for row in range(len(table))]
        ['s1', '7', '', '']
    """
    cell = table.column(name)[row]
    return "" if is_missing(cell) else str(cell).strip()


def parse_number(value: Any, where: str) -> float:
    """Return a value that is a number from 0 on, or its text.

    Raises:
        TableError: If it is not. The message begins with ``where``.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < math.inf:
        raise TableError(f"{where}: must be a number from 0 on, got {value!r}")
    return number


def sum_if_complete(counts: Sequence[float | None]) -> float | None:
    """Return the sum of counts, ``None`` if one of them is missing.

    Example:
        >>> sum_if_complete([1.0, 2.0]), sum_if_complete([1.0, None])
        (3.0, None)
    """
    known = [count for count in counts if count is not None]
    return math.fsum(known) if len(known) == len(counts) else None
