"""The result of a comparison of systems: values, differences from a baseline, and tests."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

__all__ = ["GroupComparison", "MetricComparison", "SystemComparison", "SystemDifference", "SystemValue"]


@dataclass(frozen=True)
class SystemValue:
    """Corpus value of a system by a metric.

    Args:
        system: Name of the system.
        value: Corpus value, the mean over the runs of the system; NaN if it is undefined.
        low: Lower end of its bootstrap interval, which is NaN without resamples.
        high: Upper end.
        runs: Corpus value of each run.
    """

    system: str
    value: float
    low: float
    high: float
    runs: tuple[float, ...]


@dataclass(frozen=True)
class SystemDifference:
    """Difference between a system and the baseline by a metric; NaN where it is undefined or was not asked for.

    Args:
        system: Name of the system.
        value: Its corpus value minus that of the baseline.
        low: Lower end of the interval of the paired bootstrap.
        high: Upper end.
        bootstrap_p: P-value of the paired bootstrap.
        randomisation_p: P-value of paired approximate randomisation.
        bootstrap_p_holm: ``bootstrap_p``, corrected by Holm for all metrics and systems of the group.
        randomisation_p_holm: ``randomisation_p``, corrected in the same way.
        wins: Number of reports on which the system is better than the baseline, by the mean over runs; ``None`` if the
            metric does not say whether higher scores are better.
        ties: Number of reports on which both score the same, up to 1e-6.
        losses: Number of reports on which the system is worse.
    """

    system: str
    value: float
    low: float
    high: float
    bootstrap_p: float
    randomisation_p: float
    bootstrap_p_holm: float
    randomisation_p_holm: float
    wins: int | None
    ties: int
    losses: int | None


@dataclass(frozen=True, eq=False)
class MetricComparison:
    """Comparison of all systems by one metric, on the reports that all runs have a score for.

    Args:
        metric: Name of the metric, or of a column of scores.
        higher_is_better: Whether higher values are better; ``None`` if it is unknown.
        signature: Signature of the metric; ``None`` for a column of scores.
        rows: Indices of the compared reports, int64 ``(N,)``.
        left_out: Number of reports of the group that a run has no score for.
        systems: Values of the systems, the baseline first.
        differences: Differences of the other systems from the baseline.
        report_values: Score of each compared report by system, ``(N,)``, the mean over runs.
    """

    metric: str
    higher_is_better: bool | None
    signature: str | None
    rows: Tensor
    left_out: int
    systems: tuple[SystemValue, ...]
    differences: tuple[SystemDifference, ...]
    report_values: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class GroupComparison:
    """Comparison on a group of reports.

    Args:
        by: Name of the column of the group; ``None`` for all reports.
        group: Value of this column; ``None`` for all reports.
        rows: Number of reports of the group.
        metrics: Comparison by each metric.
    """

    by: str | None
    group: str | None
    rows: int
    metrics: tuple[MetricComparison, ...]


@dataclass(frozen=True, eq=False)
class SystemComparison:
    """Comparison of systems with a baseline, for all reports and for groups of them.

    Args:
        baseline: Name of the baseline.
        systems: Number of runs of each system, the baseline first.
        groups: Comparison on all reports, then on each group.
        num_resamples: Draws of the bootstrap; 0 for none.
        num_permutations: Permutations of the randomisation; 0 for none.
        confidence: Fraction of draws inside an interval.
        seed: Seed of draws and permutations.
    """

    baseline: str
    systems: Mapping[str, int]
    groups: tuple[GroupComparison, ...]
    num_resamples: int
    num_permutations: int
    confidence: float
    seed: int

    @property
    def all_reports(self) -> GroupComparison:
        """The comparison on all reports."""
        return self.groups[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as dicts, lists, texts and numbers, without scores of reports; NaN becomes ``None``."""
        return {
            "baseline": self.baseline,
            "systems": dict(self.systems),
            "bootstrap": {"num_resamples": self.num_resamples, "confidence": self.confidence},
            "randomisation": {"num_permutations": self.num_permutations},
            "seed": self.seed,
            "groups": [
                {
                    "by": group.by,
                    "group": group.group,
                    "rows": group.rows,
                    "metrics": [_metric(one) for one in group.metrics],
                }
                for group in self.groups
            ],
        }


def _metric(one: MetricComparison) -> dict[str, Any]:
    return {
        "metric": one.metric,
        "higher_is_better": one.higher_is_better,
        "signature": one.signature,
        "rows": len(one.rows),
        "left_out": one.left_out,
        "systems": [_plain(value) for value in one.systems],
        "differences": [_plain(value) for value in one.differences],
    }


def _plain(one: SystemValue | SystemDifference) -> dict[str, Any]:
    return {field.name: _number(getattr(one, field.name)) for field in fields(one)}


def _number(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_number(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
