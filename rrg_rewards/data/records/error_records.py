"""Report pairs with error counts: readers of JSON lines, ReXVal and RadPref, and a writer."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError, is_missing, parse_json_cell
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.findings.editing.injected_report import LETTERS

__all__ = ["ErrorRecord", "read_error_records", "read_radpref", "read_rexval", "write_error_records"]

_REXVAL_REPORTS = "50_samples_gt_and_candidates.csv"
_REXVAL_ERRORS = "6_valid_raters_per_rater_error_categories.csv"
_REXVAL_REFERENCE = "gt_report"
_REXVAL_COLUMNS = (
    "study_number",
    "candidate_type",
    "error_category",
    "clinically_significant",
    "rater_index",
    "num_errors",
)
_SIGNIFICANCES = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
# Categories of RadPref's attribute errors. ReXVal has no category for its other errors (descriptor, certainty,
# unspecific, overinterpretation, temporal).
_RADPREF_ATTRIBUTES = {"location": "C", "severity": "D", "measurement": "D"}
_RADPREF_CANDIDATES = ("C1", "C2")


@dataclass(frozen=True)
class ErrorRecord:
    """A candidate report, its reference, and its number of errors of each category.

    Args:
        reference: Reference report.
        candidate: Candidate report.
        counts: Six numbers in the order of ``rrg_rewards.schemas.ERROR_CATEGORIES``: integers, or means over several
            raters. ``None`` for a category that was not counted.
        source: Source of the pair, such as ``phantom``, ``rexval`` or ``radpref``.
        edits: Edits of an injected candidate, from :meth:`rrg_rewards.findings.ErrorEdit.to_dict`.

    Example:
        >>> ErrorRecord("Small effusion.", "Effusion. Cardiomegaly.", (1, 0, 0, 0, None, None), "example").total
        1.0
    """

    reference: str
    candidate: str
    counts: tuple[float | None, ...]
    source: str = ""
    edits: tuple[Mapping[str, Any], ...] = ()

    @property
    def total(self) -> float:
        """Number of errors in the counted categories; NaN if no category was counted."""
        known = [count for count in self.counts if count is not None]
        return float(sum(known)) if known else math.nan


def _number(value: Any, where: str) -> float | None:
    if is_missing(value):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise TableError(f"{where}: a count must be a number from 0 on or null, got {value!r}")
    return value


def _six(cell: Any, where: str) -> tuple[float | None, ...]:
    where = f"{where}, column 'counts'"
    cell = parse_json_cell(cell, where, f"list of {len(LETTERS)} numbers")
    if not isinstance(cell, Sequence) or len(cell) != len(LETTERS):
        found = f"{len(cell)} of them" if isinstance(cell, Sequence) else type(cell).__name__
        raise TableError(f"{where}: must be a list of {len(LETTERS)} numbers, got {found}")
    return tuple(_number(value, f"{where}, {letter}") for letter, value in zip(LETTERS, cell, strict=True))


def _edits(cell: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if cell is None:
        return ()
    if not isinstance(cell, Sequence) or not all(isinstance(edit, Mapping) for edit in cell):
        raise TableError(f"{where}, column 'edits': must be a list of objects, got {type(cell).__name__}")
    return tuple(cell)


def read_error_records(path: str | Path) -> list[ErrorRecord]:
    r"""Read report pairs with error counts from injection, a language model or radiologists.

    The file contains JSON lines with the keys ``reference``, ``candidate`` and ``counts``, a list of six numbers. The
    number of a category that was not counted is null. ``source`` and ``edits`` are optional. CSV and Parquet also work.

    Args:
        path: Path of the file, or ``-`` for standard input.

    Raises:
        TableError: If the file is malformed, a report is missing or ``counts`` is not a list of six numbers. The
            message names the row.
        OSError: If the file cannot be read.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "pairs.jsonl"
        ...     _ = path.write_text('{"reference": "Clear.", "candidate": "Edema.", "counts": [1, 0, 0, 0, 0, null]}\n')
        ...     read_error_records(path)[0].counts
        (1, 0, 0, 0, 0, None)
    """
    table = read_table(path, None if Path(path).suffix else "jsonl")
    references, candidates = table.required_texts("reference"), table.required_texts("candidate")
    columns = table.column("counts"), table.optional_texts("source"), table.optional("edits")
    return [
        ErrorRecord(reference, candidate, _six(counts, table.where(row)), source or "", _edits(done, table.where(row)))
        for row, (reference, candidate, counts, source, done) in enumerate(
            zip(references, candidates, *columns, strict=True)
        )
    ]


def write_error_records(
    records: Iterable[ErrorRecord | Mapping[str, Any]], path: str | Path, overwrite: bool = False
) -> None:
    """Write report pairs with error counts as JSON lines.

    Args:
        records: Records, or dicts from :meth:`rrg_rewards.findings.InjectedReport.to_record`.
        path: Path of the file, or ``-`` for standard output.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: If the file exists and may not be replaced.
        KeyError: If a dict lacks a key.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> record = ErrorRecord("Clear.", "Edema.", (1, 0, 0, 0, 0, 0), "example")
        >>> with TemporaryDirectory() as folder:
        ...     write_error_records([record], Path(folder) / "pairs.jsonl")
        ...     read_error_records(Path(folder) / "pairs.jsonl") == [record]
        True
    """
    rows = (vars(record) if isinstance(record, ErrorRecord) else record for record in records)
    names = [field.name for field in fields(ErrorRecord)]
    plain = ({name: list(row[name]) if isinstance(row[name], tuple) else row[name] for name in names} for row in rows)
    write_table(Table.from_records(plain, names), path, "jsonl", overwrite)


def read_rexval(folder: str | Path, significant: bool | None = None, rater: int | None = None) -> list[ErrorRecord]:
    """Read ReXVal: 50 chest X-ray references with four candidates each, and error counts of six radiologists.

    The data set is available to credentialed users of PhysioNet. This reader follows its public description. It was
    tested on files in this layout, but not on the data. ``50_samples_gt_and_candidates.csv`` has one row per study, in
    the order of ``study_number``: the reference in ``gt_report`` and one column per candidate type.
    ``6_valid_raters_per_rater_error_categories.csv`` has one row for each ``study_number``, ``candidate_type``,
    ``error_category`` (1 to 6), ``clinically_significant`` and ``rater_index``, with the count in ``num_errors``.

    Args:
        folder: Folder with both files.
        significant: True to count only clinically significant errors, False to count only insignificant ones, None to
            count both.
        rater: Rater whose counts are used. Default: the mean over all raters.

    Returns:
        One record for each study and candidate type, in order. The count of a category without a row is None.

    Raises:
        TableError: If a file or column is missing, a cell is malformed, or a count is repeated.
        ValueError: If the rater does not exist. The message lists the raters.
    """
    reports = read_table(Path(folder) / _REXVAL_REPORTS)
    table = read_table(Path(folder) / _REXVAL_ERRORS)
    references = reports.required_texts(_REXVAL_REFERENCE)
    columns = [table.column(name) for name in _REXVAL_COLUMNS]
    counted: dict[tuple[int, str, int, bool, int], float] = {}
    for row, cells in enumerate(zip(*columns, strict=True)):
        key = _rexval_key(cells[:5], len(references), table.where(row))
        number = _float(cells[5], "num_errors", table.where(row))
        if key in counted:
            raise TableError(f"{table.where(row)}: repeats a count of the same rater")
        counted[key] = number
    raters = {key[4] for key in counted}
    if rater is not None and rater not in raters:
        raise ValueError(f"rater must be one of {', '.join(map(str, sorted(raters)))}, got {rater}")
    sums: dict[tuple[int, str], dict[int, dict[int, float]]] = {}
    for (study, kind, category, is_significant, rated_by), number in counted.items():
        by_rater = sums.setdefault((study, kind), {}).setdefault(category, {})
        if rater in (None, rated_by) and significant in (None, is_significant):
            by_rater[rated_by] = by_rater.get(rated_by, 0.0) + number
    return [
        ErrorRecord(
            references[study],
            reports.required_texts(kind)[study],
            tuple(
                sum(found.values()) / len(found) if (found := by_category.get(c)) else None for c in range(len(LETTERS))
            ),
            "rexval",
        )
        for (study, kind), by_category in sorted(sums.items())
    ]


def _float(cell: Any, name: str, where: str) -> float:
    try:
        number = float(cell)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < math.inf:
        raise TableError(f"{where}, column {name!r}: must be a number from 0 on, got {cell!r}")
    return number


def _whole(cell: Any, name: str, where: str, first: int, last: int | None = None) -> int:
    number = _float(cell, name, where)
    if number != int(number) or number < first or (last is not None and number > last):
        most = "on" if last is None else f"to {last}"
        raise TableError(f"{where}, column {name!r}: must be a whole number from {first} {most}, got {cell!r}")
    return int(number)


def _rexval_key(cells: Sequence[Any], studies: int, where: str) -> tuple[int, str, int, bool, int]:
    study, kind, category, significance, rater = cells
    if kind is None:
        raise TableError(f"{where}, column 'candidate_type': is missing")
    known = _SIGNIFICANCES.get(str(significance).strip().lower())
    if known is None:
        raise TableError(f"{where}, column 'clinically_significant': must be True or False, got {significance!r}")
    return (
        _whole(study, "study_number", where, 0, studies - 1),
        str(kind),
        _whole(category, "error_category", where, 1, len(LETTERS)) - 1,
        known,
        _whole(rater, "rater_index", where, 0),
    )


def read_radpref(path: str | Path, radiologist: int | None = None) -> list[ErrorRecord]:
    """Read RadPref: chest X-ray references with two candidates each, annotated by radiologists.

    A false finding counts as an error A, a missing finding as B, a wrong location as C, and a wrong severity or
    measurement as D. Each category counts at most once per finding. Significant and insignificant errors count.
    Errors in descriptor, certainty, specificity, interpretation and time have no category and do not count. E and F are
    None, because comparisons were not annotated.

    Args:
        path: Path of ``pairs.json``.
        radiologist: Index from 0 of the radiologist whose counts are used. Default: the mean over all radiologists.

    Returns:
        Two records for each reference, C1 and C2, in order.

    Raises:
        TableError: If the file is malformed. The message names the entry.
        ValueError: If an entry lacks this radiologist.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise TableError(f"{path}: not a readable JSON file: {error}") from None
    if not isinstance(entries, list):
        raise TableError(f"{path}: must be a list of entries, got {type(entries).__name__}")
    return [
        record
        for number, entry in enumerate(entries, start=1)
        for record in _radpref_records(entry, f"{path}: entry {number}", radiologist)
    ]


