"""``rrg-rewards judge``: make candidates, evaluate report pairs, and compare judges."""

import argparse
from collections.abc import Callable
from typing import Any

from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    add_table_argument,
    check_outputs,
    positive_int,
    read_input,
    write_outputs,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.version import __version__

__all__ = ["add_command"]

_DESCRIPTION = """\
Evaluate report pairs with a judge for CRIMSON, to train a smaller judge on the evaluations, and measure how far a judge
agrees with another one. To score reports with CRIMSON, use rrg-rewards score --metrics crimson.
"""

_CANDIDATES = """\
Make candidate reports for references. The regime of each candidate is drawn from --regimes:

  edited     the reference with injected errors (findings added, removed, moved, changed in degree or size)
  random     the report of another study
  matched    the report of another study that is most similar by the embeddings of --encoder
  generated  the report of a model, in --generated-column (rrg-rewards generate writes one)

Candidates that cannot be made are counted and not replaced. The output has the columns of the input, and candidate and
regime.

examples:
  rrg-rewards judge candidates reports.csv --report-column report --output pairs.jsonl
  rrg-rewards judge candidates reports.jsonl --regimes edited,random,matched --encoder runs/minilm --per-report 2 \\
      --output pairs.jsonl
"""

_LABEL = """\
Let a judge evaluate report pairs, and append each evaluation to --output as one JSON line: reference, candidate,
context, source, CRIMSON score, evaluation, judge and prompt. `python -m rrg_rewards.recipes.crimson.distill` trains a
local judge on them.

Pairs on which the judge fails are counted by kind and not written. Ctrl-C stops after the running calls; a second
Ctrl-C stops immediately. Repeat the same command to request the evaluations that --output does not contain yet.

Reports are sent to this machine only unless the judge has allow_remote: true.

examples:
  rrg-rewards judge label pairs.jsonl --reference-column report --output evaluations.jsonl
  rrg-rewards judge label pairs.csv --context age=PatientAge --prompt guidelines --output evaluations.jsonl \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1, cache: judge_cache}"

exit codes: 0 success, 1 evaluations were requested but none was written, 2 wrong command line, 130 interrupted
"""

_COMPARE = """\
Let a judge evaluate the pairs of a file of rrg-rewards judge label, and compare its answers with the evaluations in the
file: the share of valid answers, Kendall's tau of the scores with a bootstrap 95 % interval, and for the numbers of
false findings, missing findings and attribute errors, Kendall's tau, the mean absolute difference and the share of
equal numbers. All but the share are computed over the pairs with a valid answer.

examples:
  rrg-rewards judge compare heldout.jsonl --judge local:runs/crimson/judge --prompt compact
  rrg-rewards judge compare heldout.jsonl --prompt compact --json report.json \\
      --judge "{name: local, model: runs/crimson/judge, dtype: bfloat16, max_new_tokens: 256}"
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``judge`` to the command line."""
    parser = commands.add_parser("judge", help=summary, description=_DESCRIPTION)
    tasks = parser.add_subparsers(title="tasks", metavar="TASK", required=True)

    candidates = _add_task(tasks, "candidates", _candidates, "make candidate reports", _CANDIDATES, "reference reports")
    candidates.add_argument(
        "--report-column", default="report", metavar="NAME", help="column of references (default: %(default)s)"
    )
    candidates.add_argument(
        "--regimes",
        default="edited,random",
        metavar="NAME[,NAME...]",
        help="regimes to draw from: edited, random, matched, generated (default: %(default)s)",
    )
    candidates.add_argument("--encoder", metavar="MODEL", help="folder or Hub id of the encoder of the regime matched")
    candidates.add_argument("--generated-column", metavar="NAME", help="column of a model's reports")
    candidates.add_argument(
        "--per-report", type=positive_int, default=1, metavar="N", help="candidates for each reference (default: 1)"
    )
    candidates.add_argument(
        "--modality", choices=("ct", "xray"), help="modality of invented findings (default: by the words of the report)"
    )
    add_shared_options(candidates, "seed", "output", "json", "format", "overwrite")

    label = _add_task(tasks, "label", _label, "evaluate report pairs with a judge", _LABEL, "report pairs")
    label.add_argument(
        "--reference-column", default="reference", metavar="NAME", help="column of references (default: %(default)s)"
    )
    label.add_argument(
        "--candidate-column", default="candidate", metavar="NAME", help="column of candidates (default: %(default)s)"
    )
    label.add_argument("--source-column", metavar="NAME", help="column that names the source of a candidate")
    output = {
        "default": argparse.SUPPRESS,
        "required": True,
        "help": "JSON lines file to append to (.jsonl); pairs that it contains are not evaluated again",
    }
    overwrite = {"help": "replace a summary that exists; --output is never replaced"}
    _add_judge_options(label, default="rules")
    add_shared_options(label, "context", "json", "format", output=output, overwrite=overwrite)

    compare = _add_task(tasks, "compare", _compare, "compare a judge with evaluations", _COMPARE, "evaluations")
    _add_judge_options(compare)
    add_shared_options(compare, "json", "overwrite")
    compare.set_defaults(output=None, format=None)


