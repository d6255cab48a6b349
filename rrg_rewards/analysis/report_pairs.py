"""Report pairs of a table, read and checked in batches."""

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from rrg_rewards.analysis.distinct import DistinctTexts, TextCounter
from rrg_rewards.analysis.input_tables import PlaceholderCounts, TableSink
from rrg_rewards.analysis.settings import PairColumns
from rrg_rewards.data.tables.readers import BatchedTable, read_table
from rrg_rewards.data.tables.studies import rows_by_study
from rrg_rewards.data.tables.table import Table, TableError, is_missing
from rrg_rewards.data.tables.writers import arrow_types
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.texts import PlaceholderWarning


@dataclass
class _JoinedTable:
    """Batches of a table with the columns of a second table, joined by the names of studies.

    A column of the second table whose name the first has too gets the name ``reference NAME``.

    Args:
        batches: Batches of the first table.
        other: The second table.
        key: Column of the names of the studies in the first table.
        other_key: The same column in the second table.

    Raises:
        TableError: In iterations, if one of the tables lacks a study of the other, or a name is missing or repeated.

    Example:
        >>> batches = [Table({"id": ["b", "a"], "report": ["Clear.", "Nodule."]})]
        >>> truth = Table({"name": ["a", "b"], "report": ["Nodule of 4 mm.", "Normal."]})
        >>> next(iter(_JoinedTable(batches, truth, "id", "name"))).columns["reference report"]
        ['Normal.', 'Nodule of 4 mm.']
    """

    batches: Iterable[Table]
    other: Table
    key: str
    other_key: str
    _rows: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rows = rows_by_study(self.other, self.other_key)

    def __iter__(self) -> Iterator[Table]:
        found: dict[str, str] = {}
        source = ""
        for table in self.batches:
            source = table.source
            rows = []
            for study, row in rows_by_study(table, self.key).items():
                if study in found:
                    raise TableError(f"{table.where(row)}, column {self.key!r}: {study!r} is also in {found[study]}")
                if study not in self._rows:
                    raise TableError(
                        f"{table.where(row)}, column {self.key!r}: {self.other.source} has no study {study!r}"
                    )
                found[study] = table.where(row)
                rows.append(self._rows[study])
            columns = {
                self.column(name, table): [cells[row] for row in rows] for name, cells in self.other.columns.items()
            }
            yield table.with_columns(columns)
        missing = [study for study in self._rows if study not in found]
        if missing:
            raise TableError(
                f"{source}: has no row with the study {missing[0]!r} of {self.other.source} ({len(missing)} of "
                f"{len(self._rows)} are missing); add rows with an empty cell for reports that were not generated"
            )

    @staticmethod
    def column(name: str, table: Table) -> str:
        """Return the name of a column of the second table in the joined table."""
        return f"reference {name}" if name in table.columns else name


@dataclass(frozen=True)
class PairBatch:
    """Report pairs of some rows of a table, with the context columns of each metric."""

    table: Table
    predictions: Sequence[str | None]
    references: Sequence[str | None]
    context: Mapping[str, Mapping[str, Any]]


