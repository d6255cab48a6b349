"""Make question items from reports: ``rrg-rewards finebench build``."""

import argparse
from typing import TYPE_CHECKING

from rrg_rewards.cli.finebench_input import ReportTexts, ask_judge, finebench_judge, read_reports
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.questions.schema import QAItem

    BuiltItems = dict[str, tuple[QAItem, ...]]

__all__ = ["build"]


def build(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run the task and return the exit code."""
    from rrg_rewards.data.records.question_items import ReportItems, write_question_items
    from rrg_rewards.data.tables.writers import check_output
    from rrg_rewards.questions.positive_findings import items_on

    check_output(args.output, args.overwrite)
    reports = read_reports(args, terminal, args.id_column)
    built = _judged_items(args, reports, terminal) if args.judge else _engine_items(args, reports, terminal)
    positive = reports.positive
    if positive is not None:
        built = {report_id: items_on(items, positive[report_id]) for report_id, items in built.items()}
    rows = [ReportItems(report_id, items, reports.texts[report_id]) for report_id, items in built.items()]
    write_question_items(rows, args.output, args.format, args.overwrite)
    number = sum(len(row.items) for row in rows)
    empty = sum(not row.items for row in rows)
    terminal.note(f"{number} items on {len(rows)} reports, of which {empty} have no item on a finding of {args.schema}")
    if positive is not None:
        cells = sum(len(positive[row.report_id]) for row in rows)
        asked = sum(len({item.finding for item in row.items}) for row in rows)
        terminal.note(
            f"{asked} of {cells} positive labels have an item; no report states the others in words known here"
        )
    return 0


def _engine_items(args: argparse.Namespace, reports: ReportTexts, terminal: Terminal) -> "BuiltItems":
    from rrg_rewards.questions.engine import build_items

    built = {}
    with terminal.progress("building") as report:
        report(0, len(reports.texts))
        for report_id, text in reports.texts.items():
            built[report_id] = build_items(text, args.schema)
            report(1, 0)
    return built


def _judged_items(args: argparse.Namespace, reports: ReportTexts, terminal: Terminal) -> "BuiltItems":
    from rrg_rewards.judges.base import JudgeFailure
    from rrg_rewards.judges.tasks.finebench import ItemsTask
    from rrg_rewards.questions.schema import get_question_schema

    task = ItemsTask(get_question_schema(args.schema))
    results = ask_judge(args, terminal, finebench_judge(args.judge), task, list(reports.texts.values()))
    return {
        report_id: result
        for report_id, result in zip(reports.texts, results, strict=True)
        if not isinstance(result, JudgeFailure)
    }
