"""Excel workbooks as tables."""

import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from typing import Any, BinaryIO

from rrg_rewards.data.tables.table import Table, TableError, check_header
from rrg_rewards.utilities.imports import require


def parse_xlsx(file: BinaryIO, source: str, rows: int | None = None) -> Iterator[Table]:
    """Yield the rows of an Excel workbook (``.xlsx``) in tables.

    The workbook has one sheet with content, and the names of the columns in its first row. Cells are text, numbers and
    booleans; a formula has the value that was saved with it. Dates become text as ``2024-01-31``. Empty rows are
    skipped. Lines in messages are the rows of the sheet.

    Args:
        file: The file.
        source: Name of the file in messages.
        rows: Maximum number of rows in a table; ``None`` for one table.

    Yields:
        Tables with the same columns; at least one, which may have no rows.

    Raises:
        TableError: If the file is no workbook, several sheets have content, a column has no name, or a name is
            repeated.
        ModuleNotFoundError: Without openpyxl. The message gives the pip command.
    """
    numbered = _rows(_sheet(file, source))
    header_row, header = next(numbered, (0, ()))
    if not header_row:
        raise TableError(f"{source}: is empty; a table has a row of names at least")
    names = _names(header, source)
    first = 0
    batch: list[tuple[int, Sequence[Any]]] = []
    for number, cells in numbered:
        if any(cell is not None for cell in cells[len(names) :]):
            raise TableError(
                f"{source}: data row {first + len(batch) + 1} (line {number}): has a cell beyond the last column, "
                f"{names[-1]!r}; give each column a name"
            )
        batch.append((number, cells))
        if len(batch) == rows:
            yield _table(batch, names, source, first)
            first += len(batch)
            batch = []
    if batch or not first:
        yield _table(batch, names, source, first)


def _sheet(file: BinaryIO, source: str) -> Any:
    """Return the only sheet with content."""
    openpyxl = require("openpyxl", extra="xlsx")
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        sheets = [sheet for sheet in book.worksheets if next(_rows(sheet), None) is not None]
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, openpyxl.utils.exceptions.InvalidFileException) as error:
        raise TableError(f"{source}: not a readable Excel workbook: {error}") from error
    if len(sheets) > 1:
        titles = ", ".join(repr(sheet.title) for sheet in sheets)
        raise TableError(f"{source}: {len(sheets)} sheets have content, {titles}; save the one to read as CSV")
    return sheets[0] if sheets else book.worksheets[0]


def _rows(sheet: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the number and the cells of each row with content."""
    for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
        if any(cell is not None for cell in cells):
            yield number, cells


def _names(header: Sequence[Any], source: str) -> list[str]:
    last = max(place for place, cell in enumerate(header) if cell is not None)
    # The first column of a table that pandas wrote with its index has no name, as in CSV.
    names = ["" if cell is None else str(cell) for cell in header[: last + 1]]
    if "" in names[1:]:
        raise TableError(f"{source}: column {names.index('', 1) + 1} has no name")
    check_header(names, source)
    return names


def _table(batch: Sequence[tuple[int, Sequence[Any]]], names: Sequence[str], source: str, first: int) -> Table:
    columns = {
        name: [_value(cells[place]) if place < len(cells) else None for _, cells in batch]
        for place, name in enumerate(names)
    }
    return Table(columns, source, tuple(number for number, _ in batch), first=first)


def _value(cell: Any) -> Any:
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    return cell.isoformat() if isinstance(cell, date | time) else cell
