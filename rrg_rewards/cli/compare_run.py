"""The run of ``rrg-rewards compare``: scores of all systems, and their comparison."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.compare_tables import ComparedTables, SystemRun
from rrg_rewards.cli.options import UsageError
from rrg_rewards.cli.score_engine import best_reference
from rrg_rewards.cli.score_pairs import PairReader, located
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.tables.table import Table, is_missing
from rrg_rewards.metrics.comparing_systems import MetricRuns, compare_runs
from rrg_rewards.metrics.references import score_batch, signature_with_references
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.metrics.system_comparison import SystemComparison

if TYPE_CHECKING:
    from rrg_rewards.metrics.base import ReportMetric

__all__ = ["compared", "group_columns", "report_columns", "scored_runs"]


def group_columns(args: argparse.Namespace, studies: Table, terminal: Terminal) -> dict[str, list[str | None]]:
    """Return the group of each study by the columns of ``--by``; warn of studies without a group.

    Raises:
        TableError: If a column does not exist.
    """
    found = {}
    for column in [name.strip() for name in args.by.split(",")] if args.by else []:
        groups = [None if is_missing(cell) else str(cell) for cell in studies.column(column)]
        if missing := groups.count(None):
            terminal.warn(f"{missing} of {len(groups)} studies have no {column} and belong to none of its groups")
        found[column] = groups
    return found


def compared(
    args: argparse.Namespace,
    metrics: Sequence[MetricRuns],
    by: Mapping[str, Sequence[str | None]],
    terminal: Terminal,
) -> SystemComparison:
    """Compare the scored systems, for all studies and for groups of them."""
    with terminal.progress("comparing") as report:
        return compare_runs(
            metrics,
            baseline=args.baseline,
            by=by,
            num_resamples=args.bootstrap,
            num_permutations=args.permutations,
            seed=args.seed,
            report=report,
        )


def scored_runs(
    args: argparse.Namespace, tables: ComparedTables, metrics: "Mapping[str, ReportMetric]", terminal: Terminal
) -> list[MetricRuns]:
    """Return the scores of all runs by each metric, and the columns of ``--scores``.

    Raises:
        TableError: If a report, reference or context column is malformed.
        UsageError: If ``--lower-is-better`` names something else than a column of ``--scores``, or a column of scores
            has the name of a metric.
    """
    columns = _columns(args, tables, list(metrics))
    once = _Once(terminal)
    readers = []
    for run in tables.runs if metrics else ():
        options = {"table": run.source, "prediction_column": run.column, "output": None}
        reader = PairReader(argparse.Namespace(**{**vars(args), **options}), [tables.studies], metrics)
        reader.check(once)
        readers.append(reader)
    best = best_reference(args)
    found = []
    with terminal.progress("scoring") as report:
        report(0, len(metrics) * len(readers))
        for name, metric in metrics.items():
            scores = [_scored(reader, name, metric, best, report) for reader in readers]
            signature = signature_with_references(metric, best)
            found.append(MetricRuns(name, _by_system(tables.runs, scores), metric.higher_is_better, signature, metric))
    return [*found, *columns]


class _Once(Terminal):
    """A terminal that shows each warning once, because all systems have the same references."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal.quiet)
        self._shown: set[str] = set()

    def warn(self, text: str) -> None:
        if text not in self._shown:
            super().warn(text)
        self._shown.add(text)


def _scored(
    reader: PairReader, name: str, metric: "ReportMetric", best: bool | None, report: Callable[[int, int], None]
) -> Scores:
    (batch,) = reader
    with located(batch.table):
        scores = score_batch(metric, batch.predictions, batch.references, best, batch.context[name])
    report(1, 0)
    return scores


def _by_system(runs: Sequence[SystemRun], scores: Sequence[Scores]) -> dict[str, list[Scores]]:
    found: dict[str, list[Scores]] = {}
    for run, one in zip(runs, scores, strict=True):
        found.setdefault(run.system, []).append(one)
    return found


def _columns(args: argparse.Namespace, tables: ComparedTables, metrics: Sequence[str]) -> list[MetricRuns]:
    names = list(tables.runs[0].scores)
    lower = [name.strip() for name in args.lower_is_better.split(",")] if args.lower_is_better else []
    if unknown := [name for name in lower if name not in names]:
        raise UsageError(f"argument --lower-is-better: {unknown[0]!r} is not among --scores {','.join(names)}")
    if twice := [name for name in names if name in metrics]:
        raise UsageError(f"argument --scores: {twice[0]!r} is also a metric of --metrics")
    return [
        MetricRuns(name, _by_system(tables.runs, [run.scores[name] for run in tables.runs]), name not in lower)
        for name in names
    ]


def report_columns(result: SystemComparison, studies: Table) -> dict[str, list[Any]]:
    """Return the score of each study by each metric and system, ``None`` for studies that are left out."""
    columns: dict[str, list[Any]] = {}
    for one in result.all_reports.metrics:
        for system, values in one.report_values.items():
            cells: list[Any] = [None] * len(studies)
            for row, value in zip(one.rows.tolist(), values.tolist(), strict=True):
                cells[row] = value
            columns[f"{one.metric} of {system}"] = cells
    return columns
