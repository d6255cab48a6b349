"""Pairs of reports on the same reference, the better one and the worse one, with the scores of both."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from rrg_rewards.data.graded_reports import GradedReport
from rrg_rewards.schemas.scoring import ScoringSystem

__all__ = ["GradedPair", "GradedPairs", "graded_pairs"]

# Sums in float32, in which a loss may take them, round at about 1e-7 of what is summed.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class GradedPair:
    """Two candidates for one reference, of which the accepted one has the higher total.

    Args:
        reference: Reference report.
        accepted: The better candidate.
        rejected: The worse candidate.
        accepted_scores: What each criterion adds to the better candidate's total, in the order of the system's
            criteria; NaN where nobody judged it.
        rejected_scores: What each criterion adds to the worse candidate's total.
        source: Where the two are from; both sources joined by ``+`` where they differ.

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
        """By how much the accepted report is better at each criterion: of either sign, NaN where one is not judged."""
        return tuple(
            accepted - rejected for accepted, rejected in zip(self.accepted_scores, self.rejected_scores, strict=True)
        )

    @property
    def margin(self) -> float:
        """By how much the accepted report is better in all, over the criteria that were judged in both."""
        return math.fsum(margin for margin in self.margins if not math.isnan(margin))


@dataclass(frozen=True)
class GradedPairs:
    """Pairs, and what was declined.

    Args:
        pairs: The pairs, those of a reference together, references in the order of their first report.
        ties: How many pairs of reports were declined since their totals are equal or less than the asked margin apart,
            or since the two are the same text.
        incomparable: How many were declined since no criterion was judged in both.
        capped: How many were left out since the reference has more than was asked for.
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
    """Pair the candidates of each reference: the one with the higher total is accepted.

    All pairs of a reference's candidates are made, three of three candidates as published. Where a criterion was judged
    in one of the two alone, totals are over the others. Of equal totals neither is better: such ties are declined.
    A total may be higher by less than it can be told in single precision; that is a tie, too.

    Pairs kept under ``max_per_reference`` are those of least hash of the seed and the three texts: they are the same in
    whatever order reports come, and in every process.

    Source: Liu et al., "ER²Score", Section 3.2 and Figure 2.

    Args:
        reports: Candidates with sub-scores, in any order. To split them first, so that no reference stands on two
            sides, see ``rrg_rewards.training.splits.split_by_reference``.
        system: The scoring system that sub-scores are of.
        min_margin: How much higher the accepted total must be at least.
        max_per_reference: At most so many pairs of a reference. Default: all.
        seed: Seed of the choice among more.

    Raises:
        ValueError: If ``min_margin`` is negative or not finite, ``max_per_reference`` is below 1, or a report has not
            one sub-score a criterion.

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
    graded: dict[str, list[tuple[GradedReport, tuple[float, ...]]]] = {}
    for report in reports:
        graded.setdefault(report.reference, []).append((report, report.contributions(system)))
    pairs: list[GradedPair] = []
    ties = incomparable = capped = 0
    for candidates in graded.values():
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

    def rank(place: int) -> bytes:
        pair = pairs[place]
        texts = (str(seed), pair.reference, pair.accepted, pair.rejected)
        return hashlib.sha256("\x1f".join(texts).encode("utf-8", "surrogatepass")).digest()

    return [pairs[place] for place in sorted(sorted(range(len(pairs)), key=rank)[:number])]
