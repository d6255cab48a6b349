"""Agreement of scores with human judgements in a table, read in batches, and in annotated data sets."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.analysis.agreement import (
    AgreementResult,
    RatedRows,
    check_names,
    check_statistics,
    measure_rows,
    numbered,
)
from rrg_rewards.analysis.batch_scoring import score_batches
from rrg_rewards.analysis.distinct import DistinctTexts
from rrg_rewards.analysis.metric_choice import metrics_by_name
from rrg_rewards.analysis.outcomes import PairCounts, RunUsage, all_errors, warn_of_failures
from rrg_rewards.analysis.report_pairs import PairReader
from rrg_rewards.analysis.settings import AgreementColumns, AgreementSettings, PairColumns
from rrg_rewards.data.records.annotated_sets import judgement_table, lower_is_better, read_annotated_set
from rrg_rewards.data.records.annotation_layouts import annotation_layouts
from rrg_rewards.data.tables.readers import BatchedTable
from rrg_rewards.data.tables.table import Table, TableError, is_missing
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError

# Decimals of differences between judgements.
_DIGITS = 9


@dataclass(frozen=True)
class TableAgreement:
    """Agreement in a table, with the rows that it was computed on.

    Args:
        result: The agreement.
        rows: Scores and judgements.
        errors: What is wrong with each metric that has scored no pair because its judge failed.
        usage: What the judges of the metrics have used, by metric and by what they do.
        texts: How many distinct texts each column of predictions has; empty without metrics.
    """

    result: AgreementResult
    rows: RatedRows
    errors: tuple[str, ...] = ()
    usage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    texts: Mapping[str, DistinctTexts] = field(default_factory=dict)


def agreement_of_table(
    table: str | Path,
    columns: AgreementColumns,
    metrics: Mapping[str, ReportMetric] | Sequence[str] = (),
    *,
    pairs: PairColumns = PairColumns(),  # noqa: B008 (frozen)
    settings: AgreementSettings = AgreementSettings(),  # noqa: B008 (frozen)
    format: str | None = None,  # noqa: A002
    batch_size: int = 256,
    with_text: bool = False,
    log: RunLog | None = None,
) -> TableAgreement:
    r"""Measure the agreement of scores in a table with its human judgements, as :func:`measure_agreement`.

    The table is read in batches. Only numbers stay in memory, and with metrics also the reports. With
    ``columns.dataset`` the columns are those of :func:`rrg_rewards.data.judgement_table`; by default the judgement is
    that of the data set in :data:`rrg_rewards.data.ANNOTATED_SETS`, the bootstrap draws studies, and judgements are
    turned by themselves: of all but ``rating`` a lower number is better. With ``columns.candidates`` each row has two
    reports: a score or a judgement is the difference between two columns, and ``preference`` replaces ``accuracy``
    among the default statistics.

    Args:
        table: Path of a table (``.csv``, ``.tsv``, ``.jsonl``, ``.parquet``, ``.json``), or of a data set.
        columns: Columns of scores, judgements, units and groups, or the data set.
        metrics: Metrics to compute, by name, or names as in :func:`~rrg_rewards.metrics.make_metric`. They are turned
            if a lower score is better.
        pairs: Columns of predictions, references and context of the metrics, and of the names of rows.
        settings: Statistics, columns of which a lower number is better, baseline, bootstrap and permutations.
        format: Format of a table with an unknown ending.
        batch_size: Number of rows in a batch.
        with_text: Whether the result keeps the reports of the table.
        log: Receives notes, warnings and progress.

    Raises:
        SettingError: If a setting is wrong or contradicts another, or a metric does not say whether higher scores are
            better.
        TableError: If the table is malformed, a column is missing, or a cell is not a number.
        ValueError: If the table has no rows.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "rated.csv"
        ...     _ = path.write_text("study,rouge,rating\na,0.7,3\na,0.4,1\nb,0.6,4\nb,0.0,1\nc,1.0,5\n")
        ...     columns = AgreementColumns(scores=["rouge"], human=["rating"], unit="study")
        ...     found = agreement_of_table(path, columns, settings=AgreementSettings(bootstrap=0, permutations=0))
        >>> round(found.result.all_rows.judgements[0].of("rouge").value, 3)
        0.738
    """
    log = log or RunLog()
    made = metrics_by_name(metrics)
    annotated: list[Table] = []
    if columns.dataset is not None:
        annotated, columns, settings = _annotated(str(table), columns, settings, log)
    _check_columns(columns, made, settings)
    # Some metrics compare all references, so that their reports are one batch.
    rows = None if made else batch_size
    opened = BatchedTable(table, format, rows) if not annotated else nullcontext(annotated)
    with opened as batches:
        return _measured(_Reading(str(table), batches, columns, pairs, log), made, settings, with_text)


def _annotated(
    path: str, columns: AgreementColumns, settings: AgreementSettings, log: RunLog
) -> tuple[list[Table], AgreementColumns, AgreementSettings]:
    """Return an annotated data set as a table, with its judgement, its units and the judgements that are turned."""
    assert columns.dataset is not None
    records = read_annotated_set(columns.dataset, path)
    if columns.drop_identical:
        number = len(records)
        records = [one for one in records if one.reference.split() != one.candidate.split()]
        log.note(f"{number - len(records)} pairs with the same words in both reports are left out")
    table = judgement_table(records, path)
    if columns.candidates is not None:
        table = _paired(table, columns.candidates, {name for record in records for name in record.attributes})
    human = tuple(columns.human) or (annotation_layouts()[columns.dataset]["judgement"],)
    turned = [name for name in human if lower_is_better(name) and name not in settings.lower_is_better]
    studies = len(set(table.column("study")))
    log.note(f"{columns.dataset}: {len(table)} report pairs of {studies} studies; judgement: {', '.join(human)}")
    columns = replace(columns, human=human, unit=columns.unit or "study")
    return [table], columns, replace(settings, lower_is_better=[*settings.lower_is_better, *turned])


def _paired(table: Table, candidates: Sequence[str], attributes: Collection[str]) -> Table:
    """Return the table with a row for each study that has both candidates."""
    column = next((name for name in attributes if {*candidates} <= {*table.column(name)}), None)
    if column is None:
        raise SettingError("candidates", f"no column of the data set has both {' and '.join(candidates)}")
    named: dict[Any, dict[Any, int]] = {}
    for row, (study, name) in enumerate(zip(table.column("study"), table.column(column), strict=True)):
        if named.setdefault(study, {}).setdefault(name, row) != row:
            raise TableError(f"{table.source}: study {study!r} has the candidate {name!r} twice")
    rows = [[places[name] for name in candidates] for places in named.values() if {*candidates} <= places.keys()]
    columns: dict[str, list[Any]] = {}
    for name, cells in table.columns.items():
        if name in ("reference", "study") or name in attributes:
            columns[name] = [cells[first] for first, _ in rows]
        else:
            for side, text in enumerate(candidates):
                columns[f"{name}{text}"] = [cells[pair[side]] for pair in rows]
    return Table(columns, table.source)


def _check_columns(columns: AgreementColumns, made: Mapping[str, ReportMetric], settings: AgreementSettings) -> None:
    """Raise a SettingError if the settings lack something or contradict each other."""
    if not columns.human:
        raise SettingError("human", "name at least one column of human judgements, or a `dataset`")
    if not columns.scores and not made:
        raise SettingError(None, "one of `scores` and `metrics` is needed")
    check_statistics(settings, candidates=columns.candidates, metrics=made)
    for name, metric in made.items():
        if metric.higher_is_better is None:
            raise SettingError(
                "metrics", f"{name} does not say whether higher scores are better: set its higher_is_better"
            )
    given = [*columns.scores, *columns.human]
    check_names([*given, *made], settings.lower_is_better, given)


def _measured(
    reading: "_Reading", made: Mapping[str, ReportMetric], settings: AgreementSettings, with_text: bool
) -> TableAgreement:
    """Return the agreement in the table that is read, scored by metrics."""
    texts: dict[str, DistinctTexts] = {}
    counts, usage = {name: PairCounts() for name in made}, RunUsage({name: one.judges() for name, one in made.items()})
    rows = reading.rows(with_text).turned(settings.lower_is_better)
    if made:
        with usage.noted(reading.log):
            rows = replace(rows, scores={**rows.scores, **reading.scores(made, settings.workers, counts, texts)})
        warn_of_failures(counts, reading.log)
    if not len(rows):
        raise ValueError(f"{reading.source}: has no rows")
    signatures = {name: metric.signature for name, metric in made.items()}
    candidates = reading.columns.candidates
    result = measure_rows(rows, settings, candidates=candidates, signatures=signatures, log=reading.log)
    return TableAgreement(result, rows, all_errors(counts), usage.by_user(), texts)


@dataclass(frozen=True)
class _Reading:
    """Reads the columns of a table, and scores its reports."""

    source: str
    batches: Iterable[Table]
    columns: AgreementColumns
    pairs: PairColumns
    log: RunLog

    def rows(self, with_text: bool) -> RatedRows:
        """Return scores, judgements, units and groups, and what the page shows of each row."""
        names = (*self.columns.scores, *self.columns.human)
        cells: dict[str, list[float]] = {name: [] for name in names}
        known: dict[Any, int] = {}
        units, groups, labels = [torch.zeros(0, dtype=torch.long)], list[str](), list[str]()
        texts: dict[str, list[str | None]] = {}
        with self.log.progress("reading") as progress:
            for table in self.batches:
                for name, values in cells.items():
                    values += self._values(table, name)
                if self.columns.unit is not None:
                    units.append(numbered(_keys(table, self.columns.unit), known))
                if self.pairs.id_column is not None:
                    labels += map(str, _keys(table, self.pairs.id_column))
                for name in self._text_columns(table) if with_text else ():
                    texts.setdefault(name, []).extend(table.texts(name, self.pairs.missing_section))
                if self.columns.group is not None:
                    groups += map(str, _keys(table, self.columns.group))
                progress(len(table), len(table))
        tensors = {name: torch.tensor(values, dtype=torch.float64) for name, values in cells.items()}
        return RatedRows(
            {name: tensors[name] for name in self.columns.scores},
            {name: tensors[name] for name in self.columns.human},
            None if self.columns.unit is None else torch.cat(units),
            None if self.columns.group is None else groups,
            self.columns.unit,
            self.columns.group,
            labels,
            texts,
        )

    def scores(
        self,
        metrics: Mapping[str, ReportMetric],
        workers: int,
        counts: Mapping[str, PairCounts],
        texts: dict[str, DistinctTexts],
    ) -> dict[str, Tensor]:
        """Return the scores of the reports by each metric, or the difference between both candidates of each row.

        Adds the outcomes to ``counts``, and the number of distinct reports of each column to ``texts``.
        """
        readers = []
        for column in self._prediction_columns:
            columns = replace(self.pairs, prediction_column=column)
            reader = PairReader(columns, self.batches, metrics, self.source)
            reader.check(self.log)
            texts[column] = reader.distinct
            readers.append(reader)
        found: dict[str, list[Tensor]] = {name: [] for name in metrics}
        with self.log.progress("scoring") as progress:
            progress(0, len(metrics) * sum(reader.rows for reader in readers))
            # Each reader has one batch.
            for _, batch in score_batches(metrics, chain.from_iterable(readers), progress, workers):
                for name, scores in batch.items():
                    found[name].append(scores.value.double().cpu())
                    counts[name].add(scores)
        differences = {name: sides[0] if len(sides) == 1 else sides[0] - sides[1] for name, sides in found.items()}
        return {
            name: differences[name] if one.higher_is_better else -differences[name] for name, one in metrics.items()
        }

    @property
    def _prediction_columns(self) -> list[str]:
        column, suffixes = self.pairs.prediction_column, self.columns.candidates
        if suffixes is not None and {*"{}"} & {*column}:
            raise SettingError("prediction_column", "must be the name of a column, not a template, with `candidates`")
        return [column + suffix for suffix in suffixes or ("",)]

    def _text_columns(self, table: Table) -> list[str]:
        named = (self.pairs.reference_column or "reference", *self._prediction_columns)
        return [name for name in named if table.has_texts(name)]

    def _values(self, table: Table, name: str) -> list[float]:
        """Return a column of numbers; with candidates, a difference between two columns unless the column exists."""
        if self.columns.candidates is None or name in table.columns:
            return table.numbers(name)
        first, second = (table.numbers(name + suffix) for suffix in self.columns.candidates)
        # Differences of means that are equal may differ by rounding, and are ties.
        return [round(ours - theirs, _DIGITS) for ours, theirs in zip(first, second, strict=True)]


def _keys(table: Table, name: str) -> Sequence[Any]:
    """Return the cells of a column of names, none of which may be missing."""
    cells = table.column(name)
    for row, cell in enumerate(cells):
        if is_missing(cell):
            raise TableError(f"{table.where(row)}, column {name!r}: is empty; each row needs a value")
    return cells
