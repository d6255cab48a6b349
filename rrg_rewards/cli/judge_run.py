"""The runs of ``rrg-rewards judge label`` and ``rrg-rewards judge compare``."""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rrg_rewards.cli.judge_options import judge_from_option
from rrg_rewards.cli.judge_requests import interruptible, note_destination
from rrg_rewards.cli.options import UsageError, check_outputs, read_assignments, read_input
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.tables.appending import AppendedLines
from rrg_rewards.data.tables.table import Table, table_format
from rrg_rewards.data.tables.writers import check_output, write_json
from rrg_rewards.functional.crimson_evaluation import CrimsonEvaluation
from rrg_rewards.judges.agreement import judge_agreement
from rrg_rewards.judges.base import STOPPED, Judge, JudgeFailure, ReportPair
from rrg_rewards.judges.evaluations import EvaluatedPair, read_evaluations
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.metrics.crimson import report_pairs
from rrg_rewards.version import __version__

__all__ = ["compare_judge", "label_pairs"]


def _batches(
    judge: Judge, task: CrimsonTask, pairs: Sequence[ReportPair], size: int, report: Callable[[int, int], None]
) -> Iterator[list[tuple[ReportPair, CrimsonEvaluation | JudgeFailure]]]:
    """Evaluate pairs batch by batch until the judge is stopped."""
    report(0, len(pairs))
    for start in range(0, len(pairs), size):
        batch = pairs[start : start + size]
        results = judge.evaluate_now(task, batch)
        yield list(zip(batch, results, strict=True))
        report(len(batch), 0)
        if judge.is_stopped:
            return


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


def label_pairs(args: argparse.Namespace, terminal: Terminal) -> int:
    """Evaluate the pairs that the output does not contain, and append them."""
    if args.output == "-" or table_format(args.output) != "jsonl":
        raise UsageError(f"argument --output: must be a file of JSON lines (.jsonl), got {args.output!r}")
    check_output(args.output, overwrite=True)
    if args.json is not None:
        check_output(args.json, args.overwrite)
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
    failures: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    written = 0
    with AppendedLines(args.output) as output:
        held = read_evaluations(args.output)
        if others := {(row.judge, row.prompt) for row in held} - {(judge.signature, prompt)}:
            terminal.warn(f"the output also contains evaluations of another judge or prompt: {min(others)[0]}")
        known = {row.pair for row in held if (row.judge, row.prompt) == (judge.signature, prompt)}
        wanted = [pair for pair in source_of if pair not in known]
        if wanted:
            note_destination(judge, f"{len(wanted)} report pairs", terminal)
        with terminal.progress("judging") as report, interruptible(judge, terminal, "judge"):
            for batch in _batches(judge, task, wanted, args.batch_size, report):
                for pair, result in batch:
                    if not isinstance(result, JudgeFailure):
                        row = EvaluatedPair(pair, result, judge.signature, prompt, source_of[pair])
                        output.append(row.to_record())
                        written += 1
                    elif result != STOPPED:
                        failures[result.kind] += 1
                        reasons.setdefault(result.kind, result.reason)
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
            "failures": dict(failures),
            "reasons": reasons,
            "not_asked": len(wanted) - written - failures.total(),
            "usage": _usage(judge),
        }
        write_json(summary, args.json, args.overwrite)
    terminal.note(f"evaluated {written} of {len(wanted)} pairs with {judge.signature}; {len(known)} were in the output")
    for kind, count in failures.items():
        terminal.warn(f"{count} failed with {kind}; the first: {reasons[kind]}")
    if judge.is_stopped:
        return 130
    return 0 if written or not wanted else 1


def _usage(judge: Judge) -> dict[str, Any] | None:
    usage = getattr(judge, "usage", None)
    return None if usage is None else asdict(usage)


def compare_judge(args: argparse.Namespace, terminal: Terminal) -> int:
    """Evaluate the pairs of a file with a judge, and show its agreement with the evaluations in the file."""
    from rich.table import Table as Grid

    check_outputs(args)
    rows = read_evaluations(args.table)
    if not rows:
        raise UsageError(f"{args.table}: no evaluations")
    judge, task = judge_from_option(args.judge), CrimsonTask(args.prompt)
    results = []
    with terminal.progress("judging") as report:
        for batch in _batches(judge, task, [row.pair for row in rows], args.batch_size, report):
            results += [result for _, result in batch]
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
