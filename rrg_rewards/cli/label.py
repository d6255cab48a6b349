"""``rrg-rewards label``: label reports, one 0/1 column per label."""

import argparse
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
    from torch import Tensor

    from rrg_rewards.labelers.base import Labeler

__all__ = ["add_command"]

_DESCRIPTION = """\
Label the abnormalities in a table of reports. The output has the input columns and one 0/1 column per label.

The label cells of a missing or blank report are empty, not 0. The file name ending determines the format: CSV, JSON
lines or Parquet. The output file is written only if the run succeeds.

examples:
  rrg-rewards label reports.csv --text-column report_text --schema ct_rate --output labels.csv
  rrg-rewards label reports.jsonl --text-column report --schema chexbert --output labels.parquet --json summary.json
  cat reports.csv | rrg-rewards label - --text-column report_text --prefix pred_ > labels.csv
  rrg-rewards label reports.csv --text-column report_text --labeler my_lexicon.yaml --output labels.csv
"""


def _schema(name: str) -> str:
    try:
        return get_label_schema(name).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``label`` to the command line."""
    parser = add_command_parser(commands, "label", _run, "label the abnormalities in reports", _DESCRIPTION)
    add_table_argument(parser, "REPORTS", "reports")
    add_shared_options(parser, "text-column")
    parser.add_argument(
        "--schema", type=_schema, metavar="NAME", help="label set: ct_rate or chexbert (default: ct_rate)"
    )
    labels = "labeler: rules (no model), a lexicon file (my_lexicon.yaml) or radbert:CHECKPOINT (default: rules)"
    labeler = {"default": "rules", "help": labels}
    names = ("labeler", "output", "json", "format", "prefix", "overwrite", "batch-size")
    add_shared_options(parser, *names, labeler=labeler)


def _make_labeler(name: str, schema: str | None) -> "Labeler":
    from rrg_rewards.cli.labeler_options import labeler_from_option

    labeler = labeler_from_option(f"rules:{schema or 'ct_rate'}" if name == "rules" else name)
    if schema is not None and tuple(labeler.labels) != get_label_schema(schema).labels:
        raise UsageError(f"--labeler {name} does not have the labels of --schema {schema}; omit one of the two options")
    return labeler


def _summary(args: argparse.Namespace, labeler: "Labeler", rows: int, matrix: "Tensor") -> dict[str, Any]:
    return {
        "version": __version__,
        "table": args.table,
        "text_column": args.text_column,
        "labeler": labeler.signature,
        "rows": rows,
        "labelled": len(matrix),
        "unscorable": rows - len(matrix),
        "positives": dict(zip(labeler.labels, matrix.sum(0).tolist(), strict=True)),
    }


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_outputs(args)
    table = read_input(args, terminal)
    texts = table.texts(args.text_column)
    reports = {row: text for row, text in enumerate(texts) if text is not None and text.strip()}
    from rrg_rewards.cli.labeler_options import BatchedLabeler

    labeler = _make_labeler(args.labeler, args.schema)
    with terminal.progress("labelling") as report:
        matrix = BatchedLabeler(labeler, args.batch_size, report)(list(reports.values()))
    columns: dict[str, list[int | None]] = {label: [None] * len(table) for label in labeler.labels}
    for label, cells in zip(labeler.labels, matrix.int().T.tolist(), strict=True):
        for row, cell in zip(reports, cells, strict=True):
            columns[label][row] = cell
    summary = _summary(args, labeler, len(table), matrix)
    if summary["unscorable"]:
        terminal.warn(
            f"{summary['unscorable']} of {len(table)} reports are missing or blank: their label cells are empty"
        )
    write_outputs(args, with_new_columns(table, columns, args.prefix, terminal), summary)
    terminal.note(f"labelled {len(matrix)} of {len(table)} reports with {labeler.signature}")
    return 0
