"""``rrg-rewards judge``: make candidates, evaluate report pairs, and compare judges.

Evaluate report pairs with a judge for CRIMSON, to train a smaller judge on the evaluations, and measure how far a judge
agrees with another one. To score reports with CRIMSON, use rrg-rewards score --metrics crimson.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rrg_rewards.analysis.settings import LANGUAGE_MODEL, CandidateSettings, EvaluationSettings
from rrg_rewards.cli.answers import AnswerCommand, add_answer_options
from rrg_rewards.cli.options import (
    InputTable,
    Outputs,
    UsageError,
    add_command_parser,
    add_settings,
    add_shared_options,
    add_table_argument,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.utilities.settings import Settings, setting
from rrg_rewards.version import __version__

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from rrg_rewards.analysis.evaluating import JudgeComparison
    from rrg_rewards.data.tables.table import Table


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Judge(Settings):
    """The judge that evaluates."""

    judge: str = setting("rules", f"rules, {LANGUAGE_MODEL}", metavar="JUDGE")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``judge`` to the command line."""
    parser = commands.add_parser("judge", help=summary, description=__doc__)
    tasks = parser.add_subparsers(title="tasks", metavar="TASK", required=True)

    candidates = _add_task(tasks, "candidates", run_candidates, "make candidate reports", "reference reports")
    add_settings(candidates, CandidateSettings)
    add_shared_options(candidates, "output", "json", "format", "overwrite", "spreadsheet_safe")

    label = _add_task(tasks, "label", run_label, "evaluate report pairs with a judge", "report pairs")
    add_settings(label, EvaluationSettings)
    add_settings(label, _Judge)
    add_answer_options(label, "pairs", model=False)

    compare = _add_task(tasks, "compare", run_compare, "compare a judge with evaluations", "evaluations")
    add_settings(compare, _Judge, judge={"required": True})
    add_settings(compare, EvaluationSettings, "prompt", "checks")
    add_shared_options(compare, "json", "overwrite")


def _add_task(
    tasks: Any,
    name: str,
    run: Callable[[argparse.Namespace, Terminal], int],
    summary: str,
    content: str,
) -> argparse.ArgumentParser:
    parser = add_command_parser(tasks, name, run, summary)
    add_table_argument(parser, content.rpartition(" ")[2].upper(), content)
    return parser


def run_candidates(args: argparse.Namespace, terminal: Terminal) -> int:
    r"""Make candidate reports for references.

    The regime of each candidate is drawn from --regimes:

      edited     the reference with injected errors (findings added, removed, moved, changed in degree or size)
      random     the report of another study
      matched    the report of another study that is most similar by the embeddings of --encoder
      generated  the report of a model, in --generated-column (rrg-rewards generate writes one)

    Candidates that cannot be made are counted and not replaced. The output has the columns of the input, candidate
    and regime.

    Examples:
      rrg-rewards judge candidates reports.csv --report-column report --output pairs.jsonl
      rrg-rewards judge candidates reports.jsonl --regimes edited,random,matched --encoder runs/minilm --per-report 2 \
          --output pairs.jsonl
    """
    from rrg_rewards.analysis.candidates import add_candidates

    outputs = settings_from(args, Outputs)
    outputs.check()
    table = settings_from(args, InputTable).read(terminal)
    made = add_candidates(table, settings_from(args, CandidateSettings), terminal)
    outputs.write(made.table, {"version": __version__, "table": args.table, **made.to_dict()})
    counts = ", ".join(f"{count} {name}" for name, count in made.candidates.items())
    terminal.note(f"{len(made.table)} candidates ({counts}); {made.declined.total()} could not be made")
    return 0


