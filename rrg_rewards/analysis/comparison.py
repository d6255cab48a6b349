"""Comparison of systems by metrics, with paired tests on the metrics' sufficient statistics."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.functional.bootstrap import percentile_interval
from rrg_rewards.functional.significance_tests import (
    PairedBootstrap,
    bootstrap_test,
    bootstrap_values,
    drawn_run_means,
    holm_correction,
    paired_randomisation,
)
from rrg_rewards.metrics.base import Column, ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.run_log import Progress

Predictions = Sequence[str | None]

# Learned metrics round differently in batches of another composition.
TIE = 1e-6
"""Scores with a smaller difference are equal."""


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

    def report_columns(self, reports: int) -> dict[str, list[Any]]:
        """Return the score of each of ``reports`` reports by each metric and system, ``None`` if it is left out."""
        columns: dict[str, list[Any]] = {}
        for metric in self.metrics:
            for system, values in metric.report_values.items():
                cells = columns[f"{metric.metric} of {system}"] = [None] * reports
                for row, value in zip(metric.rows.tolist(), values.tolist(), strict=True):
                    cells[row] = value
        return columns


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


@dataclass(frozen=True, eq=False)
class MetricRuns:
    """Scores of the runs of several systems by one metric, for the same reports in the same order.

    Args:
        name: Name of the metric, or of a column of scores.
        runs: Scores of each run, by system.
        higher_is_better: Whether higher scores are better; ``None`` if it is unknown.
        signature: Signature of the metric; ``None`` for a column of scores.
        metric: The metric; ``None`` for a column of scores.
    """

    name: str
    runs: Mapping[str, Sequence[Scores]]
    higher_is_better: bool | None
    signature: str | None = None
    metric: ReportMetric | None = None


def compare_systems(
    systems: Mapping[str, Predictions | Sequence[Predictions]],
    target: Sequence[str | None],
    metrics: Sequence[ReportMetric] | Mapping[str, ReportMetric],
    *,
    baseline: str | None = None,
    by: Mapping[str, Sequence[str | None]] | None = None,
    context: Mapping[str, Column] | None = None,
    num_resamples: int = 1000,
    num_permutations: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> SystemComparison:
    """Compare systems with a baseline, by metrics on the same reports.

    Each system is scored once. Corpus values of resampled reports are computed from sufficient statistics, so that
    differences of corpus metrics such as CRG are exact. :func:`~rrg_rewards.functional.paired_bootstrap` and
    :func:`~rrg_rewards.functional.paired_randomisation` describe the tests. P-values are corrected for the number of
    metrics and systems with :func:`~rrg_rewards.functional.holm_correction`, in each group of reports by itself.

    A report that a run has no score for, such as a missing prediction, is left out for all systems, and counted.

    Args:
        systems: ``N`` predicted reports by the name of the system, or a list of them for several runs of a system, for
            example with several seeds.
        target: ``N`` reference reports.
        metrics: The metrics, by name if they are a mapping.
        baseline: Name of the baseline; default: the first system.
        by: Columns that divide the reports into groups, such as ``{"sex": [...]}`` with the sex of each patient, or
            ``None``. Everything is repeated for each group of each column.
        context: Context columns of ``N`` values by name; each metric gets those that it takes.
        num_resamples: Draws of the bootstrap; 0 for no intervals and bootstrap p-values.
        num_permutations: Permutations of the randomisation; 0 for no such p-values.
        confidence: Fraction of draws inside an interval, in (0, 1).
        seed: Seed of draws and permutations.

    Raises:
        TypeError: If a report is not a text, naming system, argument and row.
        ValueError: If there are fewer than two systems, the baseline is unknown, lengths differ, or a system has no
            run.

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> target = ["Cardiomegaly.", "Hiatal hernia.", "Normal."] * 10
        >>> systems = {"normal": ["Normal."] * 30, "model": ["Cardiomegaly.", "Normal.", "Normal."] * 10}
        >>> found = compare_systems(systems, target, [ReportCRG()], num_resamples=200, num_permutations=200)
        >>> (difference,) = found.all_reports.metrics[0].differences
        >>> round(difference.value, 3), difference.randomisation_p < 0.05, difference.wins, difference.ties
        (0.167, True, 10, 20)
    """
    named = metrics if isinstance(metrics, Mapping) else {metric.name: metric for metric in metrics}
    if len(named) < len(metrics):
        raise ValueError("metrics must have different names; pass a mapping of names to metrics")
    columns = dict(context or {})
    runs = {system: _runs(predictions) for system, predictions in systems.items()}
    scored = []
    for name, metric in named.items():
        own = {key: column for key, column in columns.items() if metric.context is None or key in metric.context}
        scores = {
            system: [_scored(system, metric, one, target, own) for one in predictions]
            for system, predictions in runs.items()
        }
        scored.append(MetricRuns(name, scores, metric.higher_is_better, metric.signature, metric))
    return compare_runs(
        scored,
        baseline=baseline,
        by=by,
        num_resamples=num_resamples,
        num_permutations=num_permutations,
        confidence=confidence,
        seed=seed,
    )


def _scored(
    system: str,
    metric: ReportMetric,
    predictions: Predictions,
    target: Sequence[str | None],
    context: Mapping[str, Column],
) -> Scores:
    try:
        return metric.score(predictions, target, **context)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"systems[{system!r}]: {error}") from error


def _runs(predictions: Predictions | Sequence[Predictions]) -> Sequence[Predictions]:
    if predictions and not isinstance(predictions[0], (str, type(None))):
        return predictions  # type: ignore[return-value]
    return [predictions]  # type: ignore[list-item]


def compare_runs(
    metrics: Sequence[MetricRuns],
    *,
    baseline: str | None = None,
    by: Mapping[str, Sequence[str | None]] | None = None,
    num_resamples: int = 1000,
    num_permutations: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> SystemComparison:
    """Compare systems whose reports are scored; arguments and result as :func:`compare_systems`.

    Args:
        metrics: Scores of all systems by each metric.
        baseline: Name of the baseline.
        by: Columns that divide the reports into groups.
        num_resamples: Draws of the bootstrap.
        num_permutations: Permutations of the randomisation.
        confidence: Fraction of draws inside an interval.
        seed: Seed of draws and permutations.
        progress: Receives the numbers of finished and of added comparisons.

    Raises:
        ValueError: As :func:`compare_systems`.
    """
    systems = _check(metrics, baseline, by or {})
    settings = _Settings(num_resamples, num_permutations, confidence, seed)
    groups = list(_groups(len(next(iter(metrics[0].runs.values()))[0]), by or {}))
    if progress is not None:
        progress(0, len(groups) * len(metrics))
    found = []
    for column, name, rows in groups:
        compared = []
        for one in metrics:
            compared.append(_compare(one, systems, rows, settings))
            if progress is not None:
                progress(1, 0)
        found.append(GroupComparison(column, name, len(rows), tuple(_corrected(compared))))
    numbers = {system: len(metrics[0].runs[system]) for system in systems}
    return SystemComparison(systems[0], numbers, tuple(found), num_resamples, num_permutations, confidence, seed)


@dataclass(frozen=True)
class _Settings:
    num_resamples: int
    num_permutations: int
    confidence: float
    seed: int


def _groups(reports: int, by: Mapping[str, Sequence[str | None]]) -> Iterator[tuple[str | None, str | None, Tensor]]:
    """Yield column and name of each group with the indices of its reports; first all reports."""
    yield None, None, torch.arange(reports)
    for column, names in by.items():
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            if name is not None:
                rows.setdefault(name, []).append(row)
        for name, own in rows.items():
            yield column, name, torch.tensor(own)


def _check(metrics: Sequence[MetricRuns], baseline: str | None, by: Mapping[str, Sequence[str | None]]) -> list[str]:
    """Return the names of the systems, the baseline first."""
    if not metrics:
        raise ValueError("metrics must contain at least one metric")
    names = list(metrics[0].runs)
    if len(names) < 2:
        raise ValueError(f"systems must contain at least two systems, got {len(names)}")
    first = names[0] if baseline is None else baseline
    if first not in names:
        raise ValueError(unknown_name_message("system as baseline", first, names))
    for one in metrics:
        if list(one.runs) != names:
            raise ValueError(
                f"{one.name} must have scores of the systems {', '.join(names)}, got {', '.join(one.runs)}"
            )
        if empty := [system for system, runs in one.runs.items() if not runs]:
            raise ValueError(f"the system {empty[0]!r} must have at least one run")
        lengths = {system: [len(run) for run in runs] for system, runs in one.runs.items()}
        if len({number for found in lengths.values() for number in found}) > 1:
            raise ValueError(f"systems must have scores of the same reports, got {lengths}")
    reports = len(metrics[0].runs[first][0])
    for column, groups in by.items():
        if len(groups) != reports:
            raise ValueError(f"by[{column!r}] must have a group for each of {reports} reports, got {len(groups)}")
    return [first, *(name for name in names if name != first)]


def _compare(one: MetricRuns, systems: Sequence[str], rows: Tensor, settings: _Settings) -> MetricComparison:
    scored = torch.stack([run.scored[rows] for runs in one.runs.values() for run in runs]).all(0)
    kept = rows[scored.cpu()]
    runs = {system: [run.take(kept) for run in one.runs[system]] for system in systems}
    values = {system: _report_values(one, runs[systems[0]][0], found) for system, found in runs.items()}
    found_systems, differences = _tested(one, runs, values, settings) if len(kept) else _undefined(systems, runs)
    return MetricComparison(
        metric=one.name,
        higher_is_better=one.higher_is_better,
        signature=one.signature,
        rows=kept,
        left_out=len(rows) - len(kept),
        systems=found_systems,
        differences=differences,
        report_values=values,
    )


def _report_values(one: MetricRuns, reference: Scores, runs: Sequence[Scores]) -> Tensor:
    """Return the score of each report, the mean over runs; CRG contributions are those of the compared references."""
    if one.metric is not None:
        rescale = one.metric.rescaling(reference.sufficient_statistics)
        runs = [rescale(run) for run in runs]
    return torch.stack([run.value.double().cpu() for run in runs]).mean(0)


def _tested(
    one: MetricRuns, runs: Mapping[str, Sequence[Scores]], values: Mapping[str, Tensor], settings: _Settings
) -> tuple[tuple[SystemValue, ...], tuple[SystemDifference, ...]]:
    """Return the value of each system and the difference of each but the first from the first."""
    columns = {
        system: [[column.cpu() for column in run.sufficient_statistics] for run in found]
        for system, found in runs.items()
    }
    statistic = next(iter(runs.values()))[0].aggregate_weighted
    generator = torch.Generator().manual_seed(settings.seed)
    means: dict[str, Tensor] = {}
    systems = []
    for system, own in columns.items():
        each = tuple(float(run.aggregate(*stats)) for run, stats in zip(runs[system], own, strict=True))
        low = high = math.nan
        if settings.num_resamples:
            drawn = bootstrap_values(own, statistic, num_resamples=settings.num_resamples, seed=settings.seed)
            means[system] = drawn_run_means(drawn, generator)
            if len(means[system]):
                low, high = percentile_interval(means[system], settings.confidence)
        systems.append(SystemValue(system, sum(each) / len(each), low, high, each))
    first, *others = systems
    differences = []
    for other in others:
        value = other.value - first.value
        drawn = means[other.system] - means[first.system] if means else torch.empty(0)
        test = bootstrap_test(value, drawn, settings.confidence)
        p = math.nan
        if settings.num_permutations:
            p = paired_randomisation(
                columns[other.system],
                columns[first.system],
                statistic,
                num_permutations=settings.num_permutations,
                seed=settings.seed,
            ).p_value
        counts = _wins_ties_losses(values[other.system] - values[first.system], one.higher_is_better)
        differences.append(_difference(other.system, test, p, counts))
    return tuple(systems), tuple(differences)


def _difference(
    system: str, test: PairedBootstrap, p: float, counts: tuple[int | None, int, int | None]
) -> SystemDifference:
    return SystemDifference(system, test.value, test.low, test.high, test.p_value, p, math.nan, math.nan, *counts)


def _wins_ties_losses(differences: Tensor, higher_is_better: bool | None) -> tuple[int | None, int, int | None]:
    ties = int((differences.abs() <= TIE).sum())
    if higher_is_better is None:
        return None, ties, None
    better = differences if higher_is_better else -differences
    return int((better > TIE).sum()), ties, int((better < -TIE).sum())


def _undefined(
    systems: Sequence[str], runs: Mapping[str, Sequence[Scores]]
) -> tuple[tuple[SystemValue, ...], tuple[SystemDifference, ...]]:
    """Return values and differences of systems without a report that all runs have a score for."""
    nan = math.nan
    none = PairedBootstrap(nan, nan, nan, nan)
    return (
        tuple(SystemValue(system, nan, nan, nan, (nan,) * len(runs[system])) for system in systems),
        tuple(_difference(system, none, nan, (0, 0, 0)) for system in systems[1:]),
    )


def _corrected(metrics: Sequence[MetricComparison]) -> list[MetricComparison]:
    """Return the comparisons with p-values corrected for all of them."""
    differences = [difference for one in metrics for difference in one.differences]
    bootstrap = iter(holm_correction([difference.bootstrap_p for difference in differences]))
    randomisation = iter(holm_correction([difference.randomisation_p for difference in differences]))
    return [
        replace(
            one,
            differences=tuple(
                replace(difference, bootstrap_p_holm=next(bootstrap), randomisation_p_holm=next(randomisation))
                for difference in one.differences
            ),
        )
        for one in metrics
    ]


def _metric(one: MetricComparison) -> dict[str, Any]:
    return {
        "metric": one.metric,
        "higher_is_better": one.higher_is_better,
        "signature": one.signature,
        "rows": len(one.rows),
        "left_out": one.left_out,
        "systems": [plain(value) for value in one.systems],
        "differences": [plain(value) for value in one.differences],
    }


def plain(value: Any) -> Any:
    """Return a record as a dict, a tuple as a list, and NaN as ``None``, also inside of others."""
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
