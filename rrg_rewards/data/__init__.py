"""Tables of reports, CT-RATE, and the phantom corpus with its volumes."""

from rrg_rewards.data.ct_rate import CtRateCounts, read_ct_rate, split_by_patient
from rrg_rewards.data.error_records import (
    ErrorRecord,
    read_error_records,
    read_radpref,
    read_rexval,
    write_error_records,
)
from rrg_rewards.data.graded_pairs import GradedPair, GradedPairs, graded_pairs
from rrg_rewards.data.graded_reports import (
    GradedReport,
    grade_by_errors,
    read_graded_reports,
    write_graded_reports,
)
from rrg_rewards.data.phantom import (
    PhantomContext,
    PhantomFinding,
    PhantomStudy,
    phantom_rows,
    phantom_studies,
    phantom_vocabulary,
)
from rrg_rewards.data.phantom_errors import InjectedStudy, inject_phantom_errors
from rrg_rewards.data.phantom_volumes import phantom_mark, phantom_volume, phantom_volume_rows, write_phantom_volumes
from rrg_rewards.data.readers import read_table
from rrg_rewards.data.tables import Table, TableError
from rrg_rewards.data.writers import open_output, write_json, write_table

__all__ = [
    "CtRateCounts",
    "ErrorRecord",
    "GradedPair",
    "GradedPairs",
    "GradedReport",
    "InjectedStudy",
    "PhantomContext",
    "PhantomFinding",
    "PhantomStudy",
    "Table",
    "TableError",
    "grade_by_errors",
    "graded_pairs",
    "inject_phantom_errors",
    "open_output",
    "phantom_mark",
    "phantom_rows",
    "phantom_studies",
    "phantom_vocabulary",
    "phantom_volume",
    "phantom_volume_rows",
    "read_ct_rate",
    "read_error_records",
    "read_graded_reports",
    "read_radpref",
    "read_rexval",
    "read_table",
    "split_by_patient",
    "write_error_records",
    "write_graded_reports",
    "write_json",
    "write_phantom_volumes",
    "write_table",
]
