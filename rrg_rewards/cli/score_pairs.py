"""The report pairs of ``rrg-rewards score``, read and checked in batches."""

import argparse
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from rrg_rewards.cli.options import UsageError, note_delimiter, read_assignments
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.tables.encoders import arrow_types
from rrg_rewards.data.tables.table import EMPTY_CELL, Table, TableError, is_missing, table_format
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.utilities.texts import PlaceholderWarning, find_placeholders, placeholder_message

__all__ = ["PairBatch", "PairReader", "located"]


@dataclass(frozen=True)
class PairBatch:
    """Report pairs of some rows of a table, with the context columns of each metric."""

    table: Table
    predictions: Sequence[str | None]
    references: Sequence[Any]
    """A reference or ``None`` for each row, or lists of them with several columns of references."""
    context: Mapping[str, Mapping[str, Any]]


@dataclass
class _Placeholders:
    """Texts such as ``NaN`` in a column."""

    found: int = 0
    example: str = ""


@dataclass
class PairReader:
    """Reads report pairs in batches, after a first pass that checks all of them.

    Args:
        args: Arguments of the command.
        batches: The input, which is read twice.
        metrics: The metrics by name.

    Raises:
        UsageError: If an option names a context column or reference labels that no metric takes.
    """

    args: argparse.Namespace
    batches: Iterable[Table]
    metrics: Mapping[str, ReportMetric]
    rows: int = 0
    reference_columns: list[str] = field(default_factory=list)
    types: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._context = _context_columns(self.args, self.metrics)
        self._labels = _label_columns(self.args, self.metrics)
        self._is_parquet = (
            self.args.output is not None and table_format(self.args.output, self.args.format) == "parquet"
        )

    def __iter__(self) -> Iterator[PairBatch]:
        """Yield all pairs; there may be a batch without pairs.

        Raises:
            TableError: If a column is missing, a cell is not of its kind, or the number of rows has changed.
        """
        rows = 0
        for table in self.batches:
            rows += len(table)
            if self.rows and rows > self.rows:
                break
            yield self._read(table)
        if self.rows and rows != self.rows:
            raise TableError(f"{self.args.table}: changed while it was read; it had {self.rows} rows at first")

    def check(self, terminal: Terminal) -> None:
        """Read all pairs once, so that every error in the data is raised before anything is scored.

        Sets ``rows``, ``reference_columns`` and, for Parquet output, the ``types`` of the columns. Warns of missing
        predictions and of texts that stand for a missing report.
        """
        rows = missing = 0
        words: dict[str, _Placeholders] = {}
        with terminal.progress("reading") as report:
            for batch in self:
                if not rows:
                    note_delimiter(self.args, batch.table, terminal)
                    self.reference_columns = self._reference_columns(batch.table)
                rows += len(batch.table)
                missing += list(batch.predictions).count(None)
                self._check_batch(batch)
                _count_placeholders(words, self.args.prediction_column, batch.predictions)
                for column, references in self._by_column(batch).items():
                    _count_placeholders(words, column, references)
                report(len(batch.table), len(batch.table))
        self.rows = rows
        if not rows:
            terminal.warn(f"{self.args.table} has a header and no rows")
        for column, one in words.items():
            if one.found:
                terminal.warn(placeholder_message(f"column {column!r}", one.found, rows, one.example, EMPTY_CELL))
        if missing:
            terminal.warn(
                f"{missing} of {rows} predictions ({self.args.prediction_column}) are missing and left out of the "
                "corpus value; if the model wrote empty reports, use --missing-prediction score"
            )

    def _check_batch(self, batch: PairBatch) -> None:
        if (name := getattr(self.args, "id_column", None)) is not None:
            for row, cell in enumerate(batch.table.column(name)):
                if is_missing(cell):
                    raise TableError(f"{batch.table.where(row)}, column {name!r}: is empty; each row needs a name")
        # Without a column of references, the metrics still check the predictions.
        for references in [*self._by_column(batch).values()] or [batch.references]:
            for name, metric in self.metrics.items():
                with located(batch.table):
                    metric.check(batch.predictions, references, **batch.context[name])
        if self._is_parquet:
            self.types = arrow_types(batch.table, self.types)

    def _reference_columns(self, table: Table) -> list[str]:
        """Return the columns of reference texts; none if it is missing and every metric has reference labels."""
        optional = self.args.reference_column is None and set(self._labels) == set(self.metrics)
        if optional and "reference" not in table.columns:
            return []
        return self.args.reference_column or ["reference"]

    def _by_column(self, batch: PairBatch) -> dict[str, Sequence[str | None]]:
        """Return the references of a batch by their column."""
        if len(self.reference_columns) < 2:
            return dict.fromkeys(self.reference_columns, batch.references)
        return {
            column: [references[place] for references in batch.references]
            for place, column in enumerate(self.reference_columns)
        }

    def _read(self, table: Table) -> PairBatch:
        columns = self._reference_columns(table)
        with warnings.catch_warnings():
            # The first pass counts such texts and warns once.
            warnings.simplefilter("ignore", PlaceholderWarning)
            predictions = table.texts(self.args.prediction_column)
            texts = [table.texts(column) for column in columns] or [[None] * len(table)]
        references: Sequence[Any] = texts[0] if len(texts) == 1 else [list(row) for row in zip(*texts, strict=True)]
        if self.args.missing_prediction == "score":
            predictions = [prediction or "" for prediction in predictions]
        context: dict[str, dict[str, Any]] = {
            name: {key: table.column(column) for key, column in columns.items()}
            for name, columns in self._context.items()
        }
        for name, labels in self._labels.items():
            context[name]["target_labels"] = table.labels(labels)
        return PairBatch(table, predictions, references, context)


