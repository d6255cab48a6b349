"""Tables of an analysis: how they are read, and how columns are added to them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.table import EMPTY_CELL, Table
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.texts import find_placeholders, placeholder_message


@dataclass(frozen=True)
class TableOptions:
    """How tables are read.

    Args:
        format: Format of tables with an unknown ending.
        delimiter: Delimiter of CSV tables. Default: by their header.
    """

    format: str | None = None
    delimiter: str | None = None


def note_delimiter(table: Table, source: str | Path, delimiter: str | None, log: RunLog) -> None:
    """Say if a table is not separated by commas, unless its delimiter is set."""
    if table.delimiter != "," and delimiter is None:
        log.note(f"{source} is separated by {'tabs' if table.delimiter == chr(9) else 'semicolons'}")


def with_new_columns(table: Table, columns: Mapping[str, Sequence[Any]], prefix: str, log: RunLog | None) -> Table:
    """Return the table with columns added as ``prefix`` + name; tell a log if they replace input columns."""
    named = {prefix + name: cells for name, cells in columns.items()}
    replaced = [name for name in named if name in table.columns]
    if replaced and log is not None:
        log.warn(
            f"the output replaces {len(replaced)} input column(s) of the same name: {', '.join(replaced)}; "
            "--prefix TEXT keeps both"
        )
    return table.with_columns(named)


class PlaceholderCounts:
    """Counts texts such as ``NaN`` in the columns of a table that is read in batches.

    Example:
        >>> counts = PlaceholderCounts()
        >>> counts.add("report", ["Normal.", "nan"])
        >>> next(counts.messages(2))  # doctest: +ELLIPSIS
        "1 of 2 texts in column 'report' are words such as 'nan' and count as reports; ..."
    """

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def add(self, column: str, texts: Iterable[str | None]) -> None:
        """Count the texts of a batch."""
        if words := find_placeholders(texts):
            self._found[column] += len(words)
            self._examples.setdefault(column, words[0])

    def messages(self, rows: int, source: str | None = None) -> Iterator[str]:
        """Yield the warning about each column that has such texts.

        Args:
            rows: Number of rows of the table.
            source: Name of the table.
        """
        for column, found in self._found.items():
            where = f"column {column!r}" + ("" if source is None else f" of {source}")
            yield placeholder_message(where, found, rows, self._examples[column], EMPTY_CELL)
