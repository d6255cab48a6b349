"""Reader of ReFiSco's graded report lines as error records."""

from collections.abc import Mapping
from pathlib import Path

from rrg_rewards.data.records.column_names import check_names, column_names
from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.findings.editing.injected_report import LETTERS

__all__ = ["read_refisco"]

_COLUMNS = {
    "study": "study_id",
    "candidate": "report_source",
    "reference": "reference_report",
    "line": "line",
    "grade": "severity",
}
_GRADES = {
    "no error": 0,
    "not actionable": 1,
    "actionable nonurgent error": 1,
    "urgent error": 1,
    "emergent error": 1,
}
_SOURCE = "refisco"
_NO_CATEGORIES = (None,) * len(LETTERS)


def read_refisco(path: str | Path, columns: Mapping[str, str] | None = None) -> list[ErrorRecord]:
    """Read ReFiSco-v0: chest X-ray reports of models whose lines radiologists graded by severity.

    The data set is available to credentialed users of PhysioNet. The reader was tested on files in the layout below,
    but not on the data, whose columns may differ. The table has one row per line of a candidate report: ``study_id``,
    ``report_source`` (the model), ``reference_report``, ``line`` (the text) and ``severity``: "No error", "Not
    actionable", "Actionable nonurgent error", "Urgent error" or "Emergent error". Case, hyphens and underscores do not
    matter.

    A line with any error counts as one error, as in the paper of CREPE (Appendix A.3.2). The grades name no category:
    all six counts are None, and the number of errors is in ``ErrorRecord.other``.

    Args:
        path: Path of the table (CSV, JSON lines or Parquet).
        columns: Names of columns that differ from the layout, by content: ``study``, ``candidate``, ``reference``,
            ``line`` and ``grade``.

    Returns:
        One record for each study and model, in the order of their first lines. The candidate is the lines joined by
        spaces.

    Raises:
        TableError: If a column is missing, naming all missing columns, a cell is missing, a grade is unknown, or the
            rows of a study have different references.
        ValueError: If ``columns`` has an unknown key.
    """
    names = column_names(_COLUMNS, columns)
    table = read_table(path)
    advice = "name the columns of the file, as in columns={'line': 'sentence', 'grade': 'clinical_severity'}"
    check_names(table.names, list(names.values()), table.source, advice)
    references: dict[str, str] = {}
    lines: dict[tuple[str, str], list[str]] = {}
    errors: dict[tuple[str, str], int] = {}
    cells = zip(*(table.required_texts(name) for name in names.values()), strict=True)
    for row, (study, model, reference, line, grade) in enumerate(cells):
        if references.setdefault(study, reference) != reference:
            raise TableError(
                f"{table.where(row)}, column {names['reference']!r}: differs from earlier rows of the study"
            )
        found = _GRADES.get(" ".join(grade.lower().replace("-", " ").replace("_", " ").split()))
        if found is None:
            raise TableError(
                f"{table.where(row)}, column {names['grade']!r}: must be one of {', '.join(_GRADES)}; got {grade!r}"
            )
        key = study, model
        lines.setdefault(key, []).append(line)
        errors[key] = errors.get(key, 0) + found
    return [
        ErrorRecord(references[study], " ".join(text), _NO_CATEGORIES, _SOURCE, other=errors[study, model])
        for (study, model), text in lines.items()
    ]
