"""Reports with sub-scores under a scoring system: a reader, sub-scores from error counts, and pairs."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import TableError, is_missing, parse_json_cell
from rrg_rewards.schemas.errors import ERROR_CATEGORIES
from rrg_rewards.schemas.scoring import Criterion, ScoringSystem, get_scoring_system
from rrg_rewards.utilities.names import unknown_name_message

# Tolerance of totals, as a share of the smallest weight, because totals are often rounded to two digits.
_ROUNDING = 0.01
# Tolerance of pairs: a loss may sum scores in float32, with a relative error of about 1e-7.
_PAIR_ROUNDING = 1e-6


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
        return system.total(self.scores)

    def to_record(self, system: ScoringSystem) -> dict[str, Any]:
        """Return plain data with the keys of :func:`read_graded_reports`, a row of its file.

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
    return GradedReport(record.reference, record.candidate, scores, record.source, whole=record.whole)


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


@dataclass(frozen=True)
class GradedPair:
    """Two candidates for one reference. The accepted one has the higher total.

    Args:
        reference: Reference report.
        accepted: The better candidate.
        rejected: The worse candidate.
        accepted_scores: Contribution of each criterion to the total of the better candidate, in the order of the
            system's criteria; NaN for a criterion that was not judged.
        rejected_scores: The contributions for the worse candidate.
        source: Source of the candidates. Different sources are joined by ``+``.

    Example:
        >>> pair = GradedPair("Clear.", "No effusion.", "Edema.", (0.0, -1.0), (-2.0, 0.0))
        >>> pair.margins, pair.margin
        ((2.0, -1.0), 1.0)
    """

    reference: str
    accepted: str
    rejected: str
    accepted_scores: tuple[float, ...]
    rejected_scores: tuple[float, ...]
    source: str = ""

    @property
    def margins(self) -> tuple[float, ...]:
        """Accepted minus rejected score of each criterion, NaN if either was not judged. A margin may be negative."""
        return tuple(
            accepted - rejected for accepted, rejected in zip(self.accepted_scores, self.rejected_scores, strict=True)
        )

    @property
    def margin(self) -> float:
        """Sum of the margins of the criteria that were judged for both candidates."""
        return math.fsum(margin for margin in self.margins if not math.isnan(margin))


@dataclass(frozen=True)
class GradedPairs:
    """Pairs of graded reports, and the numbers of pairs that were left out.

    Args:
        pairs: The pairs, grouped by reference, in the order of the first report of each reference.
        ties: Number of pairs with equal texts, equal totals, or totals that differ by less than the margin.
        incomparable: Number of pairs without a criterion that was judged for both candidates.
        capped: Number of pairs above the limit per reference.
    """

    pairs: list[GradedPair]
    ties: int
    incomparable: int
    capped: int


def graded_pairs(
    reports: Sequence[GradedReport],
    system: ScoringSystem,
    *,
    min_margin: float = 0.0,
    max_per_reference: int | None = None,
    seed: int = 0,
) -> GradedPairs:
    """Pair the candidates of each reference; the candidate with the higher total is accepted.

    All pairs of the candidates of a reference are formed, for example three pairs of three candidates. The totals of a
    pair include only the criteria that were judged for both candidates. Pairs with equal totals are left out, as are
    pairs whose totals cannot be distinguished in single precision.

    With ``max_per_reference``, the pairs with the smallest hashes of the seed and the three texts are kept. The
    selection does not depend on the order of the reports or on the process.

    Source: Liu et al., "ER²Score", Section 3.2 and Figure 2.

    Args:
        reports: Candidates with sub-scores, in any order. Split them before with
            ``rrg_rewards.training.metrics.splits.split_by_reference``, so that the parts share no reference.
        system: The scoring system of the sub-scores.
        min_margin: Minimum difference of the totals.
        max_per_reference: Maximum number of pairs per reference. Default: no limit.
        seed: Seed of the selection for ``max_per_reference``.

    Raises:
        ValueError: If ``min_margin`` is negative or not finite, ``max_per_reference`` is below 1, or the number of
            sub-scores of a report is not the number of criteria.

    Example:
        >>> from rrg_rewards.schemas import get_scoring_system
        >>> scores = {"No effusion.": (0, 1), "Edema.": (2, 0), "Small edema.": (2, 0)}
        >>> reports = [GradedReport("Clear.", text, (*given, 0, 0, 0, 0)) for text, given in scores.items()]
        >>> made = graded_pairs(reports, get_scoring_system("radcliq"))
        >>> [(pair.accepted, pair.rejected, pair.margins[:2]) for pair in made.pairs], made.ties
        ([('No effusion.', 'Edema.', (2.0, -1.0)), ('No effusion.', 'Small edema.', (2.0, -1.0))], 1)
    """
    if not 0 <= min_margin < math.inf:
        raise ValueError(f"min_margin must be a finite number of at least 0, got {min_margin}")
    if max_per_reference is not None and max_per_reference < 1:
        raise ValueError(f"max_per_reference must be at least 1, or None for all pairs, got {max_per_reference}")
    by_reference: dict[str, list[tuple[GradedReport, tuple[float, ...]]]] = {}
    for report in reports:
        by_reference.setdefault(report.reference, []).append((report, report.contributions(system)))
    pairs: list[GradedPair] = []
    ties = incomparable = capped = 0
    for candidates in by_reference.values():
        made: list[GradedPair] = []
        for (first, ours), (second, theirs) in combinations(candidates, 2):
            pair = _ordered(first, second, ours, theirs)
            if all(map(math.isnan, pair.margins)):
                incomparable += 1
            elif first.candidate == second.candidate or _is_tie(pair, min_margin):
                ties += 1
            else:
                made.append(pair)
        kept = made if max_per_reference is None else _chosen(made, max_per_reference, seed)
        capped += len(made) - len(kept)
        pairs += kept
    return GradedPairs(pairs, ties, incomparable, capped)


def _ordered(
    first: GradedReport, second: GradedReport, ours: tuple[float, ...], theirs: tuple[float, ...]
) -> GradedPair:
    source = "+".join(sorted({first.source, second.source} - {""}))
    pair = GradedPair(first.reference, first.candidate, second.candidate, ours, theirs, source)
    if pair.margin >= 0:
        return pair
    return GradedPair(first.reference, second.candidate, first.candidate, theirs, ours, source)


def _is_tie(pair: GradedPair, min_margin: float) -> bool:
    size = math.fsum(abs(score) for score in (*pair.accepted_scores, *pair.rejected_scores) if not math.isnan(score))
    return pair.margin <= _PAIR_ROUNDING * size or pair.margin < min_margin - _PAIR_ROUNDING * size


def _chosen(pairs: list[GradedPair], number: int, seed: int) -> list[GradedPair]:
    if len(pairs) <= number:
        return pairs

    def rank(index: int) -> bytes:
        pair = pairs[index]
        texts = (str(seed), pair.reference, pair.accepted, pair.rejected)
        return hashlib.sha256("\x1f".join(texts).encode("utf-8", "surrogatepass")).digest()

    return [pairs[index] for index in sorted(sorted(range(len(pairs)), key=rank)[:number])]
