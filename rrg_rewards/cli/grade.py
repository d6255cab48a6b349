"""``rrg-rewards grade``: reports of graded quality, written and scored by a language model."""

import argparse
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import UsageError, add_common_options, new_parser_options, positive_int
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.cli.grading import Estimate, Outcome, Plan
    from rrg_rewards.judges.base import Judge
    from rrg_rewards.judges.grading import GradingTask
    from rrg_rewards.schemas.scoring import ScoringSystem

__all__ = ["add_command"]

_DESCRIPTION = """\
Ask a language model for candidate reports of graded quality: for each reference, one or more that earn a total in each
tier of a scoring system, with a sub-score for each criterion. This is what `train er2score` learns from.

--dry-run sends nothing: it counts what would be asked, estimates tokens, cost and time, and shows one whole prompt.

Each answer is checked, and added to --output when it arrives: one JSON line with reference, candidate, scores by
criterion, total, the tier asked for, whether the total lies in it (in_tier), and who wrote it. Ctrl-C stops after the
answers under way; a second one leaves those, too. The same command again asks only for what --output does not hold.

Reports go to no other machine unless the judge says allow_remote: true.
"""

_EXAMPLE = """\
examples:
  rrg-rewards grade reports.csv --report-column report --output graded.jsonl --dry-run --price-in 2.5 --price-out 10
  rrg-rewards grade reports.csv --output graded.jsonl --max-reports 20 \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1, temperature: 0.7}"
  rrg-rewards grade reports.csv --output graded.jsonl --system mrscore --per-tier 2 \\
      --judge "{name: openai, model: gpt-x, base_url: https://api.example.org/v1, allow_remote: true}" \\
      --requests-per-minute 60 --tokens-per-minute 90000
  rrg-rewards grade reports.csv --output graded.jsonl --system mine.yaml --tiers "[[8, 10], [4, 7], [0, 3]]" --dry-run

exit codes: 0 done, 1 nothing was written although something was asked for, 2 the command line is wrong, 130 interrupted
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
    parser = commands.add_parser(
        "grade",
        help="ask a language model for reports of graded quality",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        **new_parser_options(),
    )
    parser.add_argument(
        "table", metavar="REPORTS", help="table of reference reports (.csv, .jsonl, .parquet); - is standard input"
    )
    parser.add_argument(
        "--report-column", default="report", metavar="NAME", help="column of references (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="JSON lines to add to (.jsonl); what it holds is not asked again",
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
        help='[least, greatest] total of each tier, as in "[[-2, 0], [-4, -3]]" (default: those of the system, else '
        "thirds of its totals)",
    )
    parser.add_argument(
        "--per-tier", type=positive_int, default=1, metavar="N", help="reports for each reference and tier (default: 1)"
    )
    parser.add_argument("--max-reports", type=positive_int, metavar="N", help="use the first N references only")
    parser.add_argument(
        "--source", default="judge", metavar="TEXT", help="source of the reports (default: %(default)s)"
    )
    _add_judge_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="send nothing; show counts, estimates and one prompt")
    parser.add_argument("--json", metavar="FILE", help="write a summary as JSON to FILE; - is standard output")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a summary that exists; --output is never replaced"
    )
    parser.add_argument("--format", choices=("csv", "jsonl", "parquet"), help="format of standard input (default: csv)")
    add_common_options(parser)
    parser.set_defaults(run=_run, parser=parser)


def _add_judge_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--judge",
        metavar="JUDGE",
        help="openai:MODEL, local:MODEL, or a mapping with a name and its settings; needed unless --dry-run",
    )
    parser.add_argument("--price-in", type=_not_negative, metavar="X", help="price of a million prompt tokens")
    parser.add_argument("--price-out", type=_not_negative, metavar="X", help="price of a million completion tokens")
    parser.add_argument(
        "--requests-per-minute", type=_positive, metavar="N", help="most requests a minute (default: no limit)"
    )
    parser.add_argument(
        "--tokens-per-minute",
        type=_positive,
        metavar="N",
        help="most tokens a minute, of prompts and answers (default: no limit)",
    )


def _limits(args: argparse.Namespace) -> dict[str, Any]:
    """Price and rate limits that the command line gives."""
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

    from rrg_rewards.judges.grading import quality_tiers
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
    from rrg_rewards.cli.judging import judge_from_option

    if args.judge is None:
        if not args.dry_run:
            raise UsageError("--judge is needed to ask for reports; --dry-run does without")
        return None
    judge = judge_from_option(args.judge, **limits)
    if judge.is_immediate:
        raise UsageError(f"argument --judge: {args.judge} writes no reports; name a language model, as in openai:MODEL")
    return judge


def _references(args: argparse.Namespace, terminal: Terminal) -> list[str]:
    """Reports that can be references, each once."""
    from rrg_rewards.cli.options import read_input

    texts = read_input(args, terminal).texts(args.report_column)
    found = [text for text in texts if text is not None and text.strip()]
    references = list(dict.fromkeys(found))
    if len(found) < len(texts):
        terminal.warn(f"{len(texts) - len(found)} of {len(texts)} reports are missing or blank and left out")
    if len(references) < len(found):
        terminal.note(f"{len(found) - len(references)} reports stand more than once and count once")
    return references[: args.max_reports]


def _check(args: argparse.Namespace) -> None:
    from rrg_rewards.data.tables import table_format
    from rrg_rewards.data.writers import check_output

    if args.output == "-" or table_format(args.output) != "jsonl":
        raise UsageError(f"argument --output: must be a file of JSON lines (.jsonl), got {args.output!r}")
    check_output(args.output, overwrite=True)
    if args.json is not None:
        check_output(args.json, args.overwrite)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.grading import make_plan
    from rrg_rewards.judges.grading import GradingTask

    _check(args)
    limits = _limits(args)
    system = _system(args)
    judge = _judge(args, limits)
    references = _references(args, terminal)
    if judge is None or args.dry_run:
        known = limits if judge is None else {**_known_limits(judge), **limits}
        plan = make_plan(references, system, args.per_tier, args.output)
        return _dry_run(args, GradingTask(system), plan, known, judge, terminal)
    return _ask(args, system, judge, references, terminal)


def _known_limits(judge: "Judge") -> dict[str, Any]:
    """Price and rate limits that a judge's own settings give."""
    arguments = judge.arguments()
    return {name: arguments.get(name) for name in ("price", "requests_per_minute", "tokens_per_minute")}


