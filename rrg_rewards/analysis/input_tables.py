"""How the tables of an analysis are read."""

from dataclasses import dataclass
from pathlib import Path

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
