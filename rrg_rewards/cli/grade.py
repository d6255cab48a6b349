"""``rrg-rewards grade``: let a language model write and score reports of graded quality."""

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.judge_arguments import (
    add_judge_arguments,
    check_judge_outputs,
    judge_from_arguments,
    judge_limits,
    limits_of,
)
from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    add_table_argument,
    positive_int,
)
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.judges.base import Judge
    from rrg_rewards.judges.tasks.grading import GradingTask
    from rrg_rewards.schemas.scoring import ScoringSystem

__all__ = ["add_command"]

_DESCRIPTION = """\
Let a language model write candidate reports of graded quality. For each reference and each tier (range of total scores)
of a scoring system, it writes one or more reports, each with a sub-score for each criterion. `train er2score` learns
from these reports.

--dry-run sends nothing: it counts the reports to request, estimates tokens, cost and time, and shows one prompt.

Each answer is checked and appended to --output as one JSON line: reference, candidate, scores by criterion, total, the
requested tier, whether the total is in the tier (in_tier), and the judge. Ctrl-C stops after the running calls; a
second Ctrl-C stops immediately. Repeat the same command to request the reports that --output does not contain yet.

Reports are sent to this machine only unless the judge has allow_remote: true.

examples:
  rrg-rewards grade reports.csv --report-column report --output graded.jsonl --dry-run --price-in 2.5 --price-out 10
  rrg-rewards grade reports.csv --output graded.jsonl --max-reports 20 \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1, temperature: 0.7}"
  rrg-rewards grade reports.csv --output graded.jsonl --system mrscore --per-tier 2 \\
      --judge "{name: openai, model: gpt-x, base_url: https://api.example.org/v1, allow_remote: true}" \\
      --requests-per-minute 60 --tokens-per-minute 90000
  rrg-rewards grade reports.csv --output graded.jsonl --system mine.yaml --tiers "[[8, 10], [4, 7], [0, 3]]" --dry-run

exit codes: 0 success, 1 reports were requested but none was written, 2 wrong command line, 130 interrupted
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``grade`` to the command line."""
    parser = add_command_parser(commands, "grade", _run, summary, _DESCRIPTION)
    add_table_argument(parser, "REPORTS", "reference reports")
    parser.add_argument(
        "--report-column", default="report", metavar="NAME", help="column of references (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="JSON lines file to append to (.jsonl); reports that it contains are not requested again",
    )
    parser.add_argument(
        "--system",
        default="radcliq",
        metavar="NAME",
        help="scoring system: radcliq, mrscore or a .yaml file (default: %(default)s)",
    )
    parser.add_argument(
        "--tiers",
        metavar="LIST",
        help='[lowest, highest] total of each tier, for example "[[-2, 0], [-4, -3]]" (default: the tiers of the '
        "system, or else thirds of the range of totals)",
    )
    parser.add_argument(
        "--per-tier", type=positive_int, default=1, metavar="N", help="reports for each reference and tier (default: 1)"
    )
    parser.add_argument("--max-reports", type=positive_int, metavar="N", help="use the first N references only")
    parser.add_argument(
        "--source", default="judge", metavar="TEXT", help="value of `source` in the output (default: %(default)s)"
    )
    add_judge_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="send nothing; show counts, estimates and one prompt")
    overwrite = {"help": "replace a summary that exists; --output is never replaced"}
    add_shared_options(parser, "json", "format", overwrite=overwrite)


def _system(args: argparse.Namespace) -> "ScoringSystem":
    import yaml

    from rrg_rewards.judges.tasks.grading import quality_tiers
    from rrg_rewards.schemas.scoring import get_scoring_system

    try:
        system = get_scoring_system(args.system)
    except ValueError as error:
        raise UsageError(f"argument --system: {error}") from error
    try:
        if args.tiers is not None:
            system = replace(system, tiers=yaml.safe_load(args.tiers))
        quality_tiers(system)
    except (ValueError, yaml.YAMLError) as error:
        raise UsageError(f"argument --tiers: {error}") from error
    return system


def _references(args: argparse.Namespace, terminal: Terminal) -> list[str]:
    """Return the distinct reports that are not blank."""
    from rrg_rewards.cli.options import read_input

    texts = read_input(args, terminal).texts(args.report_column)
    found = [text for text in texts if text is not None and text.strip()]
    references = list(dict.fromkeys(found))
    if len(found) < len(texts):
        terminal.warn(f"{len(texts) - len(found)} of {len(texts)} reports are missing or blank, and are left out")
    if len(references) < len(found):
        terminal.note(f"{len(found) - len(references)} reports are duplicates and count once")
    return references[: args.max_reports]


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.judges.tasks.grading import GradingTask

    check_judge_outputs(args)
    limits = limits_of(args)
    task = GradingTask(_system(args))
    judge = judge_from_arguments(args, limits, "writes no reports")
    references = _references(args, terminal)
    if judge is None or args.dry_run:
        return _dry_run(args, task, references, {**judge_limits(judge), **limits}, judge, terminal)
    return _request(args, task, judge, references, terminal)


def _dry_run(
    args: argparse.Namespace,
    task: "GradingTask",
    references: list[str],
    limits: dict[str, Any],
    judge: "Judge | None",
    terminal: Terminal,
) -> int:
    from rrg_rewards.cli.grade_plan import describe_plan, expected_answer, make_plan
    from rrg_rewards.cli.judge_requests import describe_costs, estimate, show_dry_run
    from rrg_rewards.data.tables.writers import write_json

    plan = make_plan(task, references, args.per_tier, args.output)
    expected = estimate(task, plan.items, (expected_answer(task, item) for item in plan.items), **limits)
    if args.json is not None:
        write_json({**plan.summary(), "estimate": asdict(expected)}, args.json, args.overwrite)
    lines = [describe_plan(plan), *describe_costs(expected)]
    show_dry_run(task, plan.items, lines, judge, terminal, args.json == "-")
    return 0


def _request(
    args: argparse.Namespace, task: "GradingTask", judge: "Judge", references: list[str], terminal: Terminal
) -> int:
    from rrg_rewards.cli.grade_plan import make_plan
    from rrg_rewards.cli.grade_run import GradingRun, check_held, show_outcome
    from rrg_rewards.cli.judge_requests import interruptible, note_destination, warn_of_other_answers
    from rrg_rewards.data.tables.appending import AppendedLines
    from rrg_rewards.data.tables.writers import write_json

    with AppendedLines(args.output) as output:
        plan = make_plan(task, references, args.per_tier, args.output)
        check_held(args.output, task.system)
        warn_of_other_answers(plan.judges, plan.prompts, judge, task, terminal)
        if plan.items:
            note_destination(judge, f"{len(references)} reports", terminal)
        with terminal.progress("grading") as report, interruptible(judge, terminal, "grade"):
            outcome = GradingRun(judge, task.system, output, args.source, report).run(plan.items)
    if args.json is not None:
        write_json(outcome.summary(plan, judge), args.json, args.overwrite)
    show_outcome(judge, plan, outcome, str(Path(args.output)), terminal, stderr=args.json == "-")
    if judge.is_stopped:
        return 130
    return 0 if outcome.written or not plan.items else 1
