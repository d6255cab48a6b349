"""Tables of reports, and the phantom corpus."""

from rrg_rewards.data.phantom import (
    PhantomContext,
    PhantomFinding,
    PhantomStudy,
    phantom_rows,
    phantom_studies,
    phantom_vocabulary,
)
from rrg_rewards.data.readers import read_table
from rrg_rewards.data.tables import Table, TableError
from rrg_rewards.data.writers import open_output, write_json, write_table

__all__ = [
    "PhantomContext",
    "PhantomFinding",
    "PhantomStudy",
    "Table",
    "TableError",
    "open_output",
    "phantom_rows",
    "phantom_studies",
    "phantom_vocabulary",
    "read_table",
    "write_json",
    "write_table",
]
