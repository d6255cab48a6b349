"""``--references`` and ``--key``: references in a table of their own, joined by the names of studies."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rrg_rewards.cli.options import UsageError

if TYPE_CHECKING:
    from rrg_rewards.data.tables.table import Table

__all__ = ["add_reference_table_options", "key_columns", "with_references"]


def add_reference_table_options(parser: argparse.ArgumentParser, key_help: str) -> None:
    """Add ``--references`` and ``--key``."""
    parser.add_argument(
        "--references",
        metavar="TABLE",
        help="table of the references, their labels and context columns, if they are in another file; needs --key",
    )
    parser.add_argument("--key", metavar="COLUMN[=COLUMN]", help=key_help)


def key_columns(args: argparse.Namespace) -> tuple[str, str]:
    """Return the column of the names of studies, and that of ``--references``.

    Raises:
        UsageError: If ``--references`` is given without ``--key``.
    """
    if args.key is None:
        raise UsageError("argument --references: needs --key COLUMN, which names the study of each row")
    key, _, other = args.key.partition("=")
    return key, other or key


def with_references(
    args: argparse.Namespace, batches: "Iterable[Table]"
) -> "tuple[argparse.Namespace, Iterable[Table]]":
    """Return arguments and batches with the columns of ``--references``.

    Raises:
        UsageError: If ``--references`` and ``--key`` are not given together.
        TableError: If the table of references lacks a column, or names are missing or repeated.
    """
    from rrg_rewards.data.tables.join import JoinedTable
    from rrg_rewards.data.tables.readers import read_table

    if args.references is None:
        if args.key is not None:
            raise UsageError("argument --key: needs --references TABLE")
        return args, batches
    key, other_key = key_columns(args)
    truth = read_table(args.references, None, args.delimiter)
    first = next(iter(batches))
    # A column of the other table would become the prediction, and references would be scored as predictions.
    first.column(args.prediction_column)
    named = args.reference_column or [name for name in ["reference"] if name in truth.columns]
    for name in named:
        truth.column(name)
    columns = [JoinedTable.column(name, first) for name in named]
    changed = argparse.Namespace(**{**vars(args), "reference_column": columns or None})
    return changed, JoinedTable(batches, truth, key, other_key)
