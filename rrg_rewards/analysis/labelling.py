"""Labels of the reports of a table."""

import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import torch

from rrg_rewards.analysis.input_tables import PlaceholderCounts, TableSink, with_new_columns
from rrg_rewards.analysis.judge_choice import choose_labeler
from rrg_rewards.analysis.outcomes import RunUsage, by_kind
from rrg_rewards.analysis.settings import LabelSettings
from rrg_rewards.data.tables.table import Table
from rrg_rewards.data.tables.writers import arrow_types
from rrg_rewards.labelers.base import Labeler, LabelledReports, label_reports, labeler_judge
from rrg_rewards.labelers.registry import needs_judge
from rrg_rewards.schemas import get_label_schema
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.utilities.texts import PlaceholderWarning
from rrg_rewards.utilities.worker_pool import LABELER_MODULES, calls, optional_pool
from rrg_rewards.version import __version__


@dataclass(frozen=True, kw_only=True)
class LabelSummary:
    """What was labelled in a table.

    Args:
        source: Name of the table.
        rows: Number of rows.
        text_column: Column of the report texts.
        labeler: Signature of the labeler.
        labelled: Number of labelled reports.
        failed: Number of reports on which a judge failed, by kind of failure.
        positives: Number of reports with each label.
        errors: What is wrong if no report has labels because the judge failed.
        usage: What the judge of the labeler has used.
    """

    source: str
    rows: int
    text_column: str
    labeler: str
    labelled: int
    failed: Mapping[str, int]
    positives: Mapping[str, int]
    errors: tuple[str, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return {
            "version": __version__,
            "table": self.source,
            "text_column": self.text_column,
            "labeler": self.labeler,
            "rows": self.rows,
            "labelled": self.labelled,
            "unscorable": self.rows - self.labelled,
            **({"failed": dict(self.failed)} if self.failed else {}),
            "positives": dict(self.positives),
            **({"usage": dict(self.usage)} if self.usage else {}),
        }


@dataclass(frozen=True, kw_only=True)
class LabelledTable(LabelSummary):
    """A table with a 0/1 column for each label, and what was labelled.

    Args:
        table: The input columns and those of the labels; the label cells of a report without labels are ``None``.
    """

    table: Table


def label_table(table: Table, settings: LabelSettings, log: RunLog | None = None) -> LabelledTable:
    """Label the reports of a table. A missing or blank report has no labels, nor has one on which a judge fails.

    Args:
        table: The table, as :func:`~rrg_rewards.data.read_table` returns it.
        settings: The labeler and the column of the reports.
        log: Receives warnings and progress. Default: Python warnings.

    Raises:
        SettingError: If the labeler or the judge is unknown, or the labeler lacks the labels of the schema.
        TableError: If the column does not exist, or a cell is not a text.

    Example:
        >>> table = Table({"report": ["Hiatal hernia.", "Normal chest."]})
        >>> labelled = label_table(table, LabelSettings(text_column="report"))
        >>> labelled.table.columns["Hiatal hernia"], labelled.positives["Hiatal hernia"]
        ([1, 0], 1)
    """
    labelling = TableLabelling([table], settings, table.source, log or RunLog())
    labelling.check()
    first, *others = labelling.tables()
    columns = {name: list(chain.from_iterable(one.columns[name] for one in (first, *others))) for name in first.names}
    lines = None if first.lines is None else tuple(chain.from_iterable(one.lines or () for one in (first, *others)))
    return LabelledTable(table=replace(first, columns=columns, lines=lines), **vars(labelling.summary()))


class TableLabelling:
    """Labels the reports of a table that is read in batches, and writes its rows meanwhile.

    Memory does not grow with the table.

    Args:
        batches: The input, which is iterated twice.
        settings: The labeler and the column of the reports.
        source: Name of the table.
        log: Receives notes, warnings and progress.
        keep_types: Whether :meth:`check` collects the types of the columns, for Parquet output.

    Raises:
        SettingError: As :func:`label_table`.
    """

    def __init__(
        self,
        batches: Iterable[Table],
        settings: LabelSettings,
        source: str,
        log: RunLog,
        keep_types: bool = False,
    ) -> None:
        self._settings, self._source, self._log = settings, source, log
        self._types: dict[str, Any] | None = {} if keep_types else None
        self._tables = batches
        self._labeler = choose_table_labeler(settings)
        judge = labeler_judge(self._labeler)
        self._usage = RunUsage({"labels": {} if judge is None else {"judge": judge}})
        self._first_failure = ""
        self._rows = self._reports = 0
        self._failed: Counter[str] = Counter()
        self._positives = torch.zeros(len(self._labeler.labels), dtype=torch.long)
        self.is_complete = False
        """Whether all reports are labelled."""

    def check(self) -> None:
        """Read all reports once, so that every error in the table is raised before anything is labelled.

        Raises:
            TableError: If the column does not exist, or a cell is not a text.
        """
        words = PlaceholderCounts()
        for table in self._batches():
            self._rows += len(table)
            self._reports += len(self._texts(table))
            for column in table.text_columns(self._settings.text_column):
                words.add(column, (cell for cell in table.column(column) if isinstance(cell, str)))
            if self._types is not None:
                self._types = arrow_types(table, self._types)
        if not self._rows:
            self._log.warn(f"{self._source} has a header and no rows")
        for message in words.messages(self._rows, self._source):
            warnings.warn(message, PlaceholderWarning, stacklevel=3)

    @property
    def most_requests(self) -> int:
        """Upper bound of the number of requests to a language model, after :meth:`check`; 0 for other labelers."""
        return self._reports if labeler_judge(self._labeler) is not None else 0

    def run(self, sink: TableSink | None = None) -> None:
        """Label all reports, and write the table. If it cannot be written, the error is raised at the end.

        Args:
            sink: The table to write.
        """
        if sink is None:
            deque(self.tables(), maxlen=0)
        else:
            sink.write(self.tables(), self._types or {}, "labels", self._rows, self._log)

    def tables(self) -> Iterator[Table]:
        """Yield the rows with the columns of the labels, while others are labelled."""
        label = partial(label_reports, self._labeler)
        with ExitStack() as stack:
            stack.enter_context(self._usage.noted(self._log))
            progress = stack.enter_context(self._log.progress("labelling"))
            pool = stack.enter_context(optional_pool(label, self._settings.workers, LABELER_MODULES, "the labeler"))
            progress(0, self._reports)
            tasks = (((table, texts), [*texts.values()]) for table in self._batches() for texts in [self._texts(table)])
            for (table, texts), result in calls(label, tasks, pool):
                labelled = self._with_labels(table, texts, result())
                progress(len(texts), 0)
                yield labelled
        self.is_complete = True

    def _batches(self) -> Iterator[Table]:
        """Yield the input in batches, also if it is one table."""
        for table in self._tables:
            yield from table.batches(self._settings.batch_size)

    def _texts(self, table: Table) -> dict[int, str]:
        """Return the reports of a table by row, without those that are missing or blank."""
        with warnings.catch_warnings():
            # The first pass counts such texts and warns once.
            warnings.simplefilter("ignore", PlaceholderWarning)
            texts = table.texts(self._settings.text_column)
        return {row: text for row, text in enumerate(texts) if text is not None and text.strip()}

    def _with_labels(self, table: Table, rows: Iterable[int], found: LabelledReports) -> Table:
        """Return a batch with the labels of some of its rows, and count them."""
        labels = self._labeler.labels
        self._positives += found.labels.sum(0)
        cells: list[Sequence[int | None]] = [(None,) * len(labels)] * len(table)
        failures = found.failures or (None,) * len(found.labels)
        for row, failure, own in zip(rows, failures, found.labels.int().tolist(), strict=True):
            if failure is None:
                cells[row] = own
            else:
                self._failed[failure.kind] += 1
                self._first_failure = self._first_failure or f"{failure.kind}: {failure.reason}"
        columns = {label: [own[place] for own in cells] for place, label in enumerate(labels)}
        return with_new_columns(table, columns, dict.fromkeys(labels, "int64"), self._settings.prefix, self._log)

    def summary(self) -> LabelSummary:
        """Return what was labelled, and warn of reports without labels."""
        if blank := self._rows - self._reports:
            self._log.warn(f"{blank} of {self._rows} reports are missing or blank: their label cells are empty")
        failed, total = dict(sorted(self._failed.items())), self._failed.total()
        errors: tuple[str, ...] = ()
        if failed:
            first = f"the first: {self._first_failure}"
            self._log.warn(
                f"the judge failed on {total} of {self._reports} reports ({by_kind(failed)}): their label cells are "
                f"empty; {first}"
            )
            if total == self._reports:
                errors = (f"no report has labels, because the judge failed on all {total}; {first}",)
        return LabelSummary(
            source=self._source,
            rows=self._rows,
            text_column=self._settings.text_column,
            labeler=self._labeler.signature,
            labelled=self._reports - total,
            failed=failed,
            positives=dict(zip(self._labeler.labels, self._positives.tolist(), strict=True)),
            errors=errors,
            usage=self._usage.to_dict("labels"),
        )


def choose_table_labeler(settings: LabelSettings) -> Labeler:
    """Return the labeler of the settings.

    Raises:
        SettingError: As :func:`label_table`.
    """
    name, schema = settings.labeler, settings.schema
    setting = f"{name}:{schema or 'ct_rate'}" if name in ("rules", "judge") else name
    if settings.judge is not None and not needs_judge(setting):
        raise SettingError("judge", f"the labeler {name} takes none; judge:SCHEMA does")
    labeler = choose_labeler(setting, settings.judge)
    if schema is not None and tuple(labeler.labels) != get_label_schema(schema).labels:
        raise SettingError(
            "schema", f"the labeler {name} does not have the labels of {schema}; omit `labeler` or `schema`"
        )
    return labeler