@dataclass
class PairReader:
    """Report pairs in batches, and what a first pass over all of them has found.

    Args:
        columns: Where the table has predictions, references and context.
        batches: The input, which is iterated at least twice.
        metrics: The metrics by name.
        source: Name of the table in messages.
        keep_types: Whether :meth:`check` collects the types of the columns, for Parquet output.

    Raises:
        SettingError: If the settings name a context column or reference labels that no metric takes.

    Example:
        >>> from rrg_rewards.metrics import BLEU
        >>> batches = [Table({"prediction": ["Small effusion."], "report": ["Small left effusion."]})]
        >>> pairs = PairReader(PairColumns(reference_column="report"), batches, {"bleu": BLEU()}, "reports.csv")
        >>> pairs.check(RunLog())
        >>> pairs.rows, [batch.references for batch in pairs]
        (1, [['Small left effusion.']])
    """

    columns: PairColumns
    batches: Iterable[Table]
    metrics: Mapping[str, ReportMetric]
    source: str = "table"
    keep_types: bool = False
    rows: int = field(default=0, init=False)
    reference_column: str | None = field(default=None, init=False)
    types: dict[str, Any] = field(default_factory=dict, init=False)
    distinct: DistinctTexts = field(default=DistinctTexts(0, 0, 0, None, None), init=False)
    absent: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._context = _context_columns(self.columns, self.metrics)
        named = self.columns.prediction_column, self.columns.reference_column or ""
        if self.columns.missing_section is not None and not any("{" in name for name in named):
            raise SettingError("missing_section", "needs a template of predictions or references, as in '{findings}'")

    def __iter__(self) -> Iterator[PairBatch]:
        """Yield all pairs; there may be a batch without pairs.

        Raises:
            TableError: If a column is missing, or a cell is not of its kind.
        """
        return map(self._read, self.batches)

    def check(self, log: RunLog) -> None:
        """Read all pairs once, so that every error in the data is raised before anything is scored.

        Metrics whose scores depend on the corpus are replaced in ``metrics``; for them, the pairs are read once more.
        Sets ``rows``, ``reference_column``, the numbers of ``absent`` texts by their kind and column and of
        ``distinct`` ones and, for Parquet output, the ``types`` of the columns. Warns of missing and blank predictions,
        of texts that stand for a missing report, and of few distinct texts.
        """
        rows = missing = blank = 0
        texts = TextCounter()
        words = PlaceholderCounts()
        unread: dict[tuple[str, str], None] = {}
        with log.progress("reading") as progress:
            for batch in self:
                if not rows:
                    self.reference_column = self._reference_column(batch.table)
                for name, metric in self.metrics.items():
                    columns = metric.unread_context(batch.table.columns, self._context[name])
                    unread.update({(name, column): None for column in columns})
                rows += len(batch.table)
                missing += list(batch.predictions).count(None)
                blank += sum(text is not None and not text.strip() for text in batch.predictions)
                self._check_batch(batch)
                texts.add(batch.predictions, batch.references)
                words.add(self.columns.prediction_column, batch.predictions)
                if (column := self.reference_column) is not None:
                    words.add(column, batch.references)
                    self.absent["reference", column] += sum(not (text and text.strip()) for text in batch.references)
                progress(len(batch.table), len(batch.table))
        self.rows = rows
        self.absent["prediction", self.columns.prediction_column] = missing
        if not rows:
            log.warn(f"{self.source} has a header and no rows")
        self.distinct = texts.result()
        for name, column in unread:
            log.warn(f"{name} does not read the column {column!r}, as `context={column}={column}` would")
        for message in (*words.messages(rows), self.distinct.warning(self.columns.prediction_column)):
            if message is not None:
                log.warn(message)
        self.metrics = {
            name: metric.in_corpus((batch.predictions, batch.references) for batch in self)
            if metric.depends_on_corpus
            else metric
            for name, metric in self.metrics.items()
        }
        if missing:
            log.warn(
                f"{missing} of {rows} predictions ({self.columns.prediction_column}) are missing and left out of the "
                "corpus value; if the model wrote empty reports, use `missing_prediction=score`"
            )
        if blank and self.columns.missing_prediction != "score":
            counted = "1 prediction is blank and counts as an empty report"
            log.warn(counted if blank == 1 else f"{blank} predictions are blank and count as empty reports")

    def unscorable(self) -> str:
        """Return the message that no pair has a score, and why."""
        message = "no report pair has a score: "
        if not self.rows:
            return f"{message}{self.source} has no rows"
        absent = [
            f"{count} {kind}{'s' * (count > 1)} in column {column!r}"
            for (kind, column), count in self.absent.items()
            if count
        ]
        verb = "is" if self.absent.total() == 1 else "are"
        reason = f"{' and '.join(absent)} {verb} missing or blank" if absent else f"all {self.rows} are unscorable"
        return message + reason

    def _check_batch(self, batch: PairBatch) -> None:
        if (name := self.columns.id_column) is not None:
            for row, cell in enumerate(batch.table.column(name)):
                if is_missing(cell):
                    raise TableError(f"{batch.table.where(row)}, column {name!r}: is empty; each row needs a name")
        # Without a column of references, the metrics still check the predictions.
        for name, metric in self.metrics.items():
            # The first pass counts such texts in all batches and warns once.
            with located(batch.table), warnings.catch_warnings():
                warnings.simplefilter("ignore", PlaceholderWarning)
                metric.check(batch.predictions, batch.references, **batch.context[name])
        if self.keep_types:
            self.types = arrow_types(batch.table, self.types)

    def _reference_column(self, table: Table) -> str | None:
        """Return the column of reference texts; ``None`` if it is missing and no metric needs it."""
        named = self.columns.reference_column
        if named is not None or "reference" in table.columns:
            return named or "reference"
        needed = any(metric.needs_references(self._context[name]) for name, metric in self.metrics.items())
        return "reference" if needed else None

    def _read(self, table: Table) -> PairBatch:
        column = self._reference_column(table)
        with warnings.catch_warnings():
            # The first pass counts such texts and warns once.
            warnings.simplefilter("ignore", PlaceholderWarning)
            section = self.columns.missing_section
            references: list[str | None] = [None] * len(table)
            if column is not None:
                table.check_named("reference_column", column)
                references = table.texts(column, section)
            table.check_named("prediction_column", self.columns.prediction_column)
            predictions = table.texts(self.columns.prediction_column, section)
            table.check_named("context", *self.columns.context.values())
        if self.columns.missing_prediction == "score":
            predictions = [prediction or "" for prediction in predictions]
        context: dict[str, dict[str, Any]] = {
            name: {
                key: table.column(column) if isinstance(column, str) else table.labels(column)
                for key, column in columns.items()
            }
            for name, columns in self._context.items()
        }
        return PairBatch(table, predictions, references, context)