def _dry_run(
    args: argparse.Namespace,
    task: "GradingTask",
    plan: "Plan",
    limits: dict[str, Any],
    judge: "Judge | None",
    terminal: Terminal,
) -> int:
    from rrg_rewards.cli.grading import estimate
    from rrg_rewards.data.writers import write_json

    expected = estimate(task, plan.items, **limits)
    if args.json is not None:
        write_json({**_planned(task, plan), "estimate": asdict(expected)}, args.json, args.overwrite)
    to_error = args.json == "-"
    if plan.items:
        for message in task.messages(plan.items[0]):
            terminal.show(f"--- {message['role']}\n{message['content']}\n", stderr=to_error)
    terminal.show(*_estimate_lines(plan, expected), stderr=to_error)
    address = getattr(judge, "address", None)
    if address is not None:
        terminal.show(f"reports would go to {address.host}", stderr=to_error)
    terminal.note("nothing was sent")
    return 0


def _estimate_lines(plan: "Plan", expected: "Estimate") -> list[str]:
    held = sum(plan.held.values())
    tiers = ", ".join(f"{count} of {name}" for name, count in plan.wanted.items())
    lines = [
        f"reports wanted: {plan.wanted.total()} ({tiers}); held already: {held}; to ask for: {expected.requests}",
        f"tokens, about: {expected.prompt_tokens:,} of prompts, {expected.completion_tokens:,} of answers (at 4 "
        "characters a token)",
    ]
    if expected.cost is None:
        lines.append("cost: unknown without --price-in and --price-out")
    else:
        lines.append(f"cost, about: {_money(expected.cost)}; answers that are asked for again come on top")
    if expected.minutes is None:
        lines.append("time: as fast as the judge answers; no rate limit was given")
    else:
        lines.append(f"time at the rate limits, at least: {_duration(expected.minutes)}")
    return lines


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}"


def _duration(minutes: float) -> str:
    return f"{minutes:.1f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


