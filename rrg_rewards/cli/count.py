"""``rrg-rewards count``: let a language model count the errors of existing reports."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.judge_arguments import (
    add_judge_arguments,
    check_judge_outputs,
    judge_from_arguments,
    judge_limits,
    limits_of,
)
from rrg_rewards.cli.options import add_command_parser, add_shared_options, add_table_argument, positive_int
from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.judges.base import Judge, ReportPair

__all__ = ["add_command"]

_DESCRIPTION = """\
Let a language model count the errors of existing candidate reports, as in the paper of CREPE: for each pair of a
reference and a candidate, the number of errors of six categories, and how many of them are clinically significant. Each
error has quotes, which must be in the reports. `train crepe` learns from these counts.

--dry-run sends nothing: it counts the pairs to request, estimates tokens, cost and time, and shows one prompt.

Each answer is checked and appended to --output as one JSON line: reference, candidate, counts (six numbers: false
findings, omitted findings, wrong locations, wrong severities, false comparisons, omitted comparisons), significant (the
significant ones), errors with their quotes, matched findings, and the judge. Ctrl-C stops after the running calls; a
second Ctrl-C stops immediately. Repeat the same command to request the pairs that --output does not contain yet.

Reports are sent to this machine only unless the judge has allow_remote: true.

examples:
  rrg-rewards count pairs.csv --output counts.jsonl --dry-run --price-in 2.5 --price-out 10
  rrg-rewards count pairs.csv --output counts.jsonl --max-pairs 20 \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1}"
  rrg-rewards count pairs.csv --prediction-column generated --reference-column report --output counts.jsonl \\
      --judge local:Qwen/Qwen2.5-7B-Instruct

exit codes: 0 success, 1 counts were requested but none was written, 2 wrong command line, 130 interrupted
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``count`` to the command line."""
    parser = add_command_parser(commands, "count", _run, summary, _DESCRIPTION)
    add_table_argument(parser, "PAIRS", "references and candidates")
    for name in ("reference", "prediction"):
        parser.add_argument(
            f"--{name}-column", default=name, metavar="NAME", help=f"column of {name}s (default: %(default)s)"
        )
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="JSON lines file to append to (.jsonl); pairs that it contains are not requested again",
    )
    parser.add_argument("--max-pairs", type=positive_int, metavar="N", help="use the first N pairs only")
    parser.add_argument(
        "--source", default="judge", metavar="TEXT", help="value of `source` in the output (default: %(default)s)"
    )
    add_judge_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="send nothing; show counts, estimates and one prompt")
    overwrite = {"help": "replace a summary that exists; --output is never replaced"}
    add_shared_options(parser, "json", "format", overwrite=overwrite)


def _pairs(args: argparse.Namespace, terminal: Terminal) -> "list[ReportPair]":
    """Return the distinct pairs of reports that are not blank."""
    from rrg_rewards.cli.options import read_input
    from rrg_rewards.judges.base import ReportPair

    table = read_input(args, terminal)
    rows = list(zip(table.texts(args.reference_column), table.texts(args.prediction_column), strict=True))
    found = [
        ReportPair(reference, candidate)
        for reference, candidate in rows
        if reference is not None and candidate is not None and reference.strip() and candidate.strip()
    ]
    pairs = list(dict.fromkeys(found))
    if len(found) < len(rows):
        terminal.warn(f"{len(rows) - len(found)} of {len(rows)} pairs lack a report, and are left out")
    if len(pairs) < len(found):
        terminal.note(f"{len(found) - len(pairs)} pairs are duplicates and count once")
    return pairs[: args.max_pairs]


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_judge_outputs(args)
    limits = limits_of(args)
    judge = judge_from_arguments(args, limits, "counts no errors")
    pairs = _pairs(args, terminal)
    if judge is None or args.dry_run:
        return _dry_run(args, pairs, {**judge_limits(judge), **limits}, judge, terminal)
    return _request(args, judge, pairs, terminal)


def _dry_run(
    args: argparse.Namespace,
    pairs: "list[ReportPair]",
    limits: dict[str, Any],
    judge: "Judge | None",
    terminal: Terminal,
) -> int:
    from rrg_rewards.cli.count_run import held_pairs
    from rrg_rewards.cli.judge_requests import describe_costs, estimate, show_dry_run
    from rrg_rewards.data.tables.writers import write_json
    from rrg_rewards.judges.tasks.counting import CountingTask

    task, held = CountingTask(), held_pairs(args.output)
    asked = [pair for pair in pairs if pair not in held.pairs]
    # The quotes of an answer are about as long as both reports.
    expected = estimate(task, asked, (pair.reference + pair.candidate for pair in asked), **limits)
    if args.json is not None:
        counts = {"prompt_hash": task.prompt_hash, "pairs": len(pairs), "to_ask": len(asked)}
        write_json({**counts, "estimate": asdict(expected)}, args.json, args.overwrite)
    line = f"pairs: {len(pairs)}; in the output: {len(pairs) - len(asked)}; to request: {len(asked)}"
    show_dry_run(task, asked, [line, *describe_costs(expected)], judge, terminal, args.json == "-")
    return 0


def _request(args: argparse.Namespace, judge: "Judge", pairs: "list[ReportPair]", terminal: Terminal) -> int:
    from rrg_rewards.cli.count_run import CountingRun, check_held, held_pairs
    from rrg_rewards.cli.judge_requests import interruptible, note_destination, show_unanswered, warn_of_other_answers
    from rrg_rewards.data.tables.appending import AppendedLines
    from rrg_rewards.data.tables.writers import write_json

    with AppendedLines(args.output) as output:
        held = held_pairs(args.output)
        check_held(args.output)
        asked = [pair for pair in pairs if pair not in held.pairs]
        counting = CountingRun(judge, output, args.source)
        warn_of_other_answers(held.judges, held.prompts, judge, counting.task, terminal)
        if asked:
            note_destination(judge, f"{len(asked)} pairs of reports", terminal)
        with terminal.progress("counting") as report, interruptible(judge, terminal, "count"):
            unanswered = counting.run(asked, report)
    if args.json is not None:
        write_json(counting.summary(len(pairs), len(pairs) - len(asked), unanswered), args.json, args.overwrite)
    terminal.show(counting.grid(args.output, len(pairs) - len(asked)), stderr=args.json == "-")
    show_unanswered(judge, unanswered, "pairs", terminal)
    if judge.is_stopped:
        return 130
    return 0 if counting.written or not asked else 1
