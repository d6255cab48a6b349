"""The page of ``rrg-rewards compare --html``."""

import argparse
from collections.abc import Sequence

from rrg_rewards.cli.compare_tables import ComparedTables
from rrg_rewards.cli.reference_table import key_columns
from rrg_rewards.metrics.comparing_systems import MetricRuns
from rrg_rewards.metrics.system_comparison import SystemComparison
from rrg_rewards.pages.compare_page import compare_page, compared_findings
from rrg_rewards.pages.page import Page, Pane
from rrg_rewards.pages.score_page import one_text

__all__ = ["comparison_page"]


def comparison_page(
    args: argparse.Namespace, result: SystemComparison, tables: ComparedTables, scored: Sequence[MetricRuns]
) -> Page:
    """Return the page of a comparison. Of several runs of a system, it shows the texts and findings of the first."""
    studies = tables.studies
    texts: dict[str, Sequence[str | None]] = {}
    references: list[str | None] | None = None
    if args.with_text:
        first = {run.system: run for run in reversed(tables.runs)}
        texts = {system: studies.texts(first[system].column) for system in result.systems}
        columns = [studies.texts(name) for name in args.reference_column or ["reference"] if name in studies.columns]
        references = [one_text(row) for row in zip(*columns, strict=True)] or [None] * len(studies)
    panes = [Pane(name, cells) for name, cells in [("Reference", references), *texts.items()] if cells is not None]
    names = [str(cell) for cell in studies.column(_name_column(args))] if args.key else _numbers(len(studies))
    by_metric = ({system: one.runs[system][0] for system in result.systems} for one in scored)
    findings = (compared_findings(scores, references, texts) for scores in by_metric)
    return compare_page(result, names, panes, next((found for found in findings if found is not None), None))


def _name_column(args: argparse.Namespace) -> str:
    """Return the column of the studies' names; with ``--references``, the studies are the rows of that table."""
    return str(args.key) if args.references is None else key_columns(args)[1]


def _numbers(rows: int) -> list[str]:
    return [str(row + 1) for row in range(rows)]
