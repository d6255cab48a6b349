"""``rrg-rewards convert reports``: tables of reports as JSON documents of leaderboards and challenges."""

import argparse
from typing import Any

from rrg_rewards.cli.options import add_command_parser, add_shared_options, add_table_argument, read_input
from rrg_rewards.cli.terminal import Terminal

__all__ = ["add_reports"]

_DESCRIPTION = """\
Write predicted reports as the JSON document that a leaderboard or challenge takes:

  rexrank  an object of studies by name; each has the other columns, and the prediction as model_prediction
  vlm3d    an object with a list generated_reports of the names of volumes (input_image_name) and reports (report)

The other direction needs no conversion: all commands read both layouts from files ending in .json. The layouts follow
the descriptions of ReXrank and VLM3D; check a document against the current rules before you submit it.

examples:
  rrg-rewards convert reports predictions.csv --layout vlm3d --study-column volume --output results.json
  rrg-rewards convert reports predictions.csv --layout rexrank --study-column study_id --output predictions.json
"""


def add_reports(commands: Any) -> None:
    """Add ``convert reports`` to the subcommands of ``convert``."""
    parser = add_command_parser(commands, "reports", _run, "write reports as ReXrank's or VLM3D's JSON", _DESCRIPTION)
    add_table_argument(parser, "REPORTS", "predicted reports")
    parser.add_argument("--layout", required=True, choices=("rexrank", "vlm3d"), help="layout of the document")
    parser.add_argument("--study-column", required=True, metavar="NAME", help="column of the names of the studies")
    parser.add_argument(
        "--prediction-column", default="prediction", metavar="NAME", help="column of predictions (default: %(default)s)"
    )
    output = {"required": True, "default": None, "help": "document to write; - is standard output"}
    add_shared_options(parser, "format", "overwrite", output=output)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.data.tables.json_documents import write_report_document
    from rrg_rewards.data.tables.writers import check_output

    check_output(args.output, args.overwrite)
    write_report_document(
        read_input(args, terminal),
        args.output,
        args.layout,
        study_column=args.study_column,
        prediction_column=args.prediction_column,
        overwrite=args.overwrite,
    )
    return 0
