"""Pairs of reports with error counts: read from JSON lines, ReXVal's tables and RadPref's annotations."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.data.readers import read_table
from rrg_rewards.data.tables import Table, TableError
from rrg_rewards.data.writers import write_table
from rrg_rewards.findings.errors import LETTERS

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
# RadPref's attribute errors by category; the others (descriptor, certainty, unspecific, overinterpretation, temporal)
# are none of ReXVal's.
_RADPREF_ATTRIBUTES = {"location": "C", "severity": "D", "measurement": "D"}
_RADPREF_CANDIDATES = ("C1", "C2")


@dataclass(frozen=True)
class ErrorRecord:
    """A candidate report, its reference, and how many errors of each category it holds.

    Args:
        reference: Reference report.
        candidate: Candidate report.
        counts: Six numbers in the order of ``rrg_rewards.schemas.ERROR_CATEGORIES``, whole or means of several
            raters; ``None`` for a category that nobody counted.
        source: Where the pair is from, such as ``phantom``, ``rexval`` or ``radpref``.
        edits: What an injected candidate had done to it, as :class:`rrg_rewards.findings.ErrorEdit` tells it.

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
        """Errors of the categories that were counted; NaN if none was."""
        known = [count for count in self.counts if count is not None]
        return float(sum(known)) if known else math.nan


def _number(value: Any, where: str) -> float | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise TableError(f"{where}: a count must be a number from 0 on or null, got {value!r}")
    return value


def _six(cell: Any, where: str) -> tuple[float | None, ...]:
    # CSV has no lists.
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except ValueError as error:
            raise TableError(f"{where}, column 'counts': is no JSON list of {len(LETTERS)} numbers: {error}") from None
    if not isinstance(cell, Sequence) or len(cell) != len(LETTERS):
        found = f"{len(cell)} of them" if isinstance(cell, Sequence) else type(cell).__name__
        raise TableError(f"{where}, column 'counts': must be a list of {len(LETTERS)} numbers, got {found}")
    return tuple(
        _number(value, f"{where}, column 'counts', {letter}") for letter, value in zip(LETTERS, cell, strict=True)
    )


