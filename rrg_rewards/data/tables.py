"""Tables of reports in memory: named columns whose errors say file, row and column."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["FORMATS", "STANDARD", "Table", "TableError", "table_format"]

STANDARD = "-"
"""The path that stands for standard input and output."""

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""Table formats by file ending."""


class TableError(ValueError):
    """Something wrong with a table, told in terms of its file, rows and columns."""


def table_format(path: str | Path, fallback: str | None = None) -> str:
    """Tell a table's format by the ending of its path.

    Args:
        path: Path of a table, or ``-`` for standard input or output.
        fallback: Format where the ending tells nothing: ``csv``, ``jsonl`` or ``parquet``. Standard input and output
            are CSV by default.

    Raises:
        TableError: For an unknown ending without a fallback.

    Example:
        >>> table_format("reports.JSONL"), table_format("-"), table_format("reports.txt", fallback="csv")
        ('jsonl', 'csv', 'csv')
    """
    if str(path) == STANDARD:
        return fallback or "csv"
    ending = Path(path).suffix.lower()
    known = FORMATS.get(ending, fallback)
    if known is None:
        kind = f"the ending {ending!r}" if ending else "no ending"
        raise TableError(f"{path}: {kind} does not tell the table's format; use one of {', '.join(FORMATS)}")
    return known


@dataclass(frozen=True)
class Table:
    """A table in memory: columns of equal length by name, in order.

    Args:
        columns: Cells by column name; ``None`` where a cell is missing.
        source: What messages call the table: its path, usually.
        lines: Line of the file on which each row starts, where rows have lines.
        types: Arrow types of columns that came from Parquet, so that they go back as they were.

    Raises:
        TableError: If columns differ in length.

    Example:
        >>> table = Table({"id": ["a", "b"], "report": ["Normal.", None]}, source="reports.csv", lines=(2, 3))
        >>> len(table), table.names, table.where(1)
        (2, ('id', 'report'), 'reports.csv: data row 2 (line 3)')
    """

    columns: Mapping[str, Sequence[Any]]
    source: str = "table"
    lines: Sequence[int] | None = None
    types: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {name: len(cells) for name, cells in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise TableError(f"{self.source}: columns must have the same length, got {lengths}")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(self.columns)

    def where(self, row: int) -> str:
        """Name a row (counted from 0) as a reader of the file would: by data row from 1, and by line."""
        line = "" if self.lines is None else f" (line {self.lines[row]})"
        return f"{self.source}: data row {row + 1}{line}"

    def column(self, name: str) -> Sequence[Any]:
        """Cells of one column.

        Raises:
            TableError: If there is no such column, with the nearest one and all that exist.

        Example:
            >>> Table({"report": ["Normal."]}, source="reports.csv").column("reports")
            Traceback (most recent call last):
            ...
            rrg_rewards.data.tables.TableError: reports.csv: unknown column 'reports'; did you mean 'report'?
            Known: report
        """
        if name not in self.columns:
            raise TableError(f"{self.source}: {unknown_name_message('column', name, self.columns)}")
        return self.columns[name]

    def texts(self, name: str) -> list[str | None]:
        """Report texts of one column; ``None`` where a report is missing.

        A report is missing where its cell is: null in JSONL and Parquet (or NaN, which pandas writes for it), and empty
        in CSV, which has no other way to say so. Empty text in JSONL and Parquet is text.

        Raises:
            TableError: If there is no such column, or a cell is no text, by its row.

        Example:
            >>> Table({"report": ["Normal.", "", None, float("nan")]}).texts("report")
            ['Normal.', '', None, None]
        """
        texts: list[str | None] = []
        for row, cell in enumerate(self.column(name)):
            if _is_missing(cell):
                texts.append(None)
            elif isinstance(cell, str):
                texts.append(cell)
            else:
                raise TableError(
                    f"{self.where(row)}, column {name!r}: must be a report text, got {type(cell).__name__} {cell!r}"
                )
        return texts

    def required_texts(self, name: str) -> list[str]:
        """Report texts of one column that must have one in each row.

        Raises:
            TableError: As :meth:`texts`; if a report is missing, by its row.

        Example:
            >>> Table({"report": ["Normal.", None]}, source="reports.jsonl").required_texts("report")
            Traceback (most recent call last):
            ...
            rrg_rewards.data.tables.TableError: reports.jsonl: data row 2, column 'report': is missing; leave the row
            out
        """
        texts: list[str] = []
        for row, text in enumerate(self.texts(name)):
            if text is None:
                raise TableError(f"{self.where(row)}, column {name!r}: is missing; leave the row out")
            texts.append(text)
        return texts

    def labels(self, names: Sequence[str]) -> list[tuple[int, ...] | None]:
        """Rows of 0/1 labels from several columns; ``None`` where all cells of a row are missing.

        Args:
            names: Columns, one a label. Cells may be 0, 1, false or true, as numbers or text.

        Raises:
            TableError: If a column does not exist, or a cell is no label, by its row and column.

        Example:
            >>> Table({"Edema": ["1", None], "Fracture": ["0", None]}).labels(["Edema", "Fracture"])
            [(1, 0), None]
        """
        columns = [self.column(name) for name in names]
        rows: list[tuple[int, ...] | None] = []
        for row, cells in enumerate(zip(*columns, strict=True)):
            if all(map(_is_missing, cells)):
                rows.append(None)
            else:
                rows.append(tuple(self._label(row, name, cell) for name, cell in zip(names, cells, strict=True)))
        return rows

    def _label(self, row: int, name: str, cell: Any) -> int:
        label = _LABELS.get(cell.strip().lower() if isinstance(cell, str) else str(cell).lower())
        if label is None:
            raise TableError(
                f"{self.where(row)}, column {name!r}: must be a label of 0 or 1, got {cell!r}; map uncertain and "
                "missing labels first"
            )
        return label

    def with_columns(self, columns: Mapping[str, Sequence[Any]]) -> "Table":
        """Add columns at the end; one that exists already is replaced where it stands.

        Example:
            >>> Table({"id": ["a"], "crg": ["0"]}).with_columns({"crg": [0.5], "recall": [1.0]}).columns
            {'id': ['a'], 'crg': [0.5], 'recall': [1.0]}
        """
        types = {name: kind for name, kind in self.types.items() if name not in columns}
        return replace(self, columns={**self.columns, **columns}, types=types)


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


_LABELS = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}