def run_label(args: argparse.Namespace, terminal: Terminal) -> int:
    r"""Let a judge evaluate report pairs, and append each evaluation to --output as one JSON line.

    A line has reference, candidate, context, source, CRIMSON score, evaluation, judge and prompt.
    `python -m rrg_rewards.recipes.crimson.distill` trains a local judge on them.

    Pairs on which the judge fails are counted by kind and not written. After an interruption, repeat the command: it
    requests only what --output lacks.

    Reports are sent to this machine only unless the judge has allow_remote: true.

    Examples:
      rrg-rewards judge label pairs.jsonl --reference-column report --output evaluations.jsonl
      rrg-rewards judge label pairs.csv --context age=PatientAge --prompt guidelines --output evaluations.jsonl \
          --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1, cache: judge_cache}"

    exit codes: 0 success, 1 evaluations were requested but none was written, 2 wrong command line, 130 interrupted
    """
    from rrg_rewards.analysis.evaluating import EvaluationRun, read_sourced_pairs
    from rrg_rewards.analysis.judge_choice import choose_judge

    settings, judge = settings_from(args, EvaluationSettings), choose_judge(args.judge)
    read = {"rows": 0, "unscorable": 0}

    def make_run(table: "Table") -> EvaluationRun:
        pairs, read["unscorable"] = read_sourced_pairs(table, settings, terminal)
        read["rows"] = len(table)
        return EvaluationRun(pairs, args.output, judge, settings)

    def summary(run: EvaluationRun) -> dict[str, Any]:
        asked = {"judge": judge.signature, "prompt": run.prompt}
        return {"version": __version__, "table": args.table, **asked, **read, **run.to_dict()}

    command = settings_from(args, AnswerCommand)
    return command.run(judge, make_run, terminal, summary=summary)


def run_compare(args: argparse.Namespace, terminal: Terminal) -> int:
    r"""Compare the answers of a judge with the evaluations in a file of rrg-rewards judge label.

    The judge evaluates the same pairs. The comparison has the share of valid answers, Kendall's tau of the scores with
    a bootstrap 95 % interval, and for the numbers of false findings, missing findings and attribute errors, Kendall's
    tau, the mean absolute difference and the share of equal numbers. All but the share are computed over the pairs with
    a valid answer. A second table counts the false and missing findings that both list in similar words by the clinical
    significance in the file (rows) and of the judge (columns), with the share of equal levels.

    Examples:
      rrg-rewards judge compare heldout.jsonl --judge local:runs/crimson/judge
      rrg-rewards judge compare heldout.jsonl --prompt guidelines --json report.json \
          --judge "{name: local, model: runs/crimson/judge, dtype: bfloat16, max_new_tokens: 256}"
    """
    from rrg_rewards.analysis.evaluating import compare_judge
    from rrg_rewards.judges.evaluations import read_evaluations

    outputs = settings_from(args, Outputs)
    outputs.check()
    evaluations = read_evaluations(args.table)
    if not evaluations:
        raise UsageError(f"{args.table}: no evaluations")
    compared = compare_judge(evaluations, args.judge, args.prompt, args.checks, log=terminal)
    outputs.write_summary({"version": __version__, "table": args.table, **compared.to_dict()})
    failed = ", ".join(f"{count} {kind}" for kind, count in compared.failures.items()) or "none"
    line = f"valid answers: {compared.valid} of {compared.pairs}; failed: {failed}"
    terminal.show(line, _grid(compared), _severity_grid(compared), stderr=outputs.json == "-")
    return 0


def _grid(compared: "JudgeComparison") -> "Grid":
    """Return a table of the agreement by quantity."""
    from rrg_rewards.utilities.grids import printed_table

    rows = [
        (name.replace("_", " "), _interval(row), _number(row["mae"], ".3f"), _number(row["equal"], ".0%"))
        for name, row in compared.agreement.items()
    ]
    return printed_table(None, ("", "Kendall's tau (95 %)", "mean absolute difference", "equal"), [rows])


def _severity_grid(compared: "JudgeComparison") -> "Grid":
    """Return the matrix of the levels of significance, and the share of equal levels in each row."""
    from rrg_rewards.utilities.grids import printed_table

    found = compared.severity
    names = [level.replace("_", " ") for level in found["levels"]]
    shares = [_number(share, ".0%") for share in found["equal_by_level"].values()]
    rows = [(name, *map(str, row), share) for name, row, share in zip(names, found["matrix"], shares, strict=True)]
    title = f"significance of {found['matched']} errors that both list: {_number(found['equal'], '.1%')} equal"
    return printed_table(title, ("", *names, "equal"), [rows])


def _interval(row: dict[str, float | None]) -> str:
    tau, low, high = (_number(row[name], ".2f") for name in ("tau", "low", "high"))
    return tau if row["low"] is None else f"{tau} ({low} to {high})"


def _number(value: float | None, form: str) -> str:
    return "undefined" if value is None else format(value, form)
