"""``rrg-rewards label``: one 0/1 column a label."""

import argparse
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    UsageError,
    add_common_options,
    add_table_options,
    check_outputs,
    new_parser_options,
    read_input,
    with_new_columns,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.schemas import get_label_schema
from rrg_rewards.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

    from rrg_rewards.labelers.base import Labeler

__all__ = ["add_command"]

_DESCRIPTION = """\
Label the abnormalities in a table of reports: the output holds the input columns and one 0/1 column a label.

A report that is missing or blank gets empty label cells, not 0. The format of a table (CSV, JSON lines, Parquet) is
told by its ending. The output file appears whole or not at all.
"""

_EXAMPLE = """\
examples:
  rrg-rewards label reports.csv --text-column report_text --schema ct_rate --output labels.csv
  rrg-rewards label reports.jsonl --text-column report --schema chexbert --output labels.parquet --json summary.json
  cat reports.csv | rrg-rewards label - --text-column report_text --prefix pred_ > labels.csv
"""


def _schema(name: str) -> str:
    try:
        return get_label_schema(name).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``label`` to the command line."""
    parser = commands.add_parser(
        "label",
        help="label the abnormalities in reports",
        description=_DESCRIPTION,
        epilog=_EXAMPLE,
        **new_parser_options(),
    )
    parser.add_argument(
        "table", metavar="REPORTS", help="table of reports (.csv, .jsonl, .parquet); - is standard input"
    )
    parser.add_argument("--text-column", required=True, metavar="NAME", help="column of report texts")
    parser.add_argument(
        "--schema", type=_schema, metavar="NAME", help="label set: ct_rate or chexbert (default: ct_rate)"
    )
    parser.add_argument(
        "--labeler",
        default="rules",
        metavar="NAME",
        help="rules (no model), or radbert:CHECKPOINT (default: rules)",
    )
    parser.add_argument("--output", default="-", metavar="FILE", help="where to write the table (default: -)")
    add_table_options(parser, new_columns="label columns")
    add_common_options(parser)
    parser.set_defaults(run=_run, parser=parser)


def _make_labeler(name: str, schema: str | None) -> "Labeler":
    from rrg_rewards.cli.labeling import labeler_from_option

    labeler = labeler_from_option(f"rules:{schema or 'ct_rate'}" if name == "rules" else name)
    if schema is not None and tuple(labeler.labels) != get_label_schema(schema).labels:
        raise UsageError(f"--labeler {name} does not give the labels of --schema {schema}; leave one of them out")
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
    from rrg_rewards.data.writers import write_json, write_table

    check_outputs(args)
    table = read_input(args, terminal)
    texts = table.texts(args.text_column)
    reports = {row: text for row, text in enumerate(texts) if text is not None and text.strip()}
    from rrg_rewards.cli.labeling import BatchedLabeler

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
    write_table(with_new_columns(table, columns, args.prefix, terminal), args.output, args.format, args.overwrite)
    if args.json is not None:
        write_json(summary, args.json, args.overwrite)
    terminal.note(f"labelled {len(matrix)} of {len(table)} reports with {labeler.signature}")
    return 0
