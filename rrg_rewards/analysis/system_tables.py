"""Comparison of systems whose reports or scores are in tables: the same studies, read, joined and scored."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from rrg_rewards.analysis.batch_scoring import score_batches
from rrg_rewards.analysis.comparison import MetricRuns, SystemComparison, compare_runs
from rrg_rewards.analysis.constant_text import (
    ConstantBatch,
    ConstantEntry,
    ConstantText,
    ConstantTotals,
    chosen_metrics,
    constant_texts,
    note_left_out,
)
from rrg_rewards.analysis.distinct import DistinctTexts
from rrg_rewards.analysis.metric_choice import metrics_by_name
from rrg_rewards.analysis.outcomes import PairCounts, RunUsage, all_errors, warn_of_failures
from rrg_rewards.analysis.report_pairs import PairBatch, PairReader
from rrg_rewards.analysis.settings import CompareSettings, PairColumns
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.studies import matching_rows
from rrg_rewards.data.tables.table import Table, TableError, is_missing
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError

_PLACEHOLDER = "{column}"


@dataclass
class SystemRun:
    """A run of a system.

    Args:
        system: Name of the system.
        name: Name of the run: that of the system, with a number if the system has several.
        column: Column of its predictions in :attr:`TableComparison.studies`.
        source: Table that they are from.
        scores: Scores of ``CompareSettings.scores`` by name.
    """

    system: str
    name: str
    column: str
    source: str
    scores: dict[str, Scores] = field(default_factory=dict)


@dataclass(frozen=True)
class TableComparison:
    """A comparison of systems, with the studies that it was computed on.

    Args:
        result: The comparison.
        studies: Columns of the first table or of the table of references, and the predictions of each run.
        runs: The runs of all systems.
        scored: Their scores by each metric.
        errors: What is wrong with each metric that has scored no report of a system because its judge failed.
        usage: What the judges of the metrics have used, by metric and by what they do.
        texts: How many distinct texts each run has, by its name; empty if no report was read.
        constants: Values of the metrics by the name of a text that is given to every study, on the compared studies:
            ``commonest_text of RUN``, for each run with a text that occurs twice, and ``normal_report``.
    """

    result: SystemComparison
    studies: Table
    runs: Sequence[SystemRun]
    scored: Sequence[MetricRuns]
    errors: tuple[str, ...] = ()
    usage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    texts: Mapping[str, DistinctTexts] = field(default_factory=dict)
    constants: Mapping[str, Mapping[str, ConstantEntry]] = field(default_factory=dict)

    def text_entries(self) -> dict[str, Any]:
        """Return ``texts`` and ``constant_texts`` as dicts, texts and numbers; without those that are empty."""
        entries = {
            "texts": {name: found.to_dict() for name, found in self.texts.items()},
            "constant_texts": self.constants,
        }
        return {name: entry for name, entry in entries.items() if entry}

    def report_columns(self) -> dict[str, list[Any]]:
        """Return the score of each study by each metric and system, ``None`` for studies that are left out."""
        return self.result.all_reports.report_columns(len(self.studies))


def compare_tables(
    tables: Sequence[str | Path],
    metrics: Mapping[str, ReportMetric] | Sequence[str] = (),
    *,
    prediction_columns: Sequence[str] = (),
    columns: PairColumns = PairColumns(),  # noqa: B008 (frozen)
    settings: CompareSettings = CompareSettings(),  # noqa: B008 (frozen)
    format: str | None = None,  # noqa: A002
    log: RunLog | None = None,
) -> TableComparison:
    r"""Compare systems whose reports are in tables, as :func:`~rrg_rewards.analysis.compare_systems`.

    All tables must have the same studies with the same references, in the same order, or a column that names the
    studies (``columns.key``). References, context columns and groups are read from the first table, or from
    ``columns.references``.

    Args:
        tables: A table for each system, as ``TABLE`` or ``NAME=TABLE``; equal names are runs of one system. Or one
            table with a column of predictions for each system.
        metrics: Metrics by name, or names as in :func:`~rrg_rewards.metrics.make_metric`; none if only
            ``settings.scores`` are compared.
        prediction_columns: Column of predictions in each table, or, with one table, a column for each system, as
            ``COLUMN`` or ``NAME=COLUMN``. Default: ``prediction``.
        columns: Where the tables have references and context; its ``prediction_column`` is not used.
        settings: Scores, groups, baseline, bootstrap and permutations.
        format: Format of tables with an unknown ending.
        log: Receives notes, warnings and progress.

    Raises:
        SettingError: If the settings do not name at least two systems, or contradict each other.
        TableError: If a table is malformed, lacks a column, or has other studies than the first.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for name, text in (("a", "No effusion."), ("b", "Small effusion.")):
        ...         _ = Path(folder, f"{name}.csv").write_text(f"prediction,reference\n{text},Small effusion.\n")
        ...     paths = [Path(folder, "a.csv"), Path(folder, "b.csv")]
        ...     found = compare_tables(paths, ["rouge"], settings=CompareSettings(bootstrap=0, permutations=0))
        >>> found.report_columns()
        {'rouge of a': [0.5], 'rouge of b': [1.0]}
    """
    log = log or RunLog()
    made = metrics_by_name(metrics)
    reading = _Reading(columns, settings.scores, bool(made), format)
    studies, runs = reading.read(tables, prediction_columns or ("prediction",))
    systems = list(dict.fromkeys(run.system for run in runs))
    if settings.baseline is not None and settings.baseline not in systems:
        raise SettingError("baseline", f"{settings.baseline!r} is not among {', '.join(systems)}")
    by = _groups(studies, settings.by, log)
    counts: dict[str, PairCounts] = {}
    usage = RunUsage({name: metric.judges() for name, metric in made.items()})
    with usage.noted(log):
        given = _given_scores(runs, settings, made)
        readers = _readers(studies, runs, made, columns, log)
        # Each reader has one batch.
        batches = [batch for reader in readers.values() for batch in reader]
        scored = [*scored_runs(batches, runs, made, counts, log), *given]
        warn_of_failures(counts, log)
        with log.progress("comparing") as progress:
            result = compare_runs(
                scored,
                baseline=settings.baseline,
                by=by,
                num_resamples=settings.bootstrap,
                num_permutations=settings.permutations,
                seed=settings.seed,
                progress=progress,
            )
        constants = _constants(readers, made, result, settings, log)
    texts = {name: reader.distinct for name, reader in readers.items()}
    return TableComparison(result, studies, runs, scored, all_errors(counts), usage.by_user(), texts, constants)


def _groups(studies: Table, by: Sequence[str], log: RunLog) -> dict[str, list[str | None]]:
    """Return the group of each study by the columns ``by``; warn of studies without a group."""
    groups = {}
    studies.check_named("by", *by)
    for column in by:
        names = [None if is_missing(cell) else str(cell) for cell in studies.column(column)]
        if missing := names.count(None):
            log.warn(f"{missing} of {len(names)} studies have no {column} and belong to none of its groups")
        groups[column] = names
    return groups


class _Once(RunLog):
    """A log that shows each warning once, because all systems have the same references."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._shown: set[str] = set()
        self.progress = log.progress  # type: ignore[method-assign]

    def note(self, text: str) -> None:
        self._log.note(text)

    def warn(self, text: str) -> None:
        if text not in self._shown:
            self._log.warn(text)
        self._shown.add(text)


