"""Scores of CRIMSON with the judge's evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rrg_rewards.findings.reading.coverage import PairCoverage
from rrg_rewards.functional.crimson import CrimsonEvaluation, CrimsonFinding, Route
from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.metrics.judged import JudgedScores
from rrg_rewards.metrics.unread import unread_words


@dataclass(frozen=True)
class CrimsonRuns:
    """The results of several runs of a judge on one report pair, at least one of which is an evaluation.

    Args:
        results: Evaluation or failure of each run.
    """

    results: tuple[CrimsonEvaluation | JudgeFailure, ...]

    @property
    def first(self) -> CrimsonEvaluation:
        """Evaluation of the first run that did not fail."""
        return next(result for result in self.results if isinstance(result, CrimsonEvaluation))


@dataclass(frozen=True, kw_only=True, repr=False)
class CrimsonScores(JudgedScores):
    """CRIMSON of report pairs with the judge's evaluations.

    Args:
        value: CRIMSON, float64 tensor ``(N,)``; NaN if a pair is unscorable or the judge failed.
        details: Weighted and unweighted counts by name, each ``(N,)``; see :meth:`CRIMSON.score`.
        results: Evaluation or failure of each pair; ``None`` if it was not judged. With several runs, a
            :class:`CrimsonRuns` instead of an evaluation.
        gives_coverage: Whether the judge says how much of both reports it has read.
        judge_names: Names of the judges of a cascade by route; empty for other judges.
    """

    gives_coverage: bool = False
    judge_names: Mapping[Route, str] = field(default_factory=dict)

    @property
    def evaluations(self) -> tuple[CrimsonEvaluation | None, ...]:
        """Evaluation of each pair, of the first run that did not fail; ``None`` if there is none."""
        found = map(_first, self.results)
        return tuple(result if isinstance(result, CrimsonEvaluation) else None for result in found)

    @property
    def coverages(self) -> tuple[PairCoverage | None, ...]:
        """How much of the reference and of the candidate of each pair the judge has read; ``None`` if not known."""
        return tuple(getattr(_first(result), "coverage", None) for result in self.results)

    @property
    def routes(self) -> tuple[Route, ...]:
        """Judge of each pair in a cascade, ``rules`` or ``second``; empty if it was not judged."""
        return tuple(getattr(_first(result), "route", "") for result in self.results)

    @property
    def judges(self) -> list[str]:
        """Name of the judge of each pair in a cascade, empty if it was not judged; without a cascade, no names."""
        return [self.judge_names.get(route, "") for route in self.routes] if self.judge_names else []

    @property
    def explanations(self) -> dict[str, list[str]]:
        """Columns of texts for each pair.

        ``missed``, ``invented`` and ``misdescribed``: findings. ``unread``, only of a judge that gives it: words of
        both reports that it has not read. ``judge``, only of a cascade: which judge has judged the pair. ``failure``:
        kind and reason of the judge's failure.
        """
        evaluations = [evaluation or CrimsonEvaluation() for evaluation in self.evaluations]
        return {
            "missed": [_in_words(one.reference_findings, one.missing_findings) for one in evaluations],
            "invented": [_in_words(one.predicted_findings, one.false_findings) for one in evaluations],
            "misdescribed": [_misdescribed(one) for one in evaluations],
            **({"unread": [unread_words(one) for one in self.coverages]} if self.gives_coverage else {}),
            **({"judge": self.judges} if self.judge_names else {}),
            **super().explanations,
        }


def _first(result: Any) -> Any:
    """Return the first evaluation of several runs, or the result of a single one."""
    return result.first if isinstance(result, CrimsonRuns) else result


def _in_words(findings: Sequence[CrimsonFinding], chosen: Sequence[str]) -> str:
    by_id = {finding.id: finding for finding in findings}
    return "; ".join(
        f"{by_id[id_].finding or id_} ({by_id[id_].clinical_significance.replace('_', ' ')})"
        if id_ in by_id
        # Published checks accept it.
        else f"{id_} (in no list)"
        for id_ in chosen
    )


def _misdescribed(evaluation: CrimsonEvaluation) -> str:
    reference = {finding.id: finding.finding for finding in evaluation.reference_findings}
    predicted = {finding.id: finding.finding for finding in evaluation.predicted_findings}
    described = []
    for error in evaluation.attribute_errors:
        named = reference.get(error.ref_id) or error.ref_id
        other = predicted.get(error.pred_id) or error.pred_id
        what = f"{named}: {error.explanation}" if error.explanation else f"{other} for {named}"
        described.append(f"{what} ({error.severity} {', '.join(error.error_types)})")
    return "; ".join(described)
