"""``rrg-rewards label``: label reports, one 0/1 column per label."""

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_command_parser,
    add_shared_options,
    add_table_argument,
    check_outputs,
    read_input,
    with_new_columns,
    write_outputs,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.schemas import get_label_schema
from rrg_rewards.version import __version__

if TYPE_CHECKING:
    from rrg_rewards.labelers.base import Labeler, LabelledReports

__all__ = ["add_command"]

_DESCRIPTION = """\
Label the abnormalities in a table of reports. The output has the input columns and one 0/1 column per label.

The label cells of a missing or blank report are empty, not 0. So are those of a report on which a judge fails, if a
language model labels the reports (--labeler judge:SCHEMA). The file name ending determines the format: CSV, JSON
lines or Parquet. The output file is written only if the run succeeds.

examples:
  rrg-rewards label reports.csv --text-column report_text --schema ct_rate --output labels.csv
  rrg-rewards label reports.jsonl --text-column report --schema chexbert --output labels.parquet --json summary.json
  cat reports.csv | rrg-rewards label - --text-column report_text --prefix pred_ > labels.csv
  rrg-rewards label reports.csv --text-column report_text --labeler my_lexicon.yaml --output labels.csv
  rrg-rewards label reports.csv --text-column report_text --labeler judge:ct_rate --output labels.csv \\
      --judge "{name: openai, model: my-model, base_url: http://localhost:8000/v1, cache: judge_cache}"
"""


def _schema(name: str) -> str:
    try:
        get_label_schema(name)
    except (ValueError, FileNotFoundError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``label`` to the command line."""
    parser = add_command_parser(commands, "label", _run, "label the abnormalities in reports", _DESCRIPTION)
    add_table_argument(parser, "REPORTS", "reports")
    add_shared_options(parser, "text-column")
    parser.add_argument(
        "--schema",
        type=_schema,
        metavar="NAME",
        help="label set: ct_rate or chexbert; for a judge also merlin or a YAML file (default: ct_rate)",
    )
    labels = (
        "labeler: rules (no model), a lexicon file (my_lexicon.yaml), radbert:CHECKPOINT, or judge, a language model "
        "(default: rules); rules:SCHEMA and judge:SCHEMA are rules and judge with --schema SCHEMA"
    )
    labeler = {"default": "rules", "help": labels}
    judge = {"help": "language model of --labeler judge: openai:MODEL, local:MODEL, or a YAML mapping of settings"}
    names = ("output", "json", "format", "prefix", "overwrite", "batch-size")
    add_shared_options(parser, "labeler", "judge", *names, labeler=labeler, judge=judge)


def _make_labeler(name: str, schema: str | None, judge: str | None) -> "Labeler":
    from rrg_rewards.cli.labeler_options import labeler_from_option
    from rrg_rewards.labelers.registry import needs_judge

    setting = f"{name}:{schema or 'ct_rate'}" if name in ("rules", "judge") else name
    if judge is not None and not needs_judge(setting):
        raise UsageError(f"argument --judge: the labeler {name} takes none; --labeler judge:SCHEMA does")
    labeler = labeler_from_option(setting, judge)
    if schema is not None and tuple(labeler.labels) != get_label_schema(schema).labels:
        raise UsageError(f"--labeler {name} does not have the labels of --schema {schema}; omit one of the two options")
    return labeler


def _summary(args: argparse.Namespace, labeler: "Labeler", rows: int, found: "LabelledReports") -> dict[str, Any]:
    kinds = Counter(failure.kind for failure in found.failures or () if failure is not None)
    labelled = len(found.labels) - kinds.total()
    return {
        "version": __version__,
        "table": args.table,
        "text_column": args.text_column,
        "labeler": labeler.signature,
        "rows": rows,
        "labelled": labelled,
        "unscorable": rows - labelled,
        **({"failed": dict(sorted(kinds.items()))} if kinds else {}),
        "positives": dict(zip(labeler.labels, found.labels.sum(0).tolist(), strict=True)),
    }


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_outputs(args)
    table = read_input(args, terminal)
    texts = table.texts(args.text_column)
    reports = {row: text for row, text in enumerate(texts) if text is not None and text.strip()}
    from rrg_rewards.cli.labeler_options import label_in_batches

    labeler = _make_labeler(args.labeler, args.schema, args.judge)
    with terminal.progress("labelling") as report:
        found = label_in_batches(labeler, list(reports.values()), args.batch_size, report)
    labelled = [row for row, failure in zip(reports, found.failures or (), strict=True) if failure is None]
    kept = found.labels[[failure is None for failure in found.failures or ()]]
    columns: dict[str, list[int | None]] = {label: [None] * len(table) for label in labeler.labels}
    for label, cells in zip(labeler.labels, kept.int().T.tolist(), strict=True):
        for row, cell in zip(labelled, cells, strict=True):
            columns[label][row] = cell
    summary = _summary(args, labeler, len(table), found)
    blank = len(table) - len(reports)
    if blank:
        terminal.warn(f"{blank} of {len(table)} reports are missing or blank: their label cells are empty")
    if "failed" in summary:
        kinds = ", ".join(f"{kind} {count}" for kind, count in summary["failed"].items())
        terminal.warn(
            f"the judge failed on {sum(summary['failed'].values())} of {len(reports)} reports ({kinds}): their label "
            "cells are empty"
        )
    write_outputs(args, with_new_columns(table, columns, args.prefix, terminal), summary)
    terminal.note(f"labelled {len(labelled)} of {len(table)} reports with {labeler.signature}")
    return 0