def _readers(
    studies: Table,
    runs: Sequence[SystemRun],
    metrics: Mapping[str, ReportMetric],
    columns: PairColumns,
    log: RunLog,
) -> dict[str, PairReader]:
    """Return the checked reports of each run by its name; none without metrics."""
    once = _Once(log)
    readers: dict[str, PairReader] = {}
    for run in runs if metrics else ():
        reader = PairReader(replace(columns, prediction_column=run.column), [studies], metrics, run.source)
        reader.check(once)
        readers[run.name] = reader
    return readers


def _constants(
    readers: Mapping[str, PairReader],
    metrics: Mapping[str, ReportMetric],
    result: SystemComparison,
    settings: CompareSettings,
    log: RunLog,
) -> dict[str, dict[str, ConstantEntry]]:
    """Return the value of each metric by text that is the same for every study, on the compared studies."""
    chosen = chosen_metrics(metrics, settings.constant_text)
    texts: dict[str, str] = {}
    for name, reader in readers.items() if settings.constant_text != "none" else ():
        for text in constant_texts(reader.distinct, reader):
            texts.setdefault(text.name if text.name == "normal_report" else f"{text.name} of {name}", text.text)
    if not texts:
        return {}
    note_left_out(metrics, settings.constant_text, log)
    reader = next(iter(readers.values()))
    (batch,) = reader
    context = {name: batch.context[name] for name in chosen}
    batches = [
        ConstantBatch(batch.table, [text] * len(batch.table), batch.references, context, ConstantText(name, text))
        for name, text in texts.items()
    ]
    rows = {one.metric: one.rows for one in result.all_reports.metrics}
    totals = ConstantTotals()
    with log.progress("scoring constant texts") as progress:
        progress(0, len(texts) * len(chosen) * reader.rows)
        for constant, scores in score_batches(metrics, batches, progress):
            assert isinstance(constant, ConstantBatch)
            totals.add(constant.text, {name: one.take(rows[name]) for name, one in scores.items()})
    return totals.values()


