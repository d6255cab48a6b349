"""``rrg-rewards grade``: let a language model write and score reports of graded quality."""

import argparse
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    add_table_argument,
    positive_int,
)
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.cli.grade_plan import Plan
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


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text!r}")
    return number


def _not_negative(text: str) -> float:
    return 0.0 if text.strip() in ("0", "0.0") else _positive(text)


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``grade`` to the command line."""
    summary = "let a language model write reports of graded quality"
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
    _add_judge_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="send nothing; show counts, estimates and one prompt")
    overwrite = {"help": "replace a summary that exists; --output is never replaced"}
    add_shared_options(parser, "json", "format", overwrite=overwrite)


def _add_judge_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--judge",
        metavar="JUDGE",
        help="openai:MODEL, local:MODEL, or a YAML mapping of a name and settings; required without --dry-run",
    )
    parser.add_argument("--price-in", type=_not_negative, metavar="X", help="price of a million prompt tokens")
    parser.add_argument("--price-out", type=_not_negative, metavar="X", help="price of a million completion tokens")
    parser.add_argument(
        "--requests-per-minute", type=_positive, metavar="N", help="maximum requests per minute (default: no limit)"
    )
    parser.add_argument(
        "--tokens-per-minute",
        type=_positive,
        metavar="N",
        help="maximum tokens per minute, of prompts and answers (default: no limit)",
    )


def _limits(args: argparse.Namespace) -> dict[str, Any]:
    """Return the price and the rate limits of the command line."""
    if (args.price_in is None) != (args.price_out is None):
        raise UsageError("--price-in and --price-out go together")
    limits = {
        "price": None if args.price_in is None else (args.price_in, args.price_out),
        "requests_per_minute": args.requests_per_minute,
        "tokens_per_minute": args.tokens_per_minute,
    }
    return {name: value for name, value in limits.items() if value is not None}


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


def _judge(args: argparse.Namespace, limits: dict[str, Any]) -> "Judge | None":
    from rrg_rewards.cli.judge_options import judge_from_option

    if args.judge is None:
        if not args.dry_run:
            raise UsageError("--judge is required unless --dry-run is set")
        return None
    judge = judge_from_option(args.judge, **limits)
    if judge.is_immediate:
        raise UsageError(f"argument --judge: {args.judge} writes no reports; name a language model, as in openai:MODEL")
    return judge


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


def _check(args: argparse.Namespace) -> None:
    from rrg_rewards.data.tables.table import table_format
    from rrg_rewards.data.tables.writers import check_output

    if args.output == "-" or table_format(args.output) != "jsonl":
        raise UsageError(f"argument --output: must be a file of JSON lines (.jsonl), got {args.output!r}")
    check_output(args.output, overwrite=True)
    if args.json is not None:
        check_output(args.json, args.overwrite)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.judges.tasks.grading import GradingTask

    _check(args)
    limits = _limits(args)
    task = GradingTask(_system(args))
    judge = _judge(args, limits)
    references = _references(args, terminal)
    if judge is None or args.dry_run:
        known = limits if judge is None else {**_known_limits(judge), **limits}
        return _dry_run(args, task, references, known, judge, terminal)
    return _request(args, task, judge, references, terminal)


def _known_limits(judge: "Judge") -> dict[str, Any]:
    """Return the price and the rate limits in the judge's settings."""
    arguments = judge.arguments()
    return {name: arguments.get(name) for name in ("price", "requests_per_minute", "tokens_per_minute")}


def _dry_run(
    args: argparse.Namespace,
    task: "GradingTask",
    references: list[str],
    limits: dict[str, Any],
    judge: "Judge | None",
    terminal: Terminal,
) -> int:
    from rrg_rewards.cli.grade_plan import describe_estimate, estimate, make_plan
    from rrg_rewards.data.tables.writers import write_json

    plan = make_plan(task, references, args.per_tier, args.output)
    expected = estimate(task, plan.items, **limits)
    if args.json is not None:
        write_json({**plan.summary(), "estimate": asdict(expected)}, args.json, args.overwrite)
    to_error = args.json == "-"
    if plan.items:
        for message in task.messages(plan.items[0]):
            terminal.show(f"--- {message['role']}\n{message['content']}\n", stderr=to_error)
    terminal.show(*describe_estimate(plan, expected), stderr=to_error)
    address = getattr(judge, "address", None)
    if address is not None:
        terminal.show(f"reports would be sent to {address.host}", stderr=to_error)
    terminal.note("nothing was sent")
    return 0


def _request(
    args: argparse.Namespace, task: "GradingTask", judge: "Judge", references: list[str], terminal: Terminal
) -> int:
    from rrg_rewards.cli.grade_plan import make_plan
    from rrg_rewards.cli.grade_run import GradingRun, check_held, interruptible, show_outcome
    from rrg_rewards.data.tables.appending import AppendedLines
    from rrg_rewards.data.tables.writers import write_json

    def notify() -> None:
        terminal.note("stopping after the running calls; Ctrl-C again stops immediately")

    with AppendedLines(args.output) as output:
        plan = make_plan(task, references, args.per_tier, args.output)
        check_held(args.output, task.system)
        _warn_of_others(plan, judge, terminal)
        address = getattr(judge, "address", None)
        if address is not None and not address.is_loopback and plan.items:
            terminal.note(f"{len(references)} reports are sent to {address.host}, as allow_remote permits")
        with terminal.progress("grading") as report, interruptible(judge, notify):
            outcome = GradingRun(judge, task.system, output, args.source, report).run(plan.items)
    if args.json is not None:
        write_json(outcome.summary(plan, judge), args.json, args.overwrite)
    show_outcome(judge, plan, outcome, str(Path(args.output)), terminal, stderr=args.json == "-")
    if judge.is_stopped:
        return 130
    return 0 if outcome.written or not plan.items else 1


def _warn_of_others(plan: "Plan", judge: "Judge", terminal: Terminal) -> None:
    """Warn about reports in the output that were written with another judge or prompt."""
    if plan.judges - {judge.signature}:
        terminal.warn(f"the output also contains reports of another judge: {min(plan.judges - {judge.signature})}")
    if plan.prompts - {plan.task.prompt_hash}:
        terminal.warn("the output also contains reports written with other instructions, criteria or package versions")