def _planned(task: "GradingTask", plan: "Plan") -> dict[str, Any]:
    return {
        "system": task.system.name,
        "prompt_hash": task.prompt_hash,
        "wanted": dict(plan.wanted),
        "held": {name: plan.held[name] for name in plan.wanted},
        "to_ask": len(plan.items),
    }


def _ask(
    args: argparse.Namespace, system: "ScoringSystem", judge: "Judge", references: list[str], terminal: Terminal
) -> int:
    from rrg_rewards.cli.grading import GradingRun, check_held, interruptible, make_plan
    from rrg_rewards.data.appending import AppendedLines
    from rrg_rewards.data.writers import write_json
    from rrg_rewards.judges.grading import GradingTask

    def tell() -> None:
        terminal.note("stopping; answers under way are waited for. Ctrl-C again leaves them")

    task = GradingTask(system)
    with AppendedLines(args.output) as output:
        plan = make_plan(references, system, args.per_tier, args.output)
        check_held(args.output, system)
        _warn_of_others(plan, judge, task, terminal)
        address = getattr(judge, "address", None)
        if address is not None and not address.is_loopback and plan.items:
            terminal.note(f"{len(references)} reports go to {address.host}, as allow_remote says")
        with terminal.progress("grading") as report, interruptible(judge, tell):
            outcome = GradingRun(judge, system, output, args.source, report).run(plan.items)
    if args.json is not None:
        write_json(_summary(task, judge, plan, outcome), args.json, args.overwrite)
    _show(judge, plan, outcome, Path(args.output), terminal, stderr=args.json == "-")
    if judge.is_stopped:
        return 130
    return 0 if outcome.written or not plan.items else 1


def _warn_of_others(plan: "Plan", judge: "Judge", task: "GradingTask", terminal: Terminal) -> None:
    """Say where what the output holds was made otherwise: it stays, and each line says by whom it is."""
    if plan.judges - {judge.signature}:
        terminal.warn(f"the output holds reports of another judge, too: {min(plan.judges - {judge.signature})}")
    if plan.prompts - {task.prompt_hash}:
        terminal.warn(
            "the output holds reports that were asked for with other instructions, criteria or package versions"
        )


def _usage(judge: "Judge") -> dict[str, Any] | None:
    usage = getattr(judge, "usage", None)
    return None if usage is None else asdict(usage)


def _summary(task: "GradingTask", judge: "Judge", plan: "Plan", outcome: "Outcome") -> dict[str, Any]:
    return {
        **_planned(task, plan),
        "judge": judge.signature,
        "written": {name: outcome.written[name] for name in plan.wanted},
        "in_tier": {name: plan.held_in_tier[name] + outcome.in_tier[name] for name in plan.wanted},
        "failures": dict(outcome.failures),
        "reasons": outcome.reasons,
        "not_asked": outcome.not_asked,
        "usage": _usage(judge),
    }


def _show(judge: "Judge", plan: "Plan", outcome: "Outcome", output: Path, terminal: Terminal, stderr: bool) -> None:
    from rich.table import Table as Grid

    grid = Grid(title=f"{output}", title_justify="left")
    for heading in ("tier asked for", "wanted", "held before", "written now", "in tier"):
        grid.add_column(heading, justify="left" if heading == "tier asked for" else "right")
    for name, wanted in plan.wanted.items():
        held, written = plan.held[name], outcome.written[name]
        inside = plan.held_in_tier[name] + outcome.in_tier[name]
        share = f"{inside / (held + written):.0%}" if held + written else "-"
        grid.add_row(name, f"{wanted}", f"{held}", f"{written}", share)
    terminal.show(grid, stderr=stderr)
    usage = getattr(judge, "usage", None)
    if usage is not None:
        cost = "" if usage.cost is None else f", cost {_money(usage.cost)}"
        terminal.note(
            f"{usage.calls} calls ({usage.retries} of them again), {usage.cached} answers from the cache, "
            f"{usage.prompt_tokens:,} tokens read, {usage.completion_tokens:,} written{cost}"
        )
    for kind, count in outcome.failures.items():
        terminal.warn(f"{count} failed by {kind}; the first: {outcome.reasons[kind]}")
    if left := outcome.failures.total() + outcome.not_asked:
        terminal.note(f"{left} reports are still to be written: the same command again asks for them")
