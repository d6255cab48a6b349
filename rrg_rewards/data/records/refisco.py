"""Reader of ReFiSco: chest X-ray reports whose lines radiologists corrected and graded."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rrg_rewards.data.records.annotation_cells import AnnotationWarning, cell_text, check_names
from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.findings.editing.injected_report import LETTERS

SEVERITIES = {
    "no error": 0,
    "not actionable": 1,
    "actionable nonurgent error": 2,
    "urgent error": 3,
    "emergent error": 4,
}
"""Severity of an error by the name of its grade, as in the analysis of ReFiSco's authors."""

# An error of this severity or more is actionable.
_ACTIONABLE = 2
_DELETION, _UNCHANGED = "[delete]", "[no edit]"


@dataclass(frozen=True)
class _Layout:
    """Columns of one version of the data set.

    Args:
        keys: Columns whose values together name an annotation.
        study: Column of the study.
        original: Column of the lines of the report.
        corrected: Column of the corrections.
        grade: Column of the grades.
        attributes: Further columns of texts.
        empty_is_unchanged: Whether an empty correction leaves the line as it is.
    """

    keys: tuple[str, ...]
    study: str
    original: str
    corrected: str
    grade: str
    attributes: tuple[str, ...]
    empty_is_unchanged: bool


_V0 = _Layout(
    keys=("id", "annotator", "source"),
    study="id",
    original="impression_original",
    corrected="impression_edited",
    grade="score",
    attributes=("annotator", "source", "indication"),
    empty_is_unchanged=False,
)
_V1 = _Layout(
    keys=("data_id", "report_type", "annotator_id"),
    study="study_id",
    original="original_line",
    corrected="corrected_line",
    grade="error_clinical_severity",
    attributes=("annotator_id", "report_type", "subject_id"),
    empty_is_unchanged=True,
)


@dataclass(frozen=True)
class _Line:
    """A line of an annotation: its texts, what happened to it, and its severity."""

    original: str
    corrected: str
    severity: int | None

    @property
    def kind(self) -> str:
        if self.original == self.corrected:
            return "unchanged"
        if not self.original:
            return "insertion"
        return "edit" if self.corrected else "deletion"

    @property
    def is_error(self) -> bool:
        """Whether the line has an error: a grade above 0; without a grade, whether it was corrected."""
        return self.kind != "unchanged" if self.severity is None else self.severity > 0


@dataclass
class _Annotation:
    """The lines of a report that one radiologist corrected."""

    study: str
    attributes: Mapping[str, str]
    lines: list[_Line] = field(default_factory=list)


def read_refisco(path: str | Path, severities: Mapping[str, int] | None = None) -> list[ErrorRecord]:
    r"""Read ReFiSco: chest X-ray reports of models and radiologists, which radiologists corrected line by line.

    Version 0 is available to credentialed users of PhysioNet (refisco 0.0). The columns are those of its README
    (rajpurkarlab/ReFiSco-v0) and of the empty tables and the script of rajpurkarlab/FineRadScore. The reader was tested
    on files in these layouts, but not on the data. Each row is a line of a report:

    - v0: ``id`` (the study), ``indication``, ``impression_original``, ``impression_edited`` (``[no edit]``,
      ``[delete]``, or the new text), ``score``, ``annotator``, ``source``. Rows of one id, annotator and source are one
      annotation.
    - v1: ``data_id``, ``subject_id``, ``study_id``, ``report_type``, ``report_text``, ``original_line``,
      ``corrected_line`` (empty without a correction, or ``[delete]``), ``error_clinical_severity``, ``comments``,
      ``annotator_id``. Rows of one data id, report type and annotator are one annotation.

    A row without an original text inserts a line. **There is no reference: the corrected text is the reference**, as in
    FineRadScore. The candidate is the original lines joined by spaces, the reference the corrected lines.

    What is an error: a line with a grade above "No error", as in the paper of CREPE (Appendix A.3.2). A corrected line
    without a grade is an error of unknown severity. The grades name no category. An insertion is something that the
    candidate lacks, a deletion something that it should not say, and an edit may be both or an error of place, degree
    or wording. The six counts are therefore ``None``, and the number of errors is in ``ErrorRecord.other``; the numbers
    of these kinds of lines with errors are the ratings ``insertions``, ``deletions``, ``edits`` and ``unchanged``. A
    line may contain several findings, so that these are numbers of lines, not of findings.

    ``significant_other`` is the number of errors that are actionable, graded 2 or more. The boundary is this package's.
    The rating ``max_severity`` is the highest severity of a report, the authors' MES, and ``sum_severity`` the sum. The
    authors' average, AES, is not computed: it is no mean over lines, because its printed mean of 2.42 for CXR-RePaiR is
    above that of MES, 2.26.

    Args:
        path: Table of one version (CSV, JSON lines or Parquet).
        severities: Severities of further names of grades, such as ``{"invalid comparison": 0}``. Grades are the numbers
            0 to 4 or the names "No error", "Not actionable", "Actionable nonurgent error", "Urgent error" and "Emergent
            error"; case, hyphens and underscores do not matter.

    Returns:
        One record for each annotation, in the order of their first rows. ``edits`` are the errors, with ``kind`` and
        ``severity``. Attributes: ``annotator``, ``source`` and ``indication`` (v0), or ``annotator_id``,
        ``report_type`` and ``subject_id`` (v1).

    Raises:
        TableError: If the columns are of neither version, naming what is missing, a cell is empty that must not be, or
            a grade is unknown.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> header = "id,indication,impression_original,impression_edited,score,annotator,source"
        >>> rows = ["s1,Cough,No edema.,[no edit],0,r1,X-REM", "s1,Cough,,Small effusion.,2,r1,X-REM"]
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "refisco-v0.csv"
        ...     _ = path.write_text("\n".join([header, *rows]))
        ...     (record,) = read_refisco(path)
        >>> record.candidate, record.reference, record.other, record.judgement("insertions")
        ('No edema.', 'No edema. Small effusion.', 1.0, 1.0)
    """
    table = read_table(path)
    layout = _layout(table)
    known = {**SEVERITIES, **{_grade_name(name): severity for name, severity in (severities or {}).items()}}
    annotations = _annotations(table, layout, known)
    _warn_of_contradictions([line for one in annotations for line in one.lines], path)
    return [_record(one) for one in annotations]