def _context_columns(
    columns: PairColumns, metrics: Mapping[str, ReportMetric]
) -> dict[str, dict[str, str | list[str]]]:
    """Return the context columns of each metric by argument; reference labels have a column for each label."""
    context: dict[str, dict[str, str | list[str]]] = {name: {} for name in metrics}
    for key, column in columns.context.items():
        takers = [name for name, metric in metrics.items() if metric.context is None or key in metric.context]
        if not takers:
            known = sorted({key for metric in metrics.values() for key in metric.context or ()})
            raise SettingError(
                "context", f"no metric among {','.join(metrics)} takes {key!r}; they take: {', '.join(known)}"
            )
        for name in takers:
            context[name][key] = column
    if not columns.reference_labels and columns.reference_label_prefix is None:
        return context
    labelled = [name for name, metric in metrics.items() if "target_labels" in (metric.context or ())]
    if not labelled:
        raise SettingError("reference_labels", f"no metric among {','.join(metrics)} uses reference labels")
    prefix = columns.reference_label_prefix or ""
    for name in labelled:
        context[name]["target_labels"] = [prefix + label for label in attrgetter("labeler.labels")(metrics[name])]
    return context


@contextmanager
def located(table: Table, start: int = 0) -> Iterator[None]:
    """Add the file and the row to the errors of a metric, which number the rows of a batch from 0.

    Args:
        table: The rows.
        start: Row of the table with which the batch begins.

    Raises:
        TableError: Instead of a TypeError or ValueError inside the block.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        named = re.match(r"\w+\[(\d+)\]", str(error))
        row = start + int(named[1]) if named else len(table)
        message = re.sub(r"\[\d+\]", f"[{row}]", str(error), count=1) if named and start else str(error)
        raise TableError(f"{table.where(row) if row < len(table) else table.where_all()}: {message}") from error


@contextmanager
def opened_pairs(
    table: str | Path,
    metrics: Mapping[str, ReportMetric],
    columns: PairColumns,
    rows: int,
    *,
    format: str | None = None,  # noqa: A002
    sink: TableSink | None = None,
    log: RunLog,
) -> Iterator[PairReader]:
    """Read and check the report pairs of a table, which are kept in a temporary file inside the block.

    Args:
        table: Path of the table.
        metrics: Metrics by name.
        columns: Where the table has predictions, references and context.
        rows: Number of rows in a batch.
        format: Format of a table with an unknown ending.
        sink: Table to write, which may need the types of the columns.
        log: Receives notes, warnings and progress.

    Raises:
        SettingError: As :class:`PairReader`, and if there are no metrics.
        TableError: If the table is malformed or lacks a column.
    """
    if not metrics:
        raise SettingError("metrics", "at least one is needed")
    with BatchedTable(table, format, rows) as batches:
        columns, tables = join_references(columns, batches)
        keep_types = sink is not None and sink.is_parquet
        pairs = PairReader(columns, tables, metrics, str(table), keep_types)
        pairs.check(log)
        yield pairs


def join_references(columns: PairColumns, batches: Iterable[Table]) -> tuple[PairColumns, Iterable[Table]]:
    """Return columns and batches with the columns of the table of references, if there is one.

    Args:
        columns: The columns.
        batches: Batches of the table of predictions.

    Raises:
        SettingError: If ``references`` and ``key`` are not set together.
        TableError: If the table of references lacks a column, or names are missing or repeated.
    """
    if columns.references is None:
        if columns.key is not None:
            raise SettingError("key", "needs `references`")
        return columns, batches
    key, other_key = columns.keys
    truth = read_table(columns.references)
    first = next(iter(batches))
    # A column of the other table would become the prediction, and references would be scored as predictions.
    first.check_named("prediction_column", columns.prediction_column)
    named = columns.reference_column or ("reference" if "reference" in truth.columns else None)
    if named is not None:
        named = truth.renamed_texts(named, lambda column: _JoinedTable.column(column, first))
    return replace(columns, reference_column=named), _JoinedTable(batches, truth, key, other_key)