def _add_task(
    tasks: Any,
    name: str,
    run: Callable[[argparse.Namespace, Terminal], int],
    summary: str,
    description: str,
    content: str,
) -> argparse.ArgumentParser:
    parser = add_command_parser(tasks, name, run, summary, description)
    add_table_argument(parser, content.rpartition(" ")[2].upper(), content)
    return parser


def _add_judge_options(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    judge = {"help": "rules, openai:MODEL, local:MODEL, or a YAML mapping of a name and settings"}
    given = {"default": default} if default else {"required": True}
    parser_default = f" (default: {default})" if default else ""
    add_shared_options(parser, judge={**given, "help": judge["help"] + parser_default})
    parser.add_argument(
        "--prompt",
        default="own",
        choices=("own", "guidelines", "compact", "crimson-score"),
        help="prompt for a language model (default: own)",
    )


def _candidates(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.data.tables.table import Table
    from rrg_rewards.judges.candidates import REGIMES, make_candidates
    from rrg_rewards.models.report_encoder import ReportEncoder

    check_outputs(args)
    table = read_input(args, terminal)
    kept = {row: text for row, text in enumerate(table.texts(args.report_column)) if text is not None and text.strip()}
    if blank := len(table) - len(kept):
        terminal.warn(f"{blank} of {len(table)} reports are missing or blank, and are left out")
    rows, generated = list(kept), None
    if args.generated_column is not None:
        texts = table.texts(args.generated_column)
        generated = {number: text for number, row in enumerate(rows) if (text := texts[row]) is not None}
    regimes = [name for name in args.regimes.split(",") if name]
    try:
        found = make_candidates(
            list(kept.values()),
            regimes,
            generated=generated,
            encoder=None if args.encoder is None else ReportEncoder(args.encoder),
            per_report=args.per_report,
            modality=args.modality,
            seed=args.seed,
        )
    except ValueError as error:
        raise UsageError(f"argument --regimes: {error}") from error
    columns = {name: [cells[rows[number]] for number, _, _ in found.rows] for name, cells in table.columns.items()}
    if replaced := [name for name in ("candidate", "regime") if name in columns]:
        terminal.warn(f"the output replaces input columns of the same name: {', '.join(replaced)}")
    columns["candidate"] = [candidate for _, _, candidate in found.rows]
    columns["regime"] = [regime for _, regime, _ in found.rows]
    counts = {name: columns["regime"].count(name) for name in REGIMES if name in regimes}
    summary = {
        "version": __version__,
        "table": args.table,
        "reports": len(kept),
        "blank": blank,
        "candidates": counts,
        "declined": dict(found.declined),
    }
    write_outputs(args, Table(columns), summary)
    made = ", ".join(f"{count} {name}" for name, count in counts.items())
    terminal.note(f"{len(found.rows)} candidates ({made}); {found.declined.total()} could not be made")
    return 0


def _label(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.judge_run import label_pairs

    return label_pairs(args, terminal)


def _compare(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.cli.judge_run import compare_judge

    return compare_judge(args, terminal)