def _radpref_records(entry: Any, where: str, radiologist: int | None) -> list[ErrorRecord]:
    try:
        judged = entry["radiologists"]
        if radiologist is not None and not 0 <= radiologist < len(judged):
            raise ValueError(f"radiologist must be below {len(judged)} in {where}, got {radiologist}")
        judged = judged if radiologist is None else [judged[radiologist]]
        records = []
        for candidate in _RADPREF_CANDIDATES:
            counts = [_radpref_counts(judgement[candidate]) for judgement in judged]
            means = tuple(sum(values) / len(counts) for values in zip(*counts, strict=True))
            texts = entry["ground_truth_report"], entry[f"{candidate}_report"]
            records.append(ErrorRecord(*texts, (*means, None, None), "radpref"))
        return records
    except (KeyError, TypeError, AttributeError) as error:
        raise TableError(f"{where}: is no RadPref annotation: {type(error).__name__}: {error}") from None


def _radpref_counts(judgement: Mapping[str, Any]) -> list[int]:
    """Return the numbers of errors A to D that one radiologist found in one candidate."""
    found = ["B"] * len(judgement["missing_findings"])
    for error in judgement["finding_errors"].values():
        if error["error_type"] == "false":
            found.append("A")
        else:
            found += sorted({_RADPREF_ATTRIBUTES[name] for name in error["attributes"] if name in _RADPREF_ATTRIBUTES})
    return [found.count(letter) for letter in "ABCD"]
