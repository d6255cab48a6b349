"""Tables of reports, and the phantom corpus with its volumes."""

from rrg_rewards.data.phantom import (
    PhantomContext,
    PhantomFinding,
    PhantomStudy,
    phantom_rows,
    phantom_studies,
    phantom_vocabulary,
)
from rrg_rewards.data.phantom_volumes import phantom_mark, phantom_volume, phantom_volume_rows, write_phantom_volumes
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
    "phantom_mark",
    "phantom_rows",
    "phantom_studies",
    "phantom_vocabulary",
    "phantom_volume",
    "phantom_volume_rows",
    "read_table",
    "write_json",
    "write_phantom_volumes",
    "write_table",
]
