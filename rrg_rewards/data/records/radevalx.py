"""Reader of RadEvalX: chest X-ray reports with error counts of two radiologists in eight categories."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rrg_rewards.data.records.annotation_cells import AnnotationWarning, check_names, number_cell, sum_if_complete
from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.findings.editing.injected_report import LETTERS

_FILES = {
    True: "RadEval_clinically_significant_errors.csv",
    False: "RadEval-clinically_insignificant_errors.csv",
}
_STUDY, _REFERENCE, _CANDIDATE = "report_id", "ground_truth", "M2Tr-Generation"
_NUMBERS = tuple("12345678")
_KIND = "error_type"
_KINDS = {"significant": True, "insignificant": False}
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")

Blank = Literal["zero", "missing"]
"""What an empty cell of a count is."""


def read_radevalx(
    reports: str | Path,
    errors: str | Path | None = None,
    significant: bool | None = None,
    blank: Blank = "zero",
) -> list[ErrorRecord]:
    r"""Read RadEvalX: 100 references of IU X-Ray with a candidate each, and error counts of two radiologists.

    The data set is open: anybody may download it from PhysioNet (rad-eval-x 1.0.0, CC BY-NC-SA 4.0). Its files name no
    rater. The reader was tested on files in these two layouts, but not on the data:

    - The release, a folder with ``RadEval_clinically_significant_errors.csv`` and
      ``RadEval-clinically_insignificant_errors.csv``. Both have the columns ``report_id``, ``ground_truth``,
      ``M2Tr-Generation`` (the candidate) and ``1`` to ``8``. File names and columns are those that a public program
      checks in the release.
    - Two tables in a form that public evaluation scripts read: ``reports`` with ``study_id``, ``ground_truth`` and
      ``candidate_report``, and ``errors`` with ``report_id``, ``error_type`` (``significant`` or ``insignificant``) and
      ``one`` to ``eight``.

    Categories 1 to 6 are those of ReXVal. Errors of uncertainty, 7 (mentioned wrongly) and 8 (omitted), belong to none
    of the six and are in ``ErrorRecord.other``, so that ``total`` is the sum over all categories, as in the paper of
    CREPE (Appendix A.3.3).

    Args:
        reports: Folder of the release, or the table of reports.
        errors: Table of counts, if ``reports`` is a table.
        significant: True to count only clinically significant errors, False to count only insignificant ones, None to
            count both; the significant errors are then in ``ErrorRecord.significant`` and ``significant_other``.
        blank: What an empty cell is; no documentation of it was seen. ``"zero"``: no error of this category, as public
            scripts read it. ``"missing"``: unknown; a total that contains it is missing too.

    Returns:
        One record for each report, in order.

    Raises:
        TableError: If a file or column is missing, naming all missing columns, a cell is no number, or both files have
            different reports.
        ValueError: If ``blank`` is unknown.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     reports, errors = Path(folder) / "reports.csv", Path(folder) / "errors.csv"
        ...     _ = reports.write_text("study_id,ground_truth,candidate_report\n1,Clear lungs.,Edema.\n")
        ...     header = "report_id,error_type,one,two,three,four,five,six,seven,eight\n"
        ...     _ = errors.write_text(f"{header}1,significant,1,0,0,0,0,0,0,0\n1,insignificant,0,0,0,0,0,0,2,0\n")
        ...     (record,) = read_radevalx(reports, errors)
        >>> record.counts, record.other, record.total, record.total_significant
        ((1.0, 0.0, 0.0, 0.0, 0.0, 0.0), 2.0, 3.0, 1.0)
    """
    if blank not in get_args(Blank):
        raise ValueError(f"blank must be one of {', '.join(get_args(Blank))}, got {blank!r}")
    pairs = (
        _read_release(Path(reports)) if errors is None else _read_two_tables(read_table(reports), read_table(errors))
    )
    cells = [count for pair in pairs for counts in pair.counts.values() for count in counts]
    if blanks := cells.count(None):
        reading = "read as no error" if blank == "zero" else "unknown, and so are the totals that contain them"
        warnings.warn(
            f"RadEvalX: {blanks} of {len(cells)} counts are empty; they are {reading} (blank={blank!r})",
            AnnotationWarning,
            stacklevel=2,
        )
    if blank == "zero":
        pairs = [pair.with_zeros() for pair in pairs]
    return [pair.record(significant) for pair in pairs]


@dataclass(frozen=True)
class _Pair:
    """A report pair with its eight counts by significance."""

    study: str
    reference: str
    candidate: str
    counts: Mapping[bool, Sequence[float | None]]

    def with_zeros(self) -> "_Pair":
        counts = {kind: [count or 0.0 for count in row] for kind, row in self.counts.items()}
        return _Pair(self.study, self.reference, self.candidate, counts)

    def record(self, significant: bool | None) -> ErrorRecord:
        kinds = (True, False) if significant is None else (significant,)
        found = [sum_if_complete(cells) for cells in zip(*(self.counts[kind] for kind in kinds), strict=True)]
        # A category that is known in one file only counts as unknown, because its sum is.
        pairs = zip(self.counts[True], found, strict=True)
        weighty = [None if total is None else count for count, total in pairs] if significant is None else []
        six = len(LETTERS)
        ratings = {"errors": sum_if_complete(found)}
        if significant is None:
            ratings["significant"] = sum_if_complete(self.counts[True])
            ratings["insignificant"] = sum_if_complete(self.counts[False])
        return ErrorRecord(
            self.reference,
            self.candidate,
            tuple(found[:six]),
            "radevalx",
            significant=tuple(weighty[:six]) or None,
            other=sum_if_complete(found[six:]),
            significant_other=sum_if_complete(weighty[six:]) if weighty else None,
            study=self.study,
            ratings={name: total for name, total in ratings.items() if total is None},
        )


def _read_release(folder: Path) -> list[_Pair]:
    if folder.is_file():
        raise TableError(
            f"{folder}: must be the folder of the release, or a table of reports together with the table of counts "
            "(errors; on the command line --counts FILE)"
        )
    tables = {kind: read_table(folder / name) for kind, name in _FILES.items()}
    for table in tables.values():
        check_names(table.names, [_STUDY, _REFERENCE, _CANDIDATE, *_NUMBERS], table.source)
    rows = {kind: table.row_by_name(_STUDY) for kind, table in tables.items()}
    _check_same_studies(tables, rows)
    texts = {kind: [table.required_texts(name) for name in (_REFERENCE, _CANDIDATE)] for kind, table in tables.items()}
    pairs = []
    for study, row in rows[True].items():
        other = rows[False][study]
        reference, candidate = (column[row] for column in texts[True])
        words = [reference.split(), candidate.split()]
        if words != [column[other].split() for column in texts[False]]:
            raise TableError(f"{tables[False].where(other)}: the reports of {study!r} differ from {_FILES[True]}")
        counts = {kind: _row_counts(table, rows[kind][study], _NUMBERS) for kind, table in tables.items()}
        pairs.append(_Pair(study, reference, candidate, counts))
    return pairs


def _check_same_studies(tables: Mapping[bool, Table], rows: Mapping[bool, Mapping[str, int]]) -> None:
    for kind, table in tables.items():
        if missing := [study for study in rows[not kind] if study not in rows[kind]]:
            raise TableError(f"{table.source}: has no report {missing[0]!r}, which {tables[not kind].source} has")


def _read_two_tables(reports: Table, errors: Table) -> list[_Pair]:
    check_names(reports.names, ["study_id", _REFERENCE, "candidate_report"], reports.source)
    check_names(errors.names, [_STUDY, _KIND, *_WORDS], errors.source)
    found: dict[str, dict[bool, Sequence[float | None]]] = {}
    for row, (study, cell) in enumerate(zip(errors.column(_STUDY), errors.column(_KIND), strict=True)):
        kind = _KINDS.get(str(cell).strip().lower())
        if kind is None:
            raise TableError(
                f"{errors.where(row)}, column {_KIND!r}: must be significant or insignificant, got {cell!r}"
            )
        counts = found.setdefault(str(study), {})
        if kind in counts:
            raise TableError(f"{errors.where(row)}: repeats the {cell} errors of report {study!r}")
        counts[kind] = _row_counts(errors, row, _WORDS)
    rows = reports.row_by_name("study_id")
    if unknown := [study for study in found if study not in rows]:
        raise TableError(f"{reports.source}: has no report {unknown[0]!r}, which {errors.source} has")
    references, candidates = (reports.required_texts(name) for name in (_REFERENCE, "candidate_report"))
    for study, row in rows.items():
        if lacking := [name for name, kind in _KINDS.items() if kind not in found.get(study, {})]:
            raise TableError(f"{errors.source}: has no {lacking[0]} errors of report {study!r} ({reports.where(row)})")
    return [_Pair(study, references[row], candidates[row], found[study]) for study, row in rows.items()]


def _row_counts(table: Table, row: int, names: Sequence[str]) -> list[float | None]:
    return [number_cell(table, row, name) for name in names]
