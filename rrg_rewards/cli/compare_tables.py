"""The tables of ``rrg-rewards compare``: the same studies with the predictions or scores of several systems."""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from rrg_rewards.cli.options import UsageError, note_delimiter
from rrg_rewards.cli.reference_table import key_columns
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.tables.join import matching_rows
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.metrics.scores import Scores

__all__ = ["ComparedTables", "SystemRun", "read_compared"]

_PLACEHOLDER = "{column}"


@dataclass
class SystemRun:
    """A run of a system.

    Args:
        system: Name of the system.
        column: Column of its predictions in :attr:`ComparedTables.studies`.
        source: Table that they are from.
        scores: Scores by name.
    """

    system: str
    column: str
    source: str
    scores: dict[str, Scores] = field(default_factory=dict)


@dataclass
class ComparedTables:
    """Studies with the predictions of all systems.

    Args:
        studies: Columns of the first table, and the predictions of each run.
        runs: The runs of all systems.
    """

    studies: Table
    runs: list[SystemRun]


def read_compared(args: argparse.Namespace, terminal: Terminal) -> ComparedTables:
    """Read the tables, and check that they have the same studies.

    Raises:
        UsageError: If the options do not name at least two systems.
        TableError: If a table is malformed, lacks a column, or has other studies than the first.
    """
    tables = [_named(text) for text in args.tables]
    columns = [_named(text) for text in args.prediction_column or ["prediction"]]
    if len(tables) > 1 and len(columns) > 1:
        raise UsageError("argument --prediction-column: may be repeated with one table only; got several tables")
    if len(tables) == 1 and len(columns) < 2:
        raise UsageError(
            "one table needs a column for each system: --prediction-column A --prediction-column B; or name several "
            "tables"
        )
    if len(tables) == 1 and args.key is not None and args.references is None:
        raise UsageError("argument --key: needs several tables, or --references TABLE")
    if len(tables) > 1:
        return _from_tables(args, tables, columns[0][1], terminal)
    return _from_columns(args, tables[0][1], columns, terminal)


def _named(text: str) -> tuple[str | None, str]:
    """Return name and value of ``NAME=VALUE``; an existing file may contain ``=``."""
    name, equals, value = text.partition("=")
    if not equals or not name or re.search(r"[/\\]", name) or Path(text).exists():
        return None, text
    return name, value


def _read(args: argparse.Namespace, path: str, terminal: Terminal) -> Table:
    table = read_table(path, args.format, args.delimiter)
    note_delimiter(argparse.Namespace(table=path, delimiter=args.delimiter), table, terminal)
    if not len(table):
        raise TableError(f"{path}: has no rows")
    return table


def _names(args: argparse.Namespace) -> list[str]:
    return [name.strip() for name in args.scores.split(",")] if args.scores else []


def _from_columns(
    args: argparse.Namespace, path: str, columns: Sequence[tuple[str | None, str]], terminal: Terminal
) -> ComparedTables:
    """Read one table with a column of predictions for each run."""
    table = _read(args, path, terminal)
    if args.references is not None:
        table = _with_truth(args, table, [column for _, column in columns], terminal)
    twice = [column for column, times in Counter(column for _, column in columns).items() if times > 1]
    if twice:
        raise UsageError(f"argument --prediction-column: {twice[0]!r} is named more than once")
    runs = []
    for name, column in columns:
        run = SystemRun(name or column, column, path)
        if args.metrics:
            table.texts(column)
        for score in dict.fromkeys(_names(args)):
            if _PLACEHOLDER not in score:
                raise UsageError(
                    f"argument --scores: with one table, {score!r} must contain {_PLACEHOLDER}, which stands for the "
                    "column of --prediction-column"
                )
            if _score_name(score) in run.scores:
                raise UsageError(f"argument --scores: two columns have the name {_score_name(score)!r}")
            run.scores[_score_name(score)] = _scores(table, score.replace(_PLACEHOLDER, column), range(len(table)))
        runs.append(run)
    return ComparedTables(replace(table, delimiter=","), runs)


