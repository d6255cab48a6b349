"""Reports with sub-scores under a scoring system: read, written, and made of reports with counted errors."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.data.error_records import ErrorRecord
from rrg_rewards.data.readers import read_table
from rrg_rewards.data.tables import Table, TableError
from rrg_rewards.data.writers import write_table
from rrg_rewards.schemas.errors import ERROR_CATEGORIES
from rrg_rewards.schemas.scoring import Criterion, ScoringSystem, get_scoring_system
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["GradedReport", "grade_by_errors", "read_graded_reports", "write_graded_reports"]

# Totals are often told with two digits; a hundredth of the smallest weight is no other sub-score.
_ROUNDING = 0.01


@dataclass(frozen=True)
class GradedReport:
    """A candidate report, its reference, and its sub-scores under a scoring system.

    Args:
        reference: Reference report.
        candidate: Candidate report.
        scores: Sub-scores in the order of the system's criteria; ``None`` where nobody judged a criterion.
        source: Where the report is from, such as ``phantom`` or an annotator's name.
        tier: The quality that the candidate was written for, where it was: a name such as ``0-2 errors``.
        whole: The report that the reference was cut from, where it is a part of one.

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
        """What each sub-score adds to the total; NaN where nobody judged a criterion.

        Raises:
            ValueError: If there is not one sub-score a criterion of ``system``.
        """
        known = system.contributions([score or 0.0 for score in self.scores])
        # One and the same NaN: tuples that hold it are equal then.
        return tuple(math.nan if score is None else value for score, value in zip(self.scores, known, strict=True))

    def total(self, system: ScoringSystem) -> float:
        """The total under ``system``, higher being better; NaN where a sub-score is missing.

        Raises:
            ValueError: If there is not one sub-score a criterion, or one is out of range.
        """
        system.check(self.scores)
        return system.base + sum(self.contributions(system))

    def to_record(self, system: ScoringSystem) -> dict[str, Any]:
        """The row of a file: plain data with the keys of :func:`read_graded_reports`.

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
    r"""Read reports with sub-scores, whoever gave them: radiologists, a language model, a program.

    JSON lines with the keys ``reference``, ``candidate`` and ``scores``, an object of numbers by criterion. A criterion
    that is null or not there was not judged. ``total``, ``source``, ``tier`` and ``whole`` are optional, other keys
    are left alone. For a yes/no criterion ``true`` and ``false`` are 1 and 0. Parquet works, too, and CSV with the
    object as JSON text.

    A total must be what the sub-scores give, or, where some are missing, what they can give.

    Args:
        path: Path of the file, or ``-`` for standard input.
        system: The scoring system, its name, or the path of its YAML file.

    Raises:
        TableError: By row, if a report is missing, a sub-score is no number, out of range or of no criterion, no
            criterion was judged, or the total is not what sub-scores give; or if the file is malformed.
        ValueError: If ``system`` is no scoring system.
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
    if "total" in table.names:
        for row, total in enumerate(table.column("total")):
            _check_total(total, scores[row], system, table.where(row))
    sources, tiers, wholes = (
        table.texts(name) if name in table.names else [None] * len(table) for name in ("source", "tier", "whole")
    )
    return [
        GradedReport(reference, candidate, given, source or "", tier, whole or "")
        for reference, candidate, given, source, tier, whole in zip(
            references, candidates, scores, sources, tiers, wholes, strict=True
        )
    ]


def write_graded_reports(
    reports: Iterable[GradedReport], path: str | Path, system: ScoringSystem | str | Path, overwrite: bool = False
) -> None:
    """Write reports with sub-scores, whole or not at all; :func:`read_graded_reports` reads them back.

    Args:
        reports: What to write.
        path: Where to, or ``-`` for standard output: JSON lines, CSV or Parquet by the ending.
        system: The scoring system that sub-scores are of, its name, or the path of its YAML file.
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
    records = [report.to_record(system) for report in reports]
    names = dict.fromkeys(("reference", "candidate", "scores", "total", "source", "tier"))
    names.update({name: None for record in records for name in record})
    columns = {name: [record.get(name) for record in records] for name in names}
    write_table(Table(columns), path, None if Path(path).suffix else "jsonl", overwrite)


def grade_by_errors(record: ErrorRecord, system: ScoringSystem) -> GradedReport:
    """Give a report with counted errors its sub-scores, by the categories that each criterion lists as its errors.

    A count is the sum of those categories, at most the end of the criterion's range; a yes/no is 1 where there is any
    such error. It is ``None`` for a grade, for a criterion that lists no errors, and where a category that was not
    counted leaves it open.

    Args:
        record: Reference, candidate and error counts.
        system: The scoring system.

    Raises:
        ValueError: If the system adds sub-scores to its base and lists errors: they would make a report better.

    Example:
        >>> from rrg_rewards.schemas import get_scoring_system
        >>> record = ErrorRecord("Small effusion.", "Effusion. Edema.", (1, 0, 0, 2, 0, None))
        >>> grade_by_errors(record, get_scoring_system("radcliq")).scores
        (1.0, 0.0, 0.0, 2.0, 0.0, None)
        >>> grade_by_errors(record, get_scoring_system("mrscore")).scores
        (1.0, 0.0, 1.0, 0.0, None, None, None)
    """
    if system.direction == "add" and (names := [c.name for c in system.criteria if c.errors]):
        raise ValueError(f"{system.name} adds sub-scores to its base, so counted errors cannot be those of {names[0]}")
    counts = dict(zip(ERROR_CATEGORIES, record.counts, strict=True))
    scores = tuple(_by_errors(criterion, counts) for criterion in system.criteria)
    # Of an excerpt: it must stay on the side of a split on which the whole report is.
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
    # CSV has no objects.
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except ValueError as error:
            raise TableError(f"{where}: is no JSON object of numbers by criterion: {error}") from None
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
    if value is None or (isinstance(value, float) and math.isnan(value)):
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
        # CSV has no numbers.
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
