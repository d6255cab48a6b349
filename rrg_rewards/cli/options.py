"""Options and checks that commands share."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.terminal import Terminal

if TYPE_CHECKING:
    from rrg_rewards.data.tables import Table

__all__ = [
    "UsageError",
    "add_common_options",
    "add_table_options",
    "check_outputs",
    "metric_settings",
    "new_parser_options",
    "positive_int",
    "read_input",
    "with_new_columns",
]


class UsageError(Exception):
    """The command line is wrong in a way that argparse cannot see; ends with exit code 2."""


def new_parser_options() -> dict[str, Any]:
    """Arguments that make all parsers alike: help keeps its line breaks, and options are written out."""
    return {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}


def positive_int(text: str) -> int:
    """Read an option that must be a positive integer.

    Raises:
        argparse.ArgumentTypeError: If it is none.

    Example:
        >>> positive_int("32")
        32
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {text!r}")
    return int(text)


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add what every command takes: ``--quiet``, ``--traceback``."""
    parser.add_argument("--quiet", action="store_true", help="no progress bars, notes and warnings")
    parser.add_argument("--traceback", action="store_true", help="show where an error was raised")


def add_table_options(parser: argparse.ArgumentParser, new_columns: str) -> None:
    """Add what every command that reads a table and adds columns takes."""
    parser.add_argument("--json", metavar="FILE", help="write a summary as JSON to FILE; - is standard output")
    parser.add_argument(
        "--format",
        choices=("csv", "jsonl", "parquet"),
        help="format of standard input and output, and of files whose ending tells nothing (default: csv for -)",
    )
    parser.add_argument(
        "--prefix",
        default="",
        metavar="TEXT",
        help=f"put TEXT before the names of {new_columns}; without it an input column of the same name is replaced",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace output files that exist")
    parser.add_argument(
        "--batch-size",
        type=positive_int,
        default=256,
        metavar="N",
        help="reports labelled or judged at once (default: 256)",
    )


def metric_settings(texts: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Options of each metric as ``--set METRIC.OPTION=VALUE`` gives them; values are read as YAML.

    Args:
        texts: What was given.
        names: The metrics.

    Raises:
        UsageError: If one is not of that form, its metric is none of these, or its value cannot be read.

    Example:
        >>> metric_settings(["crg.prior=0.2"], ["crg", "crimson"])
        {'crg': {'prior': 0.2}, 'crimson': {}}
    """
    import yaml

    settings: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in texts:
        key, equals, value = text.partition("=")
        metric, dot, option = key.partition(".")
        if not (equals and dot):
            raise UsageError(f"argument --set: must be METRIC.OPTION=VALUE, got {text!r}")
        if metric not in settings:
            raise UsageError(f"argument --set: {metric!r} is not among --metrics {','.join(names)}")
        try:
            settings[metric][option] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UsageError(f"argument --set: cannot read the value of {text!r}") from error
    return settings


def check_outputs(args: argparse.Namespace) -> None:
    """Check all that can be known about ``--output`` and ``--json`` before any work is done.

    Raises:
        UsageError: If both go to one place.
        TableError: If a file cannot be written, or its ending tells no format.
        ModuleNotFoundError: If the format needs a package that is not installed.
    """
    from rrg_rewards.data.tables import table_format
    from rrg_rewards.data.writers import check_output
    from rrg_rewards.utilities.imports import require

    if args.json is not None and args.json == args.output:
        raise UsageError(f"--output and --json must differ, got {args.json!r} for both")
    if args.output is not None:
        check_output(args.output, args.overwrite)
        if table_format(args.output, args.format) == "parquet":
            require("pyarrow", extra="parquet")
    if args.json is not None:
        check_output(args.json, args.overwrite)


def read_input(args: argparse.Namespace, terminal: Terminal) -> "Table":
    """Read the table that the command line names, and warn if it has no row."""
    from rrg_rewards.data.readers import read_table

    table = read_table(args.table, args.format)
    if not len(table):
        terminal.warn(f"{args.table} has a header and no rows")
    return table


def with_new_columns(table: "Table", columns: Mapping[str, Sequence[Any]], prefix: str, terminal: Terminal) -> "Table":
    """Add columns to a table under ``prefix`` + name, and say which input columns that replaces."""
    named = {prefix + name: cells for name, cells in columns.items()}
    replaced = [name for name in named if name in table.columns]
    if replaced:
        terminal.warn(
            f"the output replaces {len(replaced)} input column(s) of the same name: {', '.join(replaced)}; "
            "--prefix TEXT keeps both"
        )
    return table.with_columns(named)