def _with_truth(args: argparse.Namespace, table: Table, predictions: Sequence[str], terminal: Terminal) -> Table:
    """Return the table of references with the columns of predictions and scores of a table."""
    truth = _read(args, args.references, terminal)
    rows = _matching_rows(args, truth, table)
    names = [name.replace(_PLACEHOLDER, column) for name in _names(args) for column in predictions]
    for name in (*(predictions if args.metrics else ()), *names):
        table.column(name)
    found = [name for name in (*predictions, *names) if name in table.columns]
    if both := [name for name in found if name in truth.columns]:
        raise TableError(f"{table.source} and {truth.source} both have a column {both[0]!r}; rename one of them")
    return truth.with_columns({name: [table.columns[name][row] for row in rows] for name in found})


def _score_name(pattern: str) -> str:
    return pattern.replace(_PLACEHOLDER, "").strip("_-. ") or pattern


def _scores(table: Table, column: str, rows: Sequence[int]) -> Scores:
    values = table.numbers(column)
    return Scores(torch.tensor([values[row] for row in rows], dtype=torch.float64))


def _from_tables(
    args: argparse.Namespace, named: Sequence[tuple[str | None, str]], column: str, terminal: Terminal
) -> ComparedTables:
    """Read a table for each run; the first has the references and all other columns of the studies."""
    systems = _system_names(named)
    tables = [_read(args, path, terminal) for _, path in named]
    first = tables[0] if args.references is None else _read(args, args.references, terminal)
    runs: list[SystemRun] = []
    predictions: dict[str, list[str | None]] = {}
    for system, (_, path), table in zip(systems, named, tables, strict=True):
        rows = _matching_rows(args, first, table)
        number = 1 + sum(run.system == system for run in runs)
        label = system if systems.count(system) == 1 else f"{system}, run {number}"
        run = SystemRun(system, f"{column} of {label}", path)
        if args.metrics:
            texts = table.texts(column)
            predictions[run.column] = [texts[row] for row in rows]
        run.scores = {score: _scores(table, score, rows) for score in _names(args)}
        runs.append(run)
    dropped = (column, *_names(args)) if args.references is None else ()
    kept = {name: cells for name, cells in first.columns.items() if name not in dropped}
    studies = replace(first, columns={**kept, **predictions}, types={}, delimiter=",")
    return ComparedTables(studies, runs)


def _system_names(named: Sequence[tuple[str | None, str]]) -> list[str]:
    """Return the name of each table's system: the given one, or that of its file."""
    systems = [name or Path(path).stem for name, path in named]
    for system, (name, _) in zip(systems, named, strict=True):
        if name is None and systems.count(system) > 1:
            raise UsageError(
                f"two tables are named {system!r}; name them, as in a=x/{system}.csv b=y/{system}.csv; tables with an "
                "equal given name are runs of one system"
            )
    return systems


def _matching_rows(args: argparse.Namespace, first: Table, other: Table) -> Sequence[int]:
    """Return the row of a table that has the study of each row of the first; raise if the studies differ."""
    if other is first:
        return range(len(first))
    if args.references is not None:
        key, first_key = key_columns(args)
        return matching_rows(first, first_key, other, key)
    rows = range(len(other)) if args.key is None else matching_rows(first, args.key, other, args.key)
    if len(rows) != len(first):
        raise TableError(
            f"{other.source}: has {len(other)} rows, and {first.source} has {len(first)}; all tables must have the "
            "same studies in the same order, or a column that names them: --key COLUMN"
        )
    references = [name for name in args.reference_column or ["reference"] if name in first.columns]
    if not references and args.key is None:
        raise TableError(
            f"{first.source}: has no column of references, so that nothing shows whether all tables have the same "
            "studies; name a column of studies: --key COLUMN"
        )
    for name in references:
        if name in other.columns or args.key is None:
            _check_references(first, other, name, rows)
    return rows


def _check_references(first: Table, other: Table, name: str, rows: Sequence[int]) -> None:
    ours, theirs = first.texts(name), other.texts(name)
    for row, found in enumerate(rows):
        if ours[row] != theirs[found]:
            raise TableError(
                f"{other.where(found)}, column {name!r}: differs from {first.where(row)}; all systems must have the "
                "same references. If the rows have another order, name a column of studies: --key COLUMN"
            )
