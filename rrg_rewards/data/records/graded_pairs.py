"""Pairs of candidates for one reference: the better one and the worse one, with their scores."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from rrg_rewards.data.records.graded_reports import GradedReport
from rrg_rewards.schemas.scoring import ScoringSystem

__all__ = ["GradedPair", "GradedPairs", "graded_pairs"]

# A loss may sum scores in float32, with a relative error of about 1e-7.
_ROUNDING = 1e-6


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
    return pair.margin <= _ROUNDING * size or pair.margin < min_margin - _ROUNDING * size


def _chosen(pairs: list[GradedPair], number: int, seed: int) -> list[GradedPair]:
    if len(pairs) <= number:
        return pairs

    def rank(index: int) -> bytes:
        pair = pairs[index]
        texts = (str(seed), pair.reference, pair.accepted, pair.rejected)
        return hashlib.sha256("\x1f".join(texts).encode("utf-8", "surrogatepass")).digest()

    return [pairs[index] for index in sorted(sorted(range(len(pairs)), key=rank)[:number])]
