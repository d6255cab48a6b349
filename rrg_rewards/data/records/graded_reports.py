"""Reports with sub-scores under a scoring system: a reader, a writer, and sub-scores from error counts."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError, is_missing, parse_json_cell
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.schemas.errors import ERROR_CATEGORIES
from rrg_rewards.schemas.scoring import Criterion, ScoringSystem, get_scoring_system
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["GradedReport", "grade_by_errors", "read_graded_reports", "write_graded_reports"]

# Tolerance of totals, as a share of the smallest weight, because totals are often rounded to two digits.
_ROUNDING = 0.01


@dataclass(frozen=True)
class GradedReport:
    """A candidate report, its reference, and its sub-scores under a scoring system.

    Args:
        reference: Reference report.
        candidate: Candidate report.
        scores: Sub-scores in the order of the system's criteria; ``None`` for a criterion that was not judged.
        source: Source of the report, such as ``phantom`` or the name of an annotator.
        tier: Intended quality of the candidate, such as ``0-2 errors``, if it was written for a quality.
        whole: Full report, if the reference is an excerpt of one.

    Example:
        >>> from rrg_rewards.schemas import get_scoring_system
        >>> report = GradedReport("Small effusion.", "Effusion. Edema.", (1, 0, 0, None, 0, 0), "example")
        >>> report.total(get_scoring_system("radcliq"))
        nan
        >>> report.contributions(get_scoring_system("radcliq"))
        (-1.0, 0.0, 0.0, nan, 0.0, 0.0)
    """

    reference: str
    candidate: str
    scores: tuple[float | None, ...]
    source: str = ""
    tier: str | None = None
    whole: str = ""

    def contributions(self, system: ScoringSystem) -> tuple[float, ...]:
        """Return the contribution of each sub-score to the total, NaN for a criterion that was not judged.

        Raises:
            ValueError: If the number of sub-scores is not the number of criteria of ``system``.
        """
        known = system.contributions([score or 0.0 for score in self.scores])
        # Always use the same NaN object, because tuples that contain it are then equal.
        return tuple(math.nan if score is None else value for score, value in zip(self.scores, known, strict=True))

    def total(self, system: ScoringSystem) -> float:
        """Return the total under ``system``, NaN if a sub-score is missing. Higher is better.

        Raises:
            ValueError: If the number of sub-scores is not the number of criteria, or one is out of range.
        """
        system.check(self.scores)
        return system.base + sum(self.contributions(system))

    def to_record(self, system: ScoringSystem) -> dict[str, Any]:
        """Return plain data with the keys of :func:`read_graded_reports`.

        Example:
            >>> from rrg_rewards.schemas import get_scoring_system
            >>> record = GradedReport("Clear.", "Edema.", (1, 0, 0, 0, 0, 0)).to_record(get_scoring_system("radcliq"))
            >>> record["scores"]["false_finding"], record["total"]
            (1, -1.0)
        """
        total = self.total(system)
        record = {
            "reference": self.reference,
            "candidate": self.candidate,
            "scores": dict(zip(system.names, self.scores, strict=True)),
            "total": None if math.isnan(total) else total,
            "source": self.source,
            "tier": self.tier,
        }
        return {**record, "whole": self.whole} if self.whole else record


def read_graded_reports(path: str | Path, system: ScoringSystem | str | Path) -> list[GradedReport]:
    r"""Read reports with sub-scores from radiologists, a language model or a program.

    The file contains JSON lines with the keys ``reference``, ``candidate`` and ``scores``, an object of numbers by
    criterion. A criterion that is null or absent was not judged. ``total``, ``source``, ``tier`` and ``whole`` are
    optional, and other keys are ignored. A yes/no criterion may be ``true`` (1) or ``false`` (0). Parquet also works,
    as does CSV with the object as JSON text.

    A total must equal the total of the sub-scores. If sub-scores are missing, it must be a possible total.

    Args:
        path: Path of the file, or ``-`` for standard input.
        system: The scoring system, its name, or the path of its YAML file.

    Raises:
        TableError: If the file is malformed, a report is missing, a sub-score is not a number, is out of range or has
            no criterion, no criterion was judged, or the total contradicts the sub-scores. The message names the row.
        ValueError: If ``system`` is not a scoring system.
        OSError: If the file cannot be read.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "graded.jsonl"
        ...     _ = path.write_text('{"reference": "Clear.", "candidate": "Edema.", "scores": {"false_finding": 1}}\n')
        ...     read_graded_reports(path, "radcliq")[0].scores
        (1.0, None, None, None, None, None)
    """
    system = get_scoring_system(system)
    table = read_table(path, None if Path(path).suffix else "jsonl")
    references, candidates = table.required_texts("reference"), table.required_texts("candidate")
    scores = [_scores(cell, system, table.where(row)) for row, cell in enumerate(table.column("scores"))]
    for row, total in enumerate(table.optional("total")):
        _check_total(total, scores[row], system, table.where(row))
    columns = references, candidates, scores, *map(table.optional_texts, ("source", "tier", "whole"))
    return [
        GradedReport(reference, candidate, given, source or "", tier, whole or "")
        for reference, candidate, given, source, tier, whole in zip(*columns, strict=True)
    ]


def write_graded_reports(
    reports: Iterable[GradedReport], path: str | Path, system: ScoringSystem | str | Path, overwrite: bool = False
) -> None:
    """Write reports with sub-scores for :func:`read_graded_reports`.

    Args:
        reports: The reports.
        path: Path of the file, or ``-`` for standard output. The ending selects JSON lines, CSV or Parquet.
        system: The scoring system of the sub-scores, its name, or the path of its YAML file.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: If the file exists and may not be replaced.
        ValueError: If a report's sub-scores are not those of ``system``.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> report = GradedReport("Clear.", "Edema.", (1.0, 0.0, 0.0, 0.0, None, None), "example", "0-2 errors")
        >>> with TemporaryDirectory() as folder:
        ...     write_graded_reports([report], Path(folder) / "graded.jsonl", "radcliq")
        ...     read_graded_reports(Path(folder) / "graded.jsonl", "radcliq") == [report]
        True
    """
    system = get_scoring_system(system)
    names = ("reference", "candidate", "scores", "total", "source", "tier")
    table = Table.from_records((report.to_record(system) for report in reports), names)
    write_table(table, path, None if Path(path).suffix else "jsonl", overwrite)


def grade_by_errors(record: ErrorRecord, system: ScoringSystem) -> GradedReport:
    """Derive sub-scores from error counts, with the error categories that each criterion lists.

    The score of a count criterion is the number of its errors, limited to the range of the criterion. The score of a
    yes/no criterion is 1 if any of its errors occurs. The score is ``None`` for a grade criterion, for a criterion
    without error categories, and if the score depends on a category that was not counted.

    Args:
        record: Reference, candidate and error counts.
        system: The scoring system.

    Raises:
        ValueError: If the system adds sub-scores to its base and lists errors, because errors would raise the total.

    Example:
        >>> from rrg_rewards.schemas import get_scoring_system
        >>> record = ErrorRecord("Small effusion.", "Effusion. Edema.", (1, 0, 0, 2, 0, None))
        >>> grade_by_errors(record, get_scoring_system("radcliq")).scores
        (1.0, 0.0, 0.0, 2.0, 0.0, None)
        >>> grade_by_errors(record, get_scoring_system("mrscore")).scores
        (1.0, 0.0, 1.0, 0.0, None, None, None)
    """
    if system.direction == "add" and (names := [c.name for c in system.criteria if c.errors]):
        raise ValueError(
            f"{system.name} adds sub-scores to its base; {names[0]} must not list errors, which would raise the total"
        )
    counts = dict(zip(ERROR_CATEGORIES, record.counts, strict=True))
    scores = tuple(_by_errors(criterion, counts) for criterion in system.criteria)
    # An excerpt and its full report must be in the same part of a split.
    whole = getattr(record, "whole", "")
    return GradedReport(record.reference, record.candidate, scores, record.source, whole=whole)


def _by_errors(criterion: Criterion, counts: Mapping[str, float | None]) -> float | None:
    if criterion.kind == "grade" or not criterion.errors:
        return None
    found = [counts[name] for name in criterion.errors]
    known = [count for count in found if count is not None]
    if criterion.kind == "yes_no" and any(known):
        return 1.0
    return min(float(sum(known)), criterion.bounds[1]) if len(known) == len(found) else None


def _scores(cell: Any, system: ScoringSystem, where: str) -> tuple[float | None, ...]:
    where = f"{where}, column 'scores'"
    cell = parse_json_cell(cell, where, "object of numbers by criterion")
    if not isinstance(cell, Mapping):
        raise TableError(f"{where}: must be an object of numbers by criterion, got {type(cell).__name__}")
    for name in cell:
        if name not in system.names:
            raise TableError(f"{where}: {unknown_name_message('criterion', str(name), system.names)}")
    scores = tuple(_score(cell.get(criterion.name), criterion, where) for criterion in system.criteria)
    if all(score is None for score in scores):
        raise TableError(f"{where}: no criterion was judged; leave the row out")
    return scores


def _score(value: Any, criterion: Criterion, where: str) -> float | None:
    if is_missing(value):
        return None
    if isinstance(value, bool) and criterion.kind == "yes_no":
        return float(value)
    try:
        criterion.check(value)
    except ValueError as error:
        raise TableError(f"{where}: {error}") from None
    return float(value)


def _check_total(value: Any, scores: tuple[float | None, ...], system: ScoringSystem, where: str) -> None:
    where = f"{where}, column 'total'"
    try:
        # The cells of CSV are text.
        total = math.nan if value is None else float(value)
    except (TypeError, ValueError):
        raise TableError(f"{where}: must be a number, got {type(value).__name__}") from None
    if math.isnan(total):
        return
    low, high = system.total_bounds(scores)
    slack = _ROUNDING * min(criterion.weight for criterion in system.criteria)
    if not low - slack <= total <= high + slack:
        given = f"{low:g}" if low == high else f"a total in [{low:g}, {high:g}]"
        raise TableError(f"{where}: is {total:g}, but the sub-scores give {given} under {system.name}")