def _layout(table: Table) -> _Layout:
    layout = _V1 if _V1.original in table.columns else _V0
    columns = (*layout.keys, layout.study, layout.original, layout.corrected, layout.grade, *layout.attributes)
    check_names(table.names, list(dict.fromkeys(columns)), table.source, "the layouts are those of ReFiSco v0 and v1")
    return layout


def _annotations(table: Table, layout: _Layout, severities: Mapping[str, int]) -> list[_Annotation]:
    found: dict[tuple[str, ...], _Annotation] = {}
    texts = {name: table.texts(name) for name in (layout.original, layout.corrected)}
    for row in range(len(table)):
        key = tuple(_name(table, row, name) for name in layout.keys)
        study = _name(table, row, layout.study)
        attributes = {name: cell_text(table, row, name) for name in layout.attributes}
        one = found.setdefault(key, _Annotation(study, attributes))
        if one.study != study:
            raise TableError(
                f"{table.where(row)}, column {layout.study!r}: is {study!r}, but {one.study!r} in earlier rows of "
                f"{' '.join(key)}"
            )
        original = (texts[layout.original][row] or "").strip()
        corrected = _corrected(table, row, original, (texts[layout.corrected][row] or "").strip(), layout)
        one.lines.append(_Line(original, corrected, _severity(table, row, layout.grade, severities)))
    return list(found.values())


def _name(table: Table, row: int, name: str) -> str:
    text = cell_text(table, row, name)
    if not text:
        raise TableError(f"{table.where(row)}, column {name!r}: is empty; each row needs it")
    return text


def _corrected(table: Table, row: int, original: str, correction: str, layout: _Layout) -> str:
    """Return the line after its correction; ``""`` if it is deleted."""
    if _DELETION in correction.lower():
        return ""
    if correction.lower() == _UNCHANGED or (not correction and (layout.empty_is_unchanged or not original)):
        return original
    if not correction:
        raise TableError(
            f"{table.where(row)}, column {layout.corrected!r}: is empty; must be {_UNCHANGED}, {_DELETION} or a text"
        )
    return correction


def _severity(table: Table, row: int, name: str, severities: Mapping[str, int]) -> int | None:
    cell = cell_text(table, row, name)
    if not cell:
        return None
    grade = _grade_name(cell)
    number = severities.get(grade)
    if number is None:
        number = {str(value): value for value in range(5)}.get(grade.removesuffix(".0"))
    if number is None:
        raise TableError(
            f"{table.where(row)}, column {name!r}: must be 0 to 4 or one of {', '.join(severities)}; got {cell!r}; "
            "give the severity of another name as severities={'name': 0}"
        )
    return number


def _grade_name(cell: str) -> str:
    return " ".join(cell.lower().replace("-", " ").replace("_", " ").split())


def _warn_of_contradictions(lines: Sequence[_Line], path: str | Path) -> None:
    ungraded = sum(line.severity is None and line.is_error for line in lines)
    harmless = sum(line.severity == 0 and line.kind != "unchanged" for line in lines)
    if ungraded or harmless:
        warnings.warn(
            f"{path}: {ungraded} corrected lines have no grade and count as errors of unknown severity; {harmless} "
            "corrected lines are graded as no error and do not count",
            AnnotationWarning,
            stacklevel=3,
        )


def _record(annotation: _Annotation) -> ErrorRecord:
    errors = [line for line in annotation.lines if line.is_error]
    severities = [line.severity for line in errors]
    known = [severity for severity in severities if severity is not None]
    is_graded = len(known) == len(severities)
    kinds = [line.kind for line in errors]
    plural = {"insertion": "insertions", "deletion": "deletions", "edit": "edits", "unchanged": "unchanged"}
    return ErrorRecord(
        " ".join(line.corrected for line in annotation.lines if line.corrected),
        " ".join(line.original for line in annotation.lines if line.original),
        (None,) * len(LETTERS),
        "refisco",
        edits=tuple({"kind": line.kind, "severity": line.severity} for line in errors),
        other=float(len(errors)),
        significant_other=float(sum(severity >= _ACTIONABLE for severity in known)) if is_graded else None,
        study=annotation.study,
        attributes=annotation.attributes,
        ratings={
            **{name: float(kinds.count(kind)) for kind, name in plural.items()},
            "max_severity": float(max(known, default=0)) if is_graded else None,
            "sum_severity": float(sum(known)) if is_graded else None,
        },
    )