def _context_columns(args: argparse.Namespace, metrics: Mapping[str, ReportMetric]) -> dict[str, dict[str, str]]:
    """Return the context columns of each metric by argument."""
    context: dict[str, dict[str, str]] = {name: {} for name in metrics}
    for key, column in read_assignments("--context", "NAME=COLUMN", args.context).items():
        takers = [name for name, metric in metrics.items() if metric.context is None or key in metric.context]
        if not takers:
            known = sorted({key for metric in metrics.values() for key in metric.context or ()})
            raise UsageError(
                f"argument --context: no metric among {','.join(metrics)} takes {key!r}; they take: {', '.join(known)}"
            )
        for name in takers:
            context[name][key] = column
    return context


def _label_columns(args: argparse.Namespace, metrics: Mapping[str, ReportMetric]) -> dict[str, list[str]]:
    """Return the columns of the reference labels of each metric that takes them, if they are asked for."""
    if not args.reference_labels and args.reference_label_prefix is None:
        return {}
    takers = [name for name, metric in metrics.items() if "target_labels" in (metric.context or ())]
    if not takers:
        raise UsageError(f"argument --reference-labels: no metric among {','.join(metrics)} uses reference labels")
    prefix = args.reference_label_prefix or ""
    return {name: [prefix + label for label in attrgetter("labeler.labels")(metrics[name])] for name in takers}


def _count_placeholders(counts: dict[str, _Placeholders], column: str, texts: Sequence[str | None]) -> None:
    one = counts.setdefault(column, _Placeholders())
    words = find_placeholders(texts)
    one.found += len(words)
    one.example = one.example or next(iter(words), "")


@contextmanager
def located(table: Table) -> Iterator[None]:
    """Add the file and the row to the errors of a metric, which number the rows of a batch from 0.

    Raises:
        TableError: Instead of a TypeError or ValueError inside the block.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        named = re.match(r"\w+\[(\d+)\]", str(error))
        row = int(named[1]) if named else len(table)
        raise TableError(f"{table.where(row) if row < len(table) else table.where_all()}: {error}") from error