def scored_runs(
    batches: Sequence[PairBatch],
    runs: Sequence[SystemRun],
    metrics: Mapping[str, ReportMetric],
    counts: dict[str, PairCounts],
    log: RunLog,
) -> list[MetricRuns]:
    """Return the scores of all runs by each metric.

    Args:
        batches: The report pairs of each run.
        runs: The runs.
        metrics: The metrics by name.
        counts: Receives the outcomes of each metric and system.
        log: Receives the progress.
    """
    with log.progress("scoring") as progress:
        progress(0, len(metrics) * sum(len(batch.table) for batch in batches))
        scored = [one for _, one in score_batches(metrics, batches, progress)]
    compared = []
    for name, metric in metrics.items():
        scores = [one[name] for one in scored]
        for run, own in zip(runs, scores, strict=True):
            counts.setdefault(f"{name} of {run.system}", PairCounts()).add(own)
        compared.append(MetricRuns(name, _by_system(runs, scores), metric.higher_is_better, metric.signature, metric))
    return compared


def _by_system(runs: Sequence[SystemRun], scores: Sequence[Scores]) -> dict[str, list[Scores]]:
    systems: dict[str, list[Scores]] = {}
    for run, own in zip(runs, scores, strict=True):
        systems.setdefault(run.system, []).append(own)
    return systems


def _given_scores(
    runs: Sequence[SystemRun], settings: CompareSettings, metrics: Mapping[str, ReportMetric]
) -> list[MetricRuns]:
    names, lower = list(runs[0].scores), settings.lower_is_better
    if unknown := [name for name in lower if name not in names]:
        raise SettingError("lower_is_better", f"{unknown[0]!r} is not among the `scores` {','.join(names)}")
    if twice := [name for name in names if name in metrics]:
        raise SettingError("scores", f"{twice[0]!r} is also a metric of `metrics`")
    return [MetricRuns(name, _by_system(runs, [run.scores[name] for run in runs]), name not in lower) for name in names]


