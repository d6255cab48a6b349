"""The scores and human judgements of ``rrg-rewards agreement``, read from a table in batches."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rrg_rewards.analysis.metric_choice import make_metrics
from rrg_rewards.analysis.pairs import PairReader, located, note_delimiter
from rrg_rewards.analysis.settings import MetricChoice, PairColumns
from rrg_rewards.cli.options import UsageError, settings_from
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.tables.readers import BatchedTable
from rrg_rewards.data.tables.table import Table, TableError, is_missing
from rrg_rewards.metrics.references import score_batch, signature_with_references

if TYPE_CHECKING:
    from rrg_rewards.metrics.base import ReportMetric

__all__ = ["ALL_ROWS", "AgreementColumns", "read_columns"]

ALL_ROWS = "all"
"""Name of the group of all rows."""

# Some metrics compare all references, so that their reports are one batch.
_ONE_BATCH = 2**31


@dataclass
class AgreementColumns:
    """Columns of the table, turned so that higher is better.

    Args:
        scores: Scores by name, ``(N,)`` float64; NaN if missing.
        human: Judgements by column, ``(N,)`` float64; NaN if missing.
        signatures: Signatures of the metrics that were computed.
        units: Number of the unit of each row; ``None`` if each row is a unit.
        groups: Group of each row; ``None`` without groups.
        names: Name of each row, if ``--id-column`` is set.
        texts: Reports by column, with ``--with-text``.
    """

    scores: dict[str, Tensor] = field(default_factory=dict)
    human: dict[str, Tensor] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    units: Tensor | None = None
    groups: list[str] | None = None
    names: list[str] = field(default_factory=list)
    texts: dict[str, list[str | None]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return len(next(iter(self.human.values())))

    def missing(self) -> dict[str, int]:
        """Return the number of rows without a value, by column."""
        return {name: int(values.isnan().sum()) for name, values in {**self.scores, **self.human}.items()}


def read_columns(args: argparse.Namespace, terminal: Terminal) -> AgreementColumns:
    """Read the columns that the options name, and compute the metrics.

    Raises:
        TableError: If a column is missing, or a cell is not a number.
        UsageError: If an option names a column twice or turns a column that is not used, a metric does not say whether
            higher scores are better, or a group has the name of the result of all rows.
    """
    metrics = make_metrics(settings_from(args, MetricChoice))
    for name, metric in metrics.items():
        if metric.higher_is_better is None:
            raise UsageError(
                f"argument --metrics: {name} does not say whether higher scores are better: set its higher_is_better"
            )
    scores, human = _names(args.scores), _names(args.human)
    names = [*scores, *metrics, *human]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{', '.join(repeated)}: named more than once by --scores, --metrics and --human")
    lower = _names(args.lower_is_better)
    if unknown := [name for name in lower if name not in (*scores, *human)]:
        raise UsageError(f"argument --lower-is-better: {unknown[0]!r} is not among --scores and --human")
    found = AgreementColumns()
    with BatchedTable(args.table, args.format, args.delimiter, _ONE_BATCH if metrics else args.batch_size) as batches:
        _read_numbers(args, batches, scores, human, found, terminal)
        for name in lower:
            for columns in (found.scores, found.human):
                if name in columns:
                    columns[name] = -columns[name]
        _add_metrics(args, batches, metrics, found, terminal)
    return found


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


def _read_numbers(
    args: argparse.Namespace,
    batches: BatchedTable,
    scores: Sequence[str],
    human: Sequence[str],
    found: AgreementColumns,
    terminal: Terminal,
) -> None:
    """Read the columns of numbers, the units and the groups; only numbers stay in memory."""
    cells: dict[str, list[float]] = {name: [] for name in (*scores, *human)}
    places: dict[Any, int] = {}
    units: list[int] = []
    groups: list[str] = []
    with terminal.progress("reading") as report:
        for number, table in enumerate(batches):
            if not number:
                note_delimiter(table, args.table, args.delimiter, terminal)
            for name, values in cells.items():
                values += _values(table, name, args.candidates)
            if args.unit is not None:
                units += [places.setdefault(cell, len(places)) for cell in _keys(table, args.unit)]
            _read_page_cells(args, table, found)
            if args.group is not None:
                groups += [str(cell) for cell in _keys(table, args.group)]
            report(len(table), len(table))
    if ALL_ROWS in groups:
        raise UsageError(
            f"argument --group: the column {args.group!r} has the value {ALL_ROWS!r}, which names the result of all "
            "rows; rename the value"
        )
    tensors = {name: torch.tensor(values, dtype=torch.float64) for name, values in cells.items()}
    found.scores = {name: tensors[name] for name in scores}
    found.human = {name: tensors[name] for name in human}
    found.units = None if args.unit is None else torch.tensor(units, dtype=torch.long)
    found.groups = None if args.group is None else groups


def _read_page_cells(args: argparse.Namespace, table: Table, found: AgreementColumns) -> None:
    """Read what only the page of ``--html`` shows: names and, with ``--with-text``, the reports that the table has."""
    if args.id_column is not None:
        found.names += [str(cell) for cell in _keys(table, args.id_column)]
    if args.with_text:
        predictions = [args.prediction_column + suffix for suffix in args.candidates or ("",)]
        for name in (*(args.reference_column or ["reference"]), *predictions):
            if name in table.columns:
                found.texts.setdefault(name, []).extend(table.texts(name))


def _values(table: Table, name: str, candidates: Sequence[str] | None) -> list[float]:
    """Return a column of numbers; with candidates, a difference between two columns unless the column exists."""
    if candidates is None or name in table.columns:
        return table.numbers(name)
    first, second = (table.numbers(name + suffix) for suffix in candidates)
    return [ours - theirs for ours, theirs in zip(first, second, strict=True)]


def _keys(table: Table, name: str) -> Sequence[Any]:
    """Return the cells of a column of names, none of which may be missing."""
    cells = table.column(name)
    for row, cell in enumerate(cells):
        if is_missing(cell):
            raise TableError(f"{table.where(row)}, column {name!r}: is empty; each row needs a value")
    return cells


def _add_metrics(
    args: argparse.Namespace,
    batches: BatchedTable,
    metrics: "Mapping[str, ReportMetric]",
    found: AgreementColumns,
    terminal: Terminal,
) -> None:
    """Score the reports with each metric, or both candidates of each row."""
    if not metrics:
        return
    readers = []
    best = settings_from(args, PairColumns).best
    for suffix in args.candidates or ("",):
        columns = settings_from(args, PairColumns, prediction_column=args.prediction_column + suffix)
        reader = PairReader(columns, batches, metrics, args.table, args.delimiter)
        reader.check(terminal)
        readers.append(reader)
    with terminal.progress("scoring") as report:
        report(0, len(metrics) * len(readers))
        for name, metric in metrics.items():
            sides = [_scored(reader, name, metric, best, report) for reader in readers]
            values = sides[0] if len(sides) == 1 else sides[0] - sides[1]
            found.scores[name] = values if metric.higher_is_better else -values
            found.signatures[name] = signature_with_references(metric, best)


def _scored(
    reader: PairReader, name: str, metric: "ReportMetric", best: bool | None, report: Callable[[int, int], None]
) -> Tensor:
    """Return the scores of all pairs of a reader, NaN if unscorable."""
    values = []
    for batch in reader:
        with located(batch.table):
            scores = score_batch(metric, batch.predictions, batch.references, best, batch.context[name])
            values.append(scores.value.double())
    report(1, 0)
    return torch.cat(values).cpu()
