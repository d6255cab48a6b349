"""Tables of an analysis: how they are read, and how columns are added to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.table import Table
from rrg_rewards.utilities.run_log import RunLog


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
