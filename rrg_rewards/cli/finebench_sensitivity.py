"""Score paraphrased reports and reports with wrong details: ``rrg-rewards finebench sensitivity``."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.finebench_input import finebench_judge, read_reports
from rrg_rewards.cli.options import UsageError, metric_settings
from rrg_rewards.cli.sensitivity import VERSIONS, Scorer, make_scorer, markdown_table, sensitivity, versions_of
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.version import __version__

if TYPE_CHECKING:
    from rrg_rewards.findings.editing.rewrite_rules import RewrittenReport

__all__ = ["run_sensitivity"]


def run_sensitivity(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run the task and return the exit code."""
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.data.tables.writers import check_output, open_output, write_json, write_table

    if args.seed < 0:
        raise UsageError(f"argument --seed: must not be negative, got {args.seed}")
    if args.output is not None and Path(args.output).suffix not in (".json", ".md"):
        raise UsageError(f"argument --output: must end in .json or .md, got {args.output!r}")
    for path in (args.output, args.pairs):
        if path is not None:
            check_output(path, args.overwrite)
    scorers = _scorers(args)
    reports = dict(list(read_reports(args, terminal).texts.items())[: args.limit])
    if not reports:
        raise ValueError(f"{args.table}: contains no report")
    writer: dict[str, Any] = {}
    if args.judge:
        reports, made, writer = _judged_versions(args, reports, terminal)
    else:
        made = versions_of(list(reports.values()), args.seed)
    with terminal.progress("scoring") as report:
        result = sensitivity(list(reports.values()), scorers, args.seed, report, made)
    result = {"version": __version__, "table": args.table, "text_column": args.text_column, **writer, **result}
    if args.pairs is not None:
        texts = {version: [rewritten.candidate for rewritten in made[version]] for version in VERSIONS}
        table = Table({"row": list(reports), "reference": list(reports.values()), **texts})
        write_table(table, args.pairs, args.format, args.overwrite)
    if args.output is not None and args.output.endswith(".json"):
        write_json(result, args.output, args.overwrite)
    elif args.output is not None:
        with open_output(args.output, args.overwrite) as file:
            file.write(markdown_table(result).encode())
    terminal.show(markdown_table(result).rstrip())
    return 0


def _judged_versions(
    args: argparse.Namespace, reports: Mapping[str, str], terminal: Terminal
) -> "tuple[dict[str, str], dict[str, list[RewrittenReport]], dict[str, Any]]":
    """Return the reports of which a judge wrote both versions, the versions, and an account of its answers."""
    from rrg_rewards.cli.judge_options import BatchedJudge
    from rrg_rewards.judges.tasks.rewriting import rewrite_reports
    from rrg_rewards.utilities.processes import run_coroutine

    chosen = finebench_judge(args.judge)
    with terminal.progress("rewriting") as report:
        judge = BatchedJudge(chosen, args.batch_size, report)
        written = run_coroutine(rewrite_reports(judge, list(reports.values()), args.schema))
    both = [row for row in range(len(reports)) if all(written.versions[version][row] for version in VERSIONS)]
    if not both:
        raise ValueError(f"{args.table}: the judge wrote no two accepted versions of a report ({written.answers})")
    if len(both) < len(reports):
        terminal.warn(
            f"{len(reports) - len(both)} of {len(reports)} reports lack an accepted version: they are left out"
        )
    made = {
        version: [found for row in both if (found := written.versions[version][row]) is not None]
        for version in VERSIONS
    }
    rows = list(reports.items())
    return dict(rows[row] for row in both), made, {"writer": chosen.signature, "answers": written.answers}


def _scorers(args: argparse.Namespace) -> list[Scorer]:
    names: Sequence[str] = [name.strip() for name in args.metrics.split(",")]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UsageError(f"argument --metrics: {twice[0]} is named more than once")
    settings = metric_settings(args.set, names)
    try:
        return [make_scorer(name, **settings[name]) for name in names]
    except (ValueError, TypeError) as error:
        raise UsageError(f"argument --metrics: {error}") from error
