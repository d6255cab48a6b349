"""Tables of reports, records for training and evaluation, CT-RATE, and the phantom corpus with its volumes."""

from rrg_rewards.data.ct_rate import CtRateCounts, ScanCounts, ct_rate_scans, read_ct_rate, split_by_patient
from rrg_rewards.data.merlin import MerlinCounts, read_merlin
from rrg_rewards.data.phantom.errors import InjectedStudy, inject_phantom_errors
from rrg_rewards.data.phantom.studies import (
    PhantomContext,
    PhantomStudy,
    phantom_rows,
    phantom_studies,
    phantom_vocabulary,
)
from rrg_rewards.data.phantom.volumes import phantom_mark, phantom_volume, phantom_volume_rows, write_phantom_volumes
from rrg_rewards.data.phantom.writer import PhantomFinding
from rrg_rewards.data.radgenome import RadGenomeCounts, read_radgenome
from rrg_rewards.data.records.annotated_pairs import read_radpref, read_rate_eval, read_rexval
from rrg_rewards.data.records.annotated_sets import (
    ANNOTATED_SETS,
    AnnotatedSet,
    judgement_table,
    read_annotated_set,
)
from rrg_rewards.data.records.annotation_cells import AnnotationWarning
from rrg_rewards.data.records.chest2error import read_chest2error
from rrg_rewards.data.records.error_records import ErrorRecord, read_error_records, write_error_records
from rrg_rewards.data.records.graded_reports import (
    GradedPair,
    GradedPairs,
    GradedReport,
    grade_by_errors,
    graded_pairs,
    read_graded_reports,
    write_graded_reports,
)
from rrg_rewards.data.records.question_items import (
    ReportItems,
    check_question_items,
    load_question_items,
    read_question_items,
    write_question_items,
)
from rrg_rewards.data.records.radeval_expert import read_radeval_expert
from rrg_rewards.data.records.radevalx import read_radevalx
from rrg_rewards.data.records.refisco import read_refisco
from rrg_rewards.data.records.released_questions import ReleasedQuestions, read_released_questions
from rrg_rewards.data.tables.json_documents import write_report_document
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.data.tables.writers import open_output, write_json, write_table

__all__ = [
    "ANNOTATED_SETS",
    "AnnotatedSet",
    "AnnotationWarning",
    "CtRateCounts",
    "ErrorRecord",
    "GradedPair",
    "GradedPairs",
    "GradedReport",
    "InjectedStudy",
    "MerlinCounts",
    "PhantomContext",
    "PhantomFinding",
    "PhantomStudy",
    "RadGenomeCounts",
    "ReleasedQuestions",
    "ReportItems",
    "ScanCounts",
    "Table",
    "TableError",
    "check_question_items",
    "ct_rate_scans",
    "grade_by_errors",
    "graded_pairs",
    "inject_phantom_errors",
    "judgement_table",
    "load_question_items",
    "open_output",
    "phantom_mark",
    "phantom_rows",
    "phantom_studies",
    "phantom_vocabulary",
    "phantom_volume",
    "phantom_volume_rows",
    "read_annotated_set",
    "read_chest2error",
    "read_ct_rate",
    "read_error_records",
    "read_graded_reports",
    "read_merlin",
    "read_question_items",
    "read_radeval_expert",
    "read_radevalx",
    "read_radgenome",
    "read_radpref",
    "read_rate_eval",
    "read_refisco",
    "read_released_questions",
    "read_rexval",
    "read_table",
    "split_by_patient",
    "write_error_records",
    "write_graded_reports",
    "write_json",
    "write_phantom_volumes",
    "write_question_items",
    "write_report_document",
    "write_table",
]
