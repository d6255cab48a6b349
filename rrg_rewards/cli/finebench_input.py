"""Reports, labels and judges of the tasks of ``rrg-rewards finebench``."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import UsageError, read_input
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.judges.base import Judge, JudgeTask

__all__ = ["ReportTexts", "add_label_options", "ask_judge", "finebench_judge", "read_reports"]


@dataclass(frozen=True)
class ReportTexts:
    """The reports of a table that are not blank.

    Args:
        texts: Text of each report, by its id.
        positive: Findings of the question schema that the labels of each report call positive, by its id; ``None`` if
            labels were not asked for.
    """

    texts: Mapping[str, str]
    positive: Mapping[str, frozenset[str]] | None = None


def add_label_options(parser: argparse.ArgumentParser, help: str) -> None:  # noqa: A002 (as in argparse)
    """Add ``--labels`` and ``--label-prefix``."""
    parser.add_argument("--labels", action="store_true", help=help)
    parser.add_argument("--label-prefix", metavar="TEXT", help="the same, with columns named TEXT + label")


def read_reports(args: argparse.Namespace, terminal: Terminal, id_column: str | None = None) -> ReportTexts:
    """Read the reports of ``--text-column``, and their labels if ``--labels`` asks for them.

    Missing and blank reports, and reports without labels if labels are asked for, are left out with a warning.

    Raises:
        UsageError: If an id occurs more than once.
        TableError: If a column is missing, or a cell is no label.
    """
    table = read_input(args, terminal)
    texts = table.texts(args.text_column)
    ids = [str(row + 1) for row in range(len(table))]
    if id_column is not None:
        ids = [str(cell) for cell in table.column(id_column)]
        twice = [report_id for report_id, count in Counter(ids).items() if count > 1]
        if twice:
            raise UsageError(f"argument --id-column: {twice[0]!r} occurs more than once in {id_column!r}")
    found = {report_id: text for report_id, text in zip(ids, texts, strict=True) if text is not None and text.strip()}
    if len(found) < len(table):
        terminal.warn(f"{len(table) - len(found)} of {len(table)} reports are missing or blank, and are left out")
    if not getattr(args, "labels", False) and getattr(args, "label_prefix", None) is None:
        return ReportTexts(found)
    positive = dict(zip(ids, _positive(args, table), strict=True))
    labelled = {report_id: findings for report_id in found if (findings := positive[report_id]) is not None}
    if len(labelled) < len(found):
        terminal.warn(f"{len(found) - len(labelled)} of {len(found)} reports have no labels, and are left out")
    return ReportTexts({report_id: found[report_id] for report_id in labelled}, labelled)


def _positive(args: argparse.Namespace, table: "Table") -> list[frozenset[str] | None]:
    """Return the positive findings of each row from the columns named like the findings of the question schema."""
    from rrg_rewards.questions.positive_findings import check_finding_labels
    from rrg_rewards.questions.schema import get_question_schema

    schema = get_question_schema(args.schema)
    return check_finding_labels(
        table.labels([f"{args.label_prefix or ''}{finding.name}" for finding in schema.findings]), schema
    )


def finebench_judge(setting: str) -> "Judge":
    """Make the judge of ``--judge``.

    Raises:
        UsageError: For an unknown judge, or the judge ``rules``, which evaluates CRIMSON only.
    """
    from rrg_rewards.cli.judge_options import judge_from_option
    from rrg_rewards.judges.rules import RuleJudge

    judge = judge_from_option(setting)
    if isinstance(judge, RuleJudge):
        raise UsageError("argument --judge: the judge 'rules' evaluates CRIMSON only; omit --judge to use rules")
    return judge


def ask_judge(
    args: argparse.Namespace, terminal: Terminal, judge: "Judge", task: "JudgeTask[Any, Any]", items: Sequence[Any]
) -> list[Any]:
    """Evaluate one item for each report in batches; warn of failures.

    Raises:
        ValueError: If the judge fails on every item.
    """
    from rrg_rewards.cli.judge_options import BatchedJudge
    from rrg_rewards.judges.base import JudgeFailure

    with terminal.progress("judging") as report:
        results: list[Any] = BatchedJudge(judge, args.batch_size, report).evaluate_now(task, items)
    failed = Counter(result.kind for result in results if isinstance(result, JudgeFailure))
    if failed:
        kinds = ", ".join(f"{kind} {count}" for kind, count in failed.items())
        if failed.total() == len(items):
            raise ValueError(f"{args.table}: the judge failed on every report ({kinds}); nothing is written")
        terminal.warn(f"the judge failed on {failed.total()} of {len(items)} reports ({kinds}): they are left out")
    return results
