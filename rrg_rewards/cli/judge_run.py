"""The runs of ``rrg-rewards judge label`` and ``rrg-rewards judge compare``."""

import argparse

from rrg_rewards.cli.judge_options import judge_from_option
from rrg_rewards.cli.judge_requests import (
    evaluate_and_keep,
    interruptible,
    note_destination,
    show_unanswered,
    usage_of,
)
from rrg_rewards.cli.options import UsageError, check_outputs, read_assignments, read_input
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.tables.appending import AppendedLines
from rrg_rewards.data.tables.table import Table, table_format
from rrg_rewards.data.tables.writers import check_output, write_json
from rrg_rewards.functional.crimson import CrimsonEvaluation
from rrg_rewards.judges.base import Judge, JudgeFailure, ReportPair
from rrg_rewards.judges.evaluations import EvaluatedPair, judge_agreement, read_evaluations
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.metrics.crimson import report_pairs
from rrg_rewards.version import __version__

__all__ = ["compare_judge", "label_pairs"]

# Number of pairs that are compared between two steps of the progress bar.
_BATCH = 64


def _read_pairs(args: argparse.Namespace, table: Table) -> dict[int, ReportPair]:
    """Return the pairs of the rows that can be judged."""
    context = read_assignments("--context", "NAME=COLUMN", args.context)
    references, candidates = table.texts(args.reference_column), table.texts(args.candidate_column)
    rows = [
        row
        for row, (reference, candidate) in enumerate(zip(references, candidates, strict=True))
        if reference is not None and reference.strip() and candidate is not None
    ]
    columns = {name: [table.column(column)[row] for row in rows] for name, column in context.items()}
    try:
        pairs = report_pairs([references[row] or "" for row in rows], [candidates[row] or "" for row in rows], columns)
    except TypeError as error:
        raise UsageError(f"argument --context: {error}") from error
    return dict(zip(rows, pairs, strict=True))


def _check_label_outputs(args: argparse.Namespace) -> None:
    if args.output == "-" or table_format(args.output) != "jsonl":
        raise UsageError(f"argument --output: must be a file of JSON lines (.jsonl), got {args.output!r}")
    check_output(args.output, overwrite=True)
    if args.json is not None:
        check_output(args.json, args.overwrite)


def _held_pairs(output: str, judge: Judge, prompt: str, terminal: Terminal) -> set[ReportPair]:
    """Return the pairs of an output that this judge has evaluated with this prompt."""
    held = read_evaluations(output)
    if others := {(row.judge, row.prompt) for row in held} - {(judge.signature, prompt)}:
        terminal.warn(f"the output also contains evaluations of another judge or prompt: {min(others)[0]}")
    return {row.pair for row in held if (row.judge, row.prompt) == (judge.signature, prompt)}


def label_pairs(args: argparse.Namespace, terminal: Terminal) -> int:
    """Evaluate the pairs that the output does not contain, and append them."""
    _check_label_outputs(args)
    judge, task = judge_from_option(args.judge), CrimsonTask(args.prompt)
    table = read_input(args, terminal)
    pairs = _read_pairs(args, table)
    if len(pairs) < len(table):
        terminal.warn(
            f"{len(table) - len(pairs)} of {len(table)} pairs lack a candidate or a reference, and are left out"
        )
    sources = {} if args.source_column is None else dict(enumerate(table.texts(args.source_column)))
    source_of = {pair: sources.get(row) or "" for row, pair in pairs.items()}
    # Rules query no model, so the prompt has no effect on them.
    prompt = "" if judge.is_immediate else task.prompt_signature
    with AppendedLines(args.output) as output:
        known = _held_pairs(args.output, judge, prompt, terminal)
        wanted = [pair for pair in source_of if pair not in known]
        if wanted:
            note_destination(judge, f"{len(wanted)} report pairs", terminal)

        def keep(pair: ReportPair, evaluation: CrimsonEvaluation) -> None:
            row = EvaluatedPair(pair, evaluation, judge.signature, prompt, source_of[pair])
            output.append(row.to_record())

        with terminal.progress("judging") as report, interruptible(judge, terminal, "judge"):
            unanswered = evaluate_and_keep(judge, task, wanted, keep, report)
    written = len(wanted) - unanswered.total
    if args.json is not None:
        summary = {
            "version": __version__,
            "table": args.table,
            "judge": judge.signature,
            "prompt": prompt,
            "rows": len(table),
            "unscorable": len(table) - len(pairs),
            "pairs": len(source_of),
            "held": len(source_of) - len(wanted),
            "written": written,
            **unanswered.summary(),
            "usage": usage_of(judge),
        }
        write_json(summary, args.json, args.overwrite)
    terminal.note(f"evaluated {written} of {len(wanted)} pairs with {judge.signature}; {len(known)} were in the output")
    show_unanswered(judge, unanswered, "evaluations", terminal)
    if judge.is_stopped:
        return 130
    return 0 if written or not wanted else 1


def compare_judge(args: argparse.Namespace, terminal: Terminal) -> int:
    """Evaluate the pairs of a file with a judge, and show its agreement with the evaluations in the file."""
    from rich.table import Table as Grid

    check_outputs(args)
    rows = read_evaluations(args.table)
    if not rows:
        raise UsageError(f"{args.table}: no evaluations")
    judge, task = judge_from_option(args.judge), CrimsonTask(args.prompt)
    results: list[CrimsonEvaluation | JudgeFailure] = []
    with terminal.progress("judging") as report:
        report(0, len(rows))
        for start in range(0, len(rows), _BATCH):
            batch = [row.pair for row in rows[start : start + _BATCH]]
            evaluated = judge.evaluate_now(task, batch)
            results += evaluated
            report(len(batch), 0)
    found = judge_agreement([row.evaluation for row in rows], results)
    summary = {
        "version": __version__,
        "table": args.table,
        "judge": judge.signature,
        "prompt": "" if judge.is_immediate else task.prompt_signature,
        "teachers": sorted({row.judge for row in rows}),
        **found,
    }
    if args.json is not None:
        write_json(summary, args.json, args.overwrite)
    to_error = args.json == "-"
    failed = ", ".join(f"{count} {kind}" for kind, count in found["failures"].items()) or "none"
    terminal.show(f"valid answers: {found['valid']} of {found['pairs']}; failed: {failed}", stderr=to_error)
    grid = Grid()
    for heading in ("", "Kendall's tau (95 %)", "mean absolute difference", "equal"):
        grid.add_column(heading, justify="left" if not heading else "right")
    for name, row in found["agreement"].items():
        grid.add_row(name.replace("_", " "), _interval(row), _number(row["mae"], ".3f"), _number(row["equal"], ".0%"))
    terminal.show(grid, stderr=to_error)
    return 0


def _interval(row: dict[str, float | None]) -> str:
    tau, low, high = (_number(row[name], ".2f") for name in ("tau", "low", "high"))
    return tau if row["low"] is None else f"{tau} ({low} to {high})"


def _number(value: float | None, form: str) -> str:
    return "undefined" if value is None else format(value, form)
