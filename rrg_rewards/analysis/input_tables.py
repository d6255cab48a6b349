"""Tables of an analysis: how they are read, how columns are added to them, and how they are written meanwhile."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rrg_rewards.data.tables.table import EMPTY_CELL, Table, table_format
from rrg_rewards.data.tables.writers import open_table
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.texts import find_placeholders, placeholder_message


def with_new_columns(
    table: Table, columns: Mapping[str, Sequence[Any]], types: Mapping[str, str], prefix: str, log: RunLog
) -> Table:
    """Return a batch with columns added as ``prefix`` + name, and their Arrow types.

    The types are given because a batch may have only missing cells. At the first batch, a warning names the input
    columns that are replaced.
    """
    named = {prefix + name: cells for name, cells in columns.items()}
    replaced = [name for name in named if name in table.columns]
    if replaced and not table.first:
        log.warn(
            f"the output replaces {len(replaced)} input column(s) of the same name: {', '.join(replaced)}; "
            "`prefix` keeps both"
        )
    new = {prefix + name: kind for name, kind in types.items()}
    wider = table.with_columns(named)
    return replace(wider, types={**wider.types, **new})


@dataclass(frozen=True)
class TableSink:
    """A table to write while its rows are computed.

    Args:
        path: Path of the table; ``-`` is standard output.
        format: Format of the table, if its ending does not say it.
        overwrite: Whether to replace a file that exists.
        spreadsheet_safe: As for :func:`~rrg_rewards.data.write_table`.
    """

    path: str
    format: str | None = None
    overwrite: bool = False
    spreadsheet_safe: bool = False

    @property
    def is_parquet(self) -> bool:
        """Whether the types of all columns must be known before the first row is written."""
        return table_format(self.path, self.format) == "parquet"

    def write(self, tables: Iterator[Table], types: Mapping[str, Any], content: str, rows: int, log: RunLog) -> None:
        """Write tables while they are computed.

        If they cannot be written, the others are computed nevertheless, and the error is raised at the end. If the
        computation fails, the rows so far are kept.

        Args:
            tables: The tables.
            types: Arrow types of the columns of Parquet.
            content: What was computed, for the warning that some rows are kept.
            rows: Number of all rows.
            log: Receives the warning.
        """

        def report_partial(name: str, written: int) -> None:
            log.warn(f"{name} contains the {content} of the first {written} of {rows} rows")

        try:
            with open_table(
                self.path, self.format, self.overwrite, types, report_partial, self.spreadsheet_safe
            ) as writer:
                for table in tables:
                    writer.write(table)
        except BrokenPipeError:
            raise
        except Exception:
            # Does nothing if it is the computation that failed.
            deque(tables, maxlen=0)
            raise


class PlaceholderCounts:
    """Counts texts such as ``NaN`` in the columns of a table that is read in batches.

    Example:
        >>> counts = PlaceholderCounts()
        >>> counts.add("report", ["Normal.", "nan"])
        >>> next(counts.messages(2))  # doctest: +ELLIPSIS
        "1 of 2 texts in column 'report' are words such as 'nan', which stand for a missing report: ..."
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
