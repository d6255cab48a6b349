"""Readers of ReXVal and RadEvalX: error counts of several raters for each candidate report."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.column_names import check_names, column_names
from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.findings.editing.injected_report import LETTERS

__all__ = ["read_radevalx", "read_rexval"]

_REPORTS = "50_samples_gt_and_candidates.csv"
_ERRORS = ("6_valid_raters_per_rater_error_categories.csv", "6_valid_raters_per_rater_error_counts.csv")
_COLUMNS = {
    "reference": "gt_report",
    "study": "study_number",
    "candidate": "candidate_type",
    "category": "error_category",
    "significance": "clinically_significant",
    "rater": "rater_index",
    "count": "num_errors",
}
_SIGNIFICANCES = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_RADEVALX_CATEGORIES = 8

Counts = dict[int, dict[bool, float]]
"""Numbers of errors of one rater by category and significance."""


def read_rexval(folder: str | Path, significant: bool | None = None, rater: int | None = None) -> list[ErrorRecord]:
    """Read ReXVal: 50 chest X-ray references with four candidates each, and error counts of six radiologists.

    The data set is available to credentialed users of PhysioNet. This reader follows its public description. It was
    tested on files in this layout, but not on the data. ``50_samples_gt_and_candidates.csv`` has one row per study, in
    the order of ``study_number``: the reference in ``gt_report`` and one column per candidate type.
    ``6_valid_raters_per_rater_error_categories.csv`` (or ``..._error_counts.csv``) has one row for each
    ``study_number``, ``candidate_type``, ``error_category`` (1 to 6), ``clinically_significant`` and ``rater_index``,
    with the count in ``num_errors``.

    Args:
        folder: Folder with both files.
        significant: True to count only clinically significant errors, False to count only insignificant ones, None to
            count both; the significant errors are then in ``ErrorRecord.significant``.
        rater: Rater whose counts are used. Default: the mean over all raters.

    Returns:
        One record for each study and candidate type, in order. The count of a category without a row is None.

    Raises:
        TableError: If a file or column is missing, a cell is malformed, or a count is repeated.
        ValueError: If the rater does not exist. The message lists the raters.
    """
    folder = Path(folder)
    errors = next((folder / name for name in _ERRORS if (folder / name).exists()), folder / _ERRORS[0])
    return _Layout(_COLUMNS, len(LETTERS), "rexval").read(folder / _REPORTS, errors, significant, rater)


def read_radevalx(
    reports: str | Path,
    errors: str | Path,
    significant: bool | None = None,
    rater: int | None = None,
    columns: Mapping[str, str] | None = None,
) -> list[ErrorRecord]:
    """Read RadEvalX: 100 references of IU X-Ray with a candidate each, and error counts of two radiologists.

    The data set is available to credentialed users of PhysioNet. The reader was tested on files in the layout below,
    but not on the data, whose names of files and columns may differ. ``reports`` has one row per study, in the order of
    ``study_number``: the reference in ``gt_report`` and one column per candidate type. ``errors`` has one row for each
    ``study_number``, ``candidate_type``, ``error_category`` (1 to 8), ``clinically_significant`` and ``rater_index``,
    with the count in ``num_errors``.

    Categories 1 to 6 are those of ReXVal. Errors of uncertainty, 7 (mentioned wrongly) and 8 (omitted), belong to none
    of the six and are in ``ErrorRecord.other``, so that ``total`` is the sum over all categories, as in the paper of
    CREPE (Appendix A.3.3).

    Args:
        reports: Table of the reports (CSV, JSON lines or Parquet).
        errors: Table of the counts.
        significant: As in :func:`read_rexval`.
        rater: Rater whose counts are used. Default: the mean over all raters.
        columns: Names of columns that differ from the layout, by content: ``reference``, ``study``, ``candidate``,
            ``category``, ``significance``, ``rater`` and ``count``.

    Raises:
        TableError: If a file or column is missing, naming all missing columns, a cell is malformed, or a count is
            repeated.
        ValueError: If the rater does not exist, or ``columns`` has an unknown key.
    """
    layout = _Layout(column_names(_COLUMNS, columns), _RADEVALX_CATEGORIES, "radevalx")
    return layout.read(reports, errors, significant, rater)


class _Layout:
    """A table of reports, and a table with one row for each count.

    Args:
        columns: Names of the columns by content.
        categories: Number of error categories.
        source: ``source`` of the records.
    """

    def __init__(self, columns: Mapping[str, str], categories: int, source: str) -> None:
        self.columns = columns
        self.categories = categories
        self.source = source

    def read(
        self, reports: str | Path, errors: str | Path, significant: bool | None, rater: int | None
    ) -> list[ErrorRecord]:
        """Return the records of two files."""
        texts, counts = read_table(reports), read_table(errors)
        (reference, *keys) = self.columns.values()
        advice = "rename the columns of the file to those of the layout"
        check_names(texts.names, [reference], texts.source, advice)
        check_names(counts.names, keys, counts.source, advice)
        references = texts.required_texts(reference)
        by_pair = self._counts(counts, keys, len(references))
        raters = sorted({known for by_rater in by_pair.values() for known in by_rater})
        if rater is not None and rater not in raters:
            raise ValueError(f"rater must be one of {', '.join(map(str, raters))}, got {rater}")
        return [
            self._record(
                references[study],
                texts.required_texts(kind)[study],
                [found for known, found in by_rater.items() if rater in (None, known)],
                significant,
            )
            for (study, kind), by_rater in sorted(by_pair.items())
        ]

    def _counts(self, table: Table, names: Sequence[str], studies: int) -> dict[tuple[int, str], dict[int, Counts]]:
        """Return the counts by study and candidate type, and by rater."""
        found: dict[tuple[int, str], dict[int, Counts]] = {}
        for row, cells in enumerate(zip(*map(table.column, names), strict=True)):
            where = table.where(row)
            study, kind, category, significance, rater, count = zip(names, cells, strict=True)
            if kind[1] is None:
                raise TableError(f"{where}, column {kind[0]!r}: is missing")
            known = _SIGNIFICANCES.get(str(significance[1]).strip().lower())
            if known is None:
                raise TableError(f"{where}, column {significance[0]!r}: must be True or False, got {significance[1]!r}")
            pair = _whole(study, where, 0, studies - 1), str(kind[1])
            number = _number(count, where)
            counts = found.setdefault(pair, {}).setdefault(_whole(rater, where, 0), {})
            by_significance = counts.setdefault(_whole(category, where, 1, self.categories) - 1, {})
            if known in by_significance:
                raise TableError(f"{where}: repeats a count of the same rater")
            by_significance[known] = number
        return found

    def _record(
        self, reference: str, candidate: str, raters: Sequence[Counts], significant: bool | None
    ) -> ErrorRecord:
        kinds = (True, False) if significant is None else (significant,)
        categories = range(self.categories)
        found = [_mean(raters, category, kinds, kinds) for category in categories]
        weighty = [_mean(raters, category, (True,), kinds) for category in categories]
        six = len(LETTERS)
        other = [count for count in found[six:] if count is not None]
        return ErrorRecord(
            reference,
            candidate,
            tuple(found[:six]),
            self.source,
            significant=tuple(weighty[:six]) if significant is None else None,
            other=math.fsum(other) if other else None,
        )


def _mean(raters: Sequence[Counts], category: int, summed: tuple[bool, ...], counted: tuple[bool, ...]) -> float | None:
    """Return the mean number of errors of a category with a significance in ``summed``.

    The mean is over the raters with a count of the category and a significance in ``counted``; ``None`` without one.
    """
    known = [numbers for by_category in raters if (numbers := by_category.get(category, {})).keys() & set(counted)]
    if not known:
        return None
    return math.fsum(number for numbers in known for kind, number in numbers.items() if kind in summed) / len(known)


def _number(cell: tuple[str, Any], where: str) -> float:
    name, value = cell
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < math.inf:
        raise TableError(f"{where}, column {name!r}: must be a number from 0 on, got {value!r}")
    return number


def _whole(cell: tuple[str, Any], where: str, first: int, last: int | None = None) -> int:
    number = _number(cell, where)
    if number != int(number) or number < first or (last is not None and number > last):
        most = "on" if last is None else f"to {last}"
        raise TableError(f"{where}, column {cell[0]!r}: must be a whole number from {first} {most}, got {cell[1]!r}")
    return int(number)