@dataclass(frozen=True)
class _Reading:
    """Reads the tables of all systems, and checks that they have the same studies."""

    columns: PairColumns
    scores: Sequence[str]
    has_metrics: bool
    format: str | None

    def read(self, tables: Sequence[str | Path], prediction_columns: Sequence[str]) -> tuple[Table, list[SystemRun]]:
        """Return the studies with the predictions of all runs, and the runs."""
        named = [_named(text) for text in tables]
        predictions = [_named(text) for text in prediction_columns]
        if len(named) > 1 and len(predictions) > 1:
            raise SettingError("prediction_column", "may be repeated with one table only; got several tables")
        if len(named) == 1 and len(predictions) < 2:
            raise SettingError(
                None,
                "one table needs several columns in `prediction_column`, one for each system; or name several tables",
            )
        if len(named) == 1 and self.columns.key is not None and self.columns.references is None:
            raise SettingError("key", "needs several tables, or `references`")
        if len(named) > 1:
            return self._from_tables(named, predictions[0][1])
        return self._from_columns(named[0][1], predictions)

    def _table(self, path: str | Path) -> Table:
        table = read_table(path, self.format)
        if not len(table):
            raise TableError(f"{path}: has no rows")
        return table

    def _from_columns(self, path: str, predictions: Sequence[tuple[str | None, str]]) -> tuple[Table, list[SystemRun]]:
        """Read one table with a column of predictions for each run."""
        table = self._table(path)
        if self.columns.references is not None:
            table = self._with_truth(table, self.columns.references, [column for _, column in predictions])
        twice = [column for column, times in Counter(column for _, column in predictions).items() if times > 1]
        if twice:
            raise SettingError("prediction_column", f"{twice[0]!r} is named more than once")
        runs = []
        systems = [name or column for name, column in predictions]
        for system, name, (_, column) in zip(systems, _run_names(systems), predictions, strict=True):
            run = SystemRun(system, name, column, path)
            if self.has_metrics:
                table.check_named("prediction_column", column)
                table.texts(column, self.columns.missing_section)
            for score in dict.fromkeys(self.scores):
                if _PLACEHOLDER not in score:
                    raise SettingError(
                        "scores",
                        f"with one table, {score!r} must contain {_PLACEHOLDER}, which stands for the column of "
                        "`prediction_column`",
                    )
                named = score.replace(_PLACEHOLDER, "").strip("_-. ") or score
                if named in run.scores:
                    raise SettingError("scores", f"two columns have the name {named!r}")
                run.scores[named] = _scores(table, score.replace(_PLACEHOLDER, column), range(len(table)))
            runs.append(run)
        return table, runs

    def _with_truth(self, table: Table, references: str | Path, predictions: Sequence[str]) -> Table:
        """Return the table of references with the columns of predictions and scores of a table."""
        truth = self._table(references)
        rows = self._matching_rows(truth, table)
        names = [name.replace(_PLACEHOLDER, column) for name in self.scores for column in predictions]
        table.check_named("scores", *names)
        texts = [part for name in predictions if self.has_metrics for part in table.text_columns(name)]
        kept = [name for name in dict.fromkeys((*predictions, *texts, *names)) if name in table.columns]
        if both := [name for name in kept if name in truth.columns]:
            raise TableError(f"{table.source} and {truth.source} both have a column {both[0]!r}; rename one of them")
        return truth.with_columns({name: [table.columns[name][row] for row in rows] for name in kept})

    def _from_tables(self, named: Sequence[tuple[str | None, str]], column: str) -> tuple[Table, list[SystemRun]]:
        """Read a table for each run; the first has the references and all other columns of the studies."""
        systems = _system_names(named)
        tables = [self._table(path) for _, path in named]
        first = tables[0] if self.columns.references is None else self._table(self.columns.references)
        runs: list[SystemRun] = []
        predictions: dict[str, list[str | None]] = {}
        for system, name, (_, path), table in zip(systems, _run_names(systems), named, tables, strict=True):
            rows = self._matching_rows(first, table)
            run = SystemRun(system, name, f"{column} of {name}", path)
            if self.has_metrics:
                table.check_named("prediction_column", column)
                texts = table.texts(column, self.columns.missing_section)
                predictions[run.column] = [texts[row] for row in rows]
            run.scores = {score: _scores(table, score, rows) for score in self.scores}
            runs.append(run)
        dropped = (column, *self.scores) if self.columns.references is None else ()
        kept = {name: cells for name, cells in first.columns.items() if name not in dropped}
        return replace(first, columns={**kept, **predictions}, types={}), runs

    def _matching_rows(self, first: Table, other: Table) -> Sequence[int]:
        """Return the row of a table that has the study of each row of the first; raise if the studies differ."""
        if other is first:
            return range(len(first))
        key = self.columns.key
        if self.columns.references is not None:
            key, first_key = self.columns.keys
            return matching_rows(first, first_key, other, key)
        rows = range(len(other)) if key is None else matching_rows(first, key, other, key)
        if len(rows) != len(first):
            raise TableError(
                f"{other.source}: has {len(other)} rows, and {first.source} has {len(first)}; all tables must have the "
                "same studies in the same order, or a column that names them: `key`"
            )
        reference = self.columns.reference_column or "reference"
        if not first.has_texts(reference) and key is None:
            raise TableError(
                f"{first.source}: has no column of references, so that nothing shows whether all tables have the same "
                "studies; name a column of studies: `key`"
            )
        if first.has_texts(reference) and (other.has_texts(reference) or key is None):
            _check_references(first, other, reference, rows)
        return rows


def _named(given: str | Path) -> tuple[str | None, str]:
    """Return name and value of ``NAME=VALUE``; an existing file may contain ``=``."""
    text = str(given)
    name, equals, value = text.partition("=")
    if isinstance(given, Path) or not equals or not name or re.search(r"[/\\]", name) or Path(text).exists():
        return None, text
    return name, value


def _scores(table: Table, column: str, rows: Sequence[int]) -> Scores:
    table.check_named("scores", column)
    values = table.numbers(column)
    return Scores(torch.tensor([values[row] for row in rows], dtype=torch.float64))


def _system_names(named: Sequence[tuple[str | None, str]]) -> list[str]:
    """Return the name of each table's system: the given one, or that of its file."""
    systems = [name or Path(path).stem for name, path in named]
    for system, (name, _) in zip(systems, named, strict=True):
        if name is None and systems.count(system) > 1:
            raise SettingError(
                None,
                f"two tables are named {system!r}; name them, as in a=x/{system}.csv b=y/{system}.csv; tables with an "
                "equal given name are runs of one system",
            )
    return systems


def _run_names(systems: Sequence[str]) -> list[str]:
    """Return the name of the run of each table or column: that of its system, with a number if it has several."""
    numbers = (systems[: place + 1].count(system) for place, system in enumerate(systems))
    return [
        system if systems.count(system) == 1 else f"{system}, run {number}"
        for system, number in zip(systems, numbers, strict=True)
    ]


def _check_references(first: Table, other: Table, name: str, rows: Sequence[int]) -> None:
    ours, theirs = first.texts(name), other.texts(name)
    for row, matching in enumerate(rows):
        if ours[row] != theirs[matching]:
            raise TableError(
                f"{other.where(matching)}, column {name!r}: differs from {first.where(row)}; all systems must have the "
                "same references. If the rows have another order, name a column of studies: `key`"
            )
