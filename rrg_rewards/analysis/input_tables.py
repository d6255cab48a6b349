"""Tables that an analysis reads, with notes on how they were read."""

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table
from rrg_rewards.utilities.run_log import RunLog


def note_delimiter(table: Table, source: str, delimiter: str | None, log: RunLog) -> None:
    """Say if a table is not separated by commas, unless its delimiter is set."""
    if table.delimiter != "," and delimiter is None:
        log.note(f"{source} is separated by {'tabs' if table.delimiter == chr(9) else 'semicolons'}")


def read_input(path: str, table_format: str | None, delimiter: str | None, log: RunLog) -> Table:
    """Read a table as :func:`~rrg_rewards.data.read_table`, say how it is separated, and warn if it has no rows."""
    table = read_table(path, table_format, delimiter)
    note_delimiter(table, path, delimiter, log)
    if not len(table):
        log.warn(f"{path} has a header and no rows")
    return table