def _edits(cell: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if cell is None:
        return ()
    if not isinstance(cell, Sequence) or not all(isinstance(edit, Mapping) for edit in cell):
        raise TableError(f"{where}, column 'edits': must be a list of objects, got {type(cell).__name__}")
    return tuple(cell)


def read_error_records(path: str | Path) -> list[ErrorRecord]:
    r"""Read pairs with error counts, whoever counted: injected, a language model, radiologists.

    JSON lines with the keys ``reference``, ``candidate`` and ``counts``, a list of six numbers of which any may be
    null for a category that nobody counted; ``source`` and ``edits`` are optional. Parquet works, too.

    Args:
        path: Path of the file, or ``-`` for standard input.

    Raises:
        TableError: If the file is malformed, a report is missing or counts are not six numbers, by row.
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
    missing = [None] * len(table)
    sources = table.texts("source") if "source" in table.names else missing
    edits = table.column("edits") if "edits" in table.names else missing
    return [
        ErrorRecord(reference, candidate, _six(counts, table.where(row)), source or "", _edits(done, table.where(row)))
        for row, (reference, candidate, counts, source, done) in enumerate(
            zip(references, candidates, table.column("counts"), sources, edits, strict=True)
        )
    ]


def write_error_records(
    records: Iterable[ErrorRecord | Mapping[str, Any]], path: str | Path, overwrite: bool = False
) -> None:
    """Write pairs with error counts as JSON lines, whole or not at all.

    Args:
        records: Records, or dicts as of :meth:`rrg_rewards.findings.InjectedReport.to_record`.
        path: Where to, or ``-`` for standard output.
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
    names = ("reference", "candidate", "counts", "source", "edits")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for record in records:
        row = vars(record) if isinstance(record, ErrorRecord) else record
        for name in names:
            value = row[name]
            columns[name].append(list(value) if isinstance(value, tuple) else value)
    write_table(Table(columns), path, "jsonl", overwrite)


def read_rexval(folder: str | Path, significant: bool | None = None, rater: int | None = None) -> list[ErrorRecord]:
    """Read ReXVal: 50 chest X-ray references, four candidates each, errors counted by six radiologists.

    The data set is on PhysioNet for credentialed users. This reader follows its public description, and was tested on
    files made in that layout, not on the data itself. ``50_samples_gt_and_candidates.csv`` has a row a study, in the
    order of ``study_number``: the reference in ``gt_report`` and a column a candidate type.
    ``6_valid_raters_per_rater_error_categories.csv`` has a row for each ``study_number``, ``candidate_type``,
    ``error_category`` (1 to 6), ``clinically_significant`` and ``rater_index`` with the count in ``num_errors``.

    Args:
        folder: Folder with both files.
        significant: Count clinically significant errors only (True), insignificant ones only (False), or both.
        rater: Counts of one rater instead of the mean of all.

    Returns:
        A record for each study and candidate type, in order; a category that no rater of the pair counted is None.

    Raises:
        TableError: If a file or column is missing, a cell does not hold what it should, or a count is told twice.
        ValueError: If there is no such rater, with those there are.
    """
    reports = read_table(Path(folder) / _REXVAL_REPORTS)
    table = read_table(Path(folder) / _REXVAL_ERRORS)
    references = reports.required_texts(_REXVAL_REFERENCE)
    columns = [table.column(name) for name in _REXVAL_COLUMNS]
    told: dict[tuple[int, str, int, bool, int], float] = {}
    for row, cells in enumerate(zip(*columns, strict=True)):
        study, kind, category, is_significant, of = _rexval_key(cells[:5], len(references), table.where(row))
        key, number = (study, kind, category, is_significant, of), _float(cells[5], "num_errors", table.where(row))
        if key in told:
            raise TableError(f"{table.where(row)}: counts the same errors of the same rater once more")
        told[key] = number
    raters = {key[4] for key in told}
    if rater is not None and rater not in raters:
        raise ValueError(f"rater must be one of {', '.join(map(str, sorted(raters)))}, got {rater}")
    sums: dict[tuple[int, str], dict[int, dict[int, float]]] = {}
    for (study, kind, category, is_significant, of), number in told.items():
        by_rater = sums.setdefault((study, kind), {}).setdefault(category, {})
        if rater in (None, of) and significant in (None, is_significant):
            by_rater[of] = by_rater.get(of, 0.0) + number
    return [
        ErrorRecord(
            references[study],
            reports.required_texts(kind)[study],
            tuple(_mean(by_category.get(c, {})) for c in range(6)),
            "rexval",
        )
        for (study, kind), by_category in sorted(sums.items())
    ]


def _mean(by_rater: Mapping[int, float]) -> float | None:
    return sum(by_rater.values()) / len(by_rater) if by_rater else None


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
    """Read RadPref's annotations: chest X-ray references, two candidates each, judged by radiologists.

    How its annotations become counts: a false finding is an A, a missing one a B. An attribute error in location is a
    C, one in severity or measurement a D, once each for a finding, significant or not. Errors in descriptor, certainty,
    specificity, interpretation and time are none of the six. Nobody counted comparisons, so E and F are None.

    Args:
        path: ``pairs.json``.
        radiologist: Counts of one radiologist, from 0, instead of the mean of all.

    Returns:
        Two records a reference, C1 and C2, in order.

    Raises:
        TableError: If the file is no such JSON, by entry.
        ValueError: If an entry has no such radiologist.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise TableError(f"{path}: not a readable JSON file: {error}") from None
    if not isinstance(entries, list):
        raise TableError(f"{path}: must be a list of entries, got {type(entries).__name__}")
    return [
        record
        for place, entry in enumerate(entries)
        for record in _radpref_records(entry, f"{path}: entry {place + 1}", radiologist)
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
    """Errors A to D that one radiologist found in one candidate."""
    found = ["B"] * len(judgement["missing_findings"])
    for error in judgement["finding_errors"].values():
        if error["error_type"] == "false":
            found.append("A")
        else:
            found += sorted({_RADPREF_ATTRIBUTES[name] for name in error["attributes"] if name in _RADPREF_ATTRIBUTES})
    return [found.count(letter) for letter in "ABCD"]
