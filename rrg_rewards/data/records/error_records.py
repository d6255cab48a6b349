"""Report pairs with error counts: records, and their reader."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import TableError, is_missing, parse_json_cell
from rrg_rewards.findings.editing.injected_report import LETTERS

_OPTIONAL = ("edits", "significant", "other", "significant_other", "study", "attributes", "ratings")
# Means over raters may be rounded.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class ErrorRecord:
    """A candidate report, its reference, and its number of errors of each category.

    Args:
        reference: Reference report.
        candidate: Candidate report.
        counts: Six numbers in the order of ``rrg_rewards.schemas.ERROR_CATEGORIES``: integers, or means over several
            raters. ``None`` for a category that was not counted.
        source: Source of the pair, such as ``phantom``, ``rexval`` or ``radpref``.
        edits: Single errors: edits of an injected candidate, from :meth:`rrg_rewards.findings.ErrorEdit.to_dict`, or
            errors as the data set lists them.
        significant: The clinically significant errors among ``counts``, in the same order; ``None`` if significance was
            not annotated.
        other: Number of errors that belong to none of the six categories, or whose category is unknown; ``None`` if
            such errors were not counted.
        significant_other: The clinically significant errors among ``other``; ``None`` if there is no such number.
        study: Name of the study; records of one study depend on each other, and are resampled together. ``""`` if the
            study has no name.
        attributes: Further texts of the data set by name, such as the annotator or the model.
        ratings: Further numbers of the data set by name, such as a weighted error; ``None`` if a number is missing. The
            name ``errors``, ``significant`` or ``insignificant`` is a total of the data set in place of that of the
            counts, for :meth:`judgement`.
        whole: Full report, if the reference is an excerpt of one; not read from files.

    Example:
        >>> record = ErrorRecord("Small effusion.", "Effusion. Cardiomegaly.", (1, 0, 0, 0, None, None), "example")
        >>> record.total, record.judgement("significant")
        (1.0, nan)
    """

    reference: str
    candidate: str
    counts: tuple[float | None, ...]
    source: str = ""
    edits: tuple[Mapping[str, Any], ...] = ()
    significant: tuple[float | None, ...] | None = None
    other: float | None = None
    significant_other: float | None = None
    study: str = ""
    # Not hashed, because records are otherwise hashable.
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    ratings: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    whole: str = ""

    @property
    def total(self) -> float:
        """Number of all counted errors, with and without a category; NaN if none were counted."""
        return _sum_of_known((*self.counts, self.other))

    @property
    def total_significant(self) -> float:
        """Number of the clinically significant errors among them; NaN if significance was not annotated."""
        return _sum_of_known((*(self.significant or ()), self.significant_other))

    def judgement(self, name: str) -> float:
        """Return a number that raters gave: a rating, or the number of errors; NaN if it is missing.

        Args:
            name: Name of a rating; or ``errors``, ``significant`` or ``insignificant``, the number of these errors.

        Raises:
            KeyError: If the record has no rating with this name.
        """
        if name in self.ratings:
            given = self.ratings[name]
            return math.nan if given is None else float(given)
        if name == "insignificant":
            return self.total - self.total_significant
        return {"errors": self.total, "significant": self.total_significant}[name]


def _sum_of_known(counts: Iterable[float | None]) -> float:
    known = [count for count in counts if count is not None]
    return float(sum(known)) if known else math.nan


def parse_count(value: Any, where: str) -> float | None:
    """Return a cell that is a number of errors, ``None`` if it is missing.

    Raises:
        TableError: If the cell is not a finite number of at least 0. The message begins with ``where``.

    Example:
        >>> parse_count(2, "pairs.jsonl: data row 1"), parse_count(None, "pairs.jsonl: data row 1")
        (2, None)
    """
    if is_missing(value):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise TableError(f"{where}: a count must be a number from 0 on or null, got {value!r}")
    return value


def _six(cell: Any, name: str, where: str) -> tuple[float | None, ...]:
    where = f"{where}, column {name!r}"
    cell = parse_json_cell(cell, where, f"list of {len(LETTERS)} numbers")
    if not isinstance(cell, Sequence) or len(cell) != len(LETTERS):
        found = f"{len(cell)} of them" if isinstance(cell, Sequence) else type(cell).__name__
        raise TableError(f"{where}: must be a list of {len(LETTERS)} numbers, got {found}")
    return tuple(parse_count(value, f"{where}, {letter}") for letter, value in zip(LETTERS, cell, strict=True))


def _edits(cell: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if cell is None:
        return ()
    if not isinstance(cell, Sequence) or not all(isinstance(edit, Mapping) for edit in cell):
        raise TableError(f"{where}, column 'edits': must be a list of objects, got {type(cell).__name__}")
    return tuple(cell)


def read_error_records(path: str | Path) -> list[ErrorRecord]:
    r"""Read report pairs with error counts from injection, a language model or radiologists.

    The file contains JSON lines with the keys ``reference``, ``candidate`` and ``counts``, a list of six numbers. The
    number of a category that was not counted is null. The other fields of :class:`ErrorRecord` are optional. Further
    keys are ignored. CSV and Parquet also work.

    Args:
        path: Path of the file, or ``-`` for standard input.

    Raises:
        TableError: If the file is malformed, a report is missing, ``counts`` or ``significant`` is not a list of six
            numbers, or more errors of a category are significant than were counted. The message names the row.
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
    texts = table.optional_texts("source"), table.optional_texts("study")
    columns = table.column("counts"), *texts, *(table.optional(name) for name in _OPTIONAL if name != "study")
    rows = enumerate(zip(references, candidates, *columns, strict=True))
    return [_record(table.where(row), *cells) for row, cells in rows]


def _record(
    where: str,
    reference: str,
    candidate: str,
    counts: Any,
    source: str | None,
    study: str | None,
    edits: Any,
    significant: Any,
    *further: Any,
) -> ErrorRecord:
    six = _six(counts, "counts", where)
    other, significant_other, attributes, ratings = further
    return ErrorRecord(
        reference,
        candidate,
        six,
        source or "",
        _edits(edits, where),
        None if is_missing(significant) else _significant(significant, six, where),
        _number(other, "other", where),
        _number(significant_other, "significant_other", where),
        study or "",
        {name: str(text) for name, text in _object(attributes, "attributes", where).items()},
        {name: _rating(value, where) for name, value in _object(ratings, "ratings", where).items()},
    )


def _number(cell: Any, name: str, where: str) -> float | None:
    where = f"{where}, column {name!r}"
    return parse_count(parse_json_cell(cell, where, "number"), where)


def _object(cell: Any, name: str, where: str) -> Mapping[str, Any]:
    if is_missing(cell):
        return {}
    found = parse_json_cell(cell, f"{where}, column {name!r}", "object")
    if not isinstance(found, Mapping):
        raise TableError(f"{where}, column {name!r}: must be an object, got {type(found).__name__}")
    return found


def _rating(value: Any, where: str) -> float | None:
    if is_missing(value):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TableError(f"{where}, column 'ratings': a rating must be a finite number or null, got {value!r}")
    return value


def _significant(cell: Any, counts: Sequence[float | None], where: str) -> tuple[float | None, ...]:
    found = _six(cell, "significant", where)
    for letter, part, count in zip(LETTERS, found, counts, strict=True):
        if (part is None) != (count is None) or (part or 0.0) > (count or 0.0) + _ROUNDING:
            raise TableError(
                f"{where}, column 'significant', {letter}: must be at most the count of the category, {count}; "
                f"got {part}"
            )
    return found
