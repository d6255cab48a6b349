"""What workers of a Ray cluster do with the rows of tables: scores, labels and answers of judges."""

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rrg_rewards.analysis.answers import AnswerRun
from rrg_rewards.analysis.counting import CountingRun, read_pairs
from rrg_rewards.analysis.evaluating import EvaluationRun, read_sourced_pairs
from rrg_rewards.analysis.grading import GradingRun, read_references
from rrg_rewards.analysis.judge_settings import CountingSettings, EvaluationSettings, GradingSettings
from rrg_rewards.analysis.labelling import LabelSummary, choose_table_labeler
from rrg_rewards.analysis.outcomes import all_errors, failures_counted, warn_of_failures
from rrg_rewards.analysis.pairs import PairReader
from rrg_rewards.analysis.scoring import CONFIDENCE, MetricTotals
from rrg_rewards.analysis.settings import LabelSettings, PairColumns, ScoreSettings
from rrg_rewards.analysis.stored_scores import TOTALS, read_stored, stored_columns
from rrg_rewards.data.tables.table import Table
from rrg_rewards.integrations.ray import refuse_budgets
from rrg_rewards.integrations.ray_cluster import EXTRA, Cluster
from rrg_rewards.integrations.ray_tables import ROW, Notes, TableFiles, TableOutcome, TableWork, run_table
from rrg_rewards.judges.base import Judge, ReportPair
from rrg_rewards.labelers.base import label_reports
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.references import score_batch, signature_with_references
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.settings import SettingError
from rrg_rewards.version import __version__

_FAILURE = "label_failure"


@dataclass(frozen=True, kw_only=True)
class ScoreWork(TableWork):
    """Scores report pairs.

    Args:
        metrics: The metrics by name.
        columns: Where the table has predictions, references and context.
        prefix: Text before the names of new columns.

    Raises:
        SettingError: If scores of a metric depend on the other pairs, or references are in another table.
        ValueError: If a judge counts a budget.
    """

    metrics: Mapping[str, ReportMetric]
    columns: PairColumns = field(default_factory=PairColumns)
    prefix: str = ""

    def __post_init__(self) -> None:
        refuse_budgets(self.metrics)
        if self.columns.references is not None:
            raise SettingError("references", "is a further table; workers need the references in the rows of PAIRS")
        for name, metric in self.metrics.items():
            if metric.depends_on_corpus or not metric.compares_across_batches:
                hint = "; set a prior, as in --set crg.prior=0.2" if name == "crg" else ""
                raise SettingError(
                    "output", f"scores of {name} depend on all pairs, and a worker reads some; write a file{hint}"
                )

    def identity(self) -> dict[str, Any]:
        """Return the signatures of the metrics and the columns."""
        signatures = {name: signature_with_references(one, self.columns.best) for name, one in self.metrics.items()}
        return {"work": "score", "metrics": signatures, "columns": repr(self.columns), "prefix": self.prefix}

    def check(self, batches: Iterable[Table], source: str, log: RunLog) -> None:
        """Raise an error if a row is malformed."""
        PairReader(self.columns, batches, self.metrics, source).check(log)

    def started(self) -> Callable[[Table], Any]:
        """Return the function that scores rows."""
        return self._apply

    def _apply(self, table: Table) -> dict[str, Any]:
        (pairs,) = PairReader(self.columns, [table], self.metrics)
        columns: dict[str, Any] = {}
        with failures_counted():
            for name, metric in self.metrics.items():
                context = pairs.context[name]
                scores = score_batch(metric, pairs.predictions, pairs.references, self.columns.best, context)
                columns.update(stored_columns(name, scores))
        return {self.prefix + name: column for name, column in columns.items()}

    def templates(self, table: Table) -> dict[str, Scores]:
        """Return scores of no pairs, by metric.

        Args:
            table: Any rows of the table.
        """
        empty = Table({name: [] for name in table.names})
        (pairs,) = PairReader(self.columns, [empty], self.metrics)
        return {
            name: score_batch(metric, [], pairs.references, self.columns.best, pairs.context[name])
            for name, metric in self.metrics.items()
        }


def score_files(
    work: ScoreWork,
    files: TableFiles,
    output: str | Path,
    cluster: Cluster = Cluster(),  # noqa: B008 (frozen)
    settings: ScoreSettings = ScoreSettings(),  # noqa: B008 (frozen)
    *,
    log: RunLog | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Score the report pairs of files on a Ray cluster, and return the summary of all pairs.

    Args:
        work: Metrics and columns.
        files: The table.
        output: Folder, as for :func:`~rrg_rewards.integrations.ray_tables.run_table`.
        cluster: Where workers run.
        settings: Bootstrap, seed and batches.
        log: Receives notes and warnings.

    Returns:
        The summary of :func:`~rrg_rewards.analysis.score_table`, without what needs another pass over the texts:
        ``texts``, ``constant_texts`` and ``usage``; and what is
        wrong with each metric whose judge failed on all pairs.
    """
    log = log or RunLog()
    with cluster.connected() as (ray, _):
        outcome = run_table(work, files, output, cluster, batch_size=settings.batch_size, log=log)
        names = _schema(outcome.folder).names
        # A worker may have to load models for them.
        make = ray.remote(num_cpus=0.5, num_gpus=cluster.num_gpus)(ScoreWork.templates)
        templates = ray.get(make.remote(work, Table({name: [] for name in names})))
    totals = {name: MetricTotals(metric) for name, metric in work.metrics.items()}
    for name, template in templates.items():
        for columns in _stored(outcome.folder, work.prefix, name, template, settings.batch_size):
            totals[name].add(read_stored(name, template, columns), template)
    counts = {name: one.counts for name, one in totals.items()}
    warn_of_failures(counts, log, "; see the column {name}_failure")
    summary = {
        "version": __version__,
        "table": str(files.path),
        "prediction_column": work.columns.prediction_column,
        "rows": outcome.rows,
        "bootstrap": {"num_resamples": settings.bootstrap, "confidence": CONFIDENCE, "seed": settings.seed},
        "metrics": {
            name: {
                **one.summary(settings.bootstrap, settings.seed),
                "signature": signature_with_references(work.metrics[name], work.columns.best),
            }
            for name, one in totals.items()
        },
    }
    return summary, all_errors(counts)


def _schema(folder: Path) -> Any:
    data = require("pyarrow.dataset", extra=EXTRA)
    return data.dataset(folder, format="parquet").schema


def _sorted(folder: Path, columns: Sequence[str]) -> Any:
    """Return columns of all rows, in the order of the table."""
    data = require("pyarrow.dataset", extra=EXTRA)
    table = data.dataset(folder, format="parquet").to_table([ROW, *columns])
    return table.sort_by(ROW)


def _stored(folder: Path, prefix: str, name: str, template: Scores, size: int) -> Iterator[dict[str, Any]]:
    """Yield the columns of a metric that its totals need, in batches of the table's order."""
    names = [name, f"{name}.{TOTALS}", *(f"{name}_{detail}" for detail in template.details)]
    failure = f"{name}_failure"
    names += [failure] if prefix + failure in _schema(folder).names else []
    table = _sorted(folder, [prefix + one for one in names])
    for start in range(0, len(table), size):
        batch = table.slice(start, size).combine_chunks()
        yield {one: batch.column(prefix + one).chunk(0) for one in names}


@dataclass(frozen=True, kw_only=True)
class LabelWork(TableWork):
    """Labels reports.

    Args:
        settings: The labeler and the column of the reports.

    Raises:
        SettingError: If the settings are wrong, or choose scans of CT-RATE, which needs all rows.
    """

    settings: LabelSettings

    def __post_init__(self) -> None:
        if self.settings.chooses_scans:
            raise SettingError("key", "scans are chosen among all rows, and a worker reads some; write a file")
        choose_table_labeler(self.settings)

    def identity(self) -> dict[str, Any]:
        """Return the signature of the labeler and the columns."""
        signature = choose_table_labeler(self.settings).signature
        return {
            "work": "label",
            "labeler": signature,
            "text": self.settings.text_column,
            "prefix": self.settings.prefix,
        }

    def check(self, batches: Iterable[Table], source: str, log: RunLog) -> None:
        """Raise an error if a row is malformed."""
        blank = rows = 0
        for table in batches:
            texts = table.texts(self.settings.text_column)
            rows, blank = rows + len(table), blank + sum(text is None or not text.strip() for text in texts)
        if blank:
            log.warn(f"{blank} of {rows} reports of {source} are missing or blank: their label cells are empty")

    def started(self) -> Callable[[Table], Any]:
        """Load the labeler, and return the function that labels rows."""
        labeler = choose_table_labeler(self.settings)

        def label(table: Table) -> dict[str, Any]:
            arrow = require("pyarrow", extra=EXTRA)
            texts = {
                row: text for row, text in enumerate(table.texts(self.settings.text_column)) if (text or "").strip()
            }
            found = label_reports(labeler, [text or "" for text in texts.values()])
            cells: list[Sequence[int | None]] = [(None,) * len(labeler.labels)] * len(table)
            reasons: list[str | None] = [None] * len(table)
            failures = found.failures or (None,) * len(texts)
            for row, labels, failure in zip(texts, found.labels.int().tolist(), failures, strict=True):
                if failure is None:
                    cells[row] = labels
                else:
                    reasons[row] = f"{failure.kind}: {failure.reason}"
            columns = {
                name: arrow.array([one[place] for one in cells], arrow.int64())
                for place, name in enumerate(labeler.labels)
            }
            if found.failures is not None:
                columns[_FAILURE] = arrow.array(reasons, arrow.string())
            return {self.settings.prefix + name: column for name, column in columns.items()}

        return label


def label_files(
    work: LabelWork,
    files: TableFiles,
    output: str | Path,
    cluster: Cluster = Cluster(),  # noqa: B008 (frozen)
    *,
    log: RunLog | None = None,
) -> LabelSummary:
    """Label the reports of files on a Ray cluster, and return what was labelled.

    Args:
        work: The labeler and the column of the reports.
        files: The table.
        output: Folder, as for :func:`~rrg_rewards.integrations.ray_tables.run_table`.
        cluster: Where workers run.
        log: Receives notes and warnings.
    """
    outcome = run_table(work, files, output, cluster, batch_size=work.settings.batch_size, log=log)
    labeler, prefix = choose_table_labeler(work.settings), work.settings.prefix
    compute = require("pyarrow.compute", extra=EXTRA)
    has_failures = prefix + _FAILURE in _schema(outcome.folder).names
    names = [prefix + label for label in labeler.labels]
    table = _sorted(outcome.folder, [*names, *([prefix + _FAILURE] if has_failures else [])])
    reasons = table.column(prefix + _FAILURE).drop_null().to_pylist() if has_failures else []
    return LabelSummary(
        source=str(files.path),
        rows=outcome.rows,
        text_column=work.settings.text_column,
        labeler=labeler.signature,
        labelled=len(table) - table.column(names[0]).null_count,
        failed=dict(sorted(Counter(reason.partition(":")[0] for reason in reasons).items())),
        positives={
            label: compute.sum(table.column(name)).as_py() or 0
            for label, name in zip(labeler.labels, names, strict=True)
        },
        errors=(f"no report has labels; the first failure: {reasons[0]}",)
        if reasons and table.column(names[0]).null_count == len(table)
        else (),
    )


@dataclass(frozen=True, kw_only=True)
class JudgeWork(TableWork):
    """Asks a judge about rows; a row is done if all its items have an answer.

    Args:
        judge: The judge.
        settings: Settings of the task.

    Raises:
        SettingError: If the judge counts a budget.
    """

    judge: Judge
    settings: Any

    name: ClassVar[str]
    """Name of the task."""

    # An answer of a language model is expensive.
    block_bytes = 2**16
    writes_lines = True

    def __post_init__(self) -> None:
        if self.judge.has_budget:
            raise SettingError("judge", "its budget is counted in one process; leave out the budget, or --engine ray")

    @abstractmethod
    def read(self, table: Table, log: RunLog) -> Any:
        """Return the items of rows that go to the judge; empty if there are none."""

    @abstractmethod
    def run(self, items: Any) -> AnswerRun[Any, Any]:
        """Return the run for what :meth:`read` returns."""

    def identity(self) -> dict[str, Any]:
        """Return the judge and the settings."""
        return {"work": self.name, "judge": self.judge.signature, "settings": repr(self.settings)}

    def check(self, batches: Iterable[Table], source: str, log: RunLog) -> None:
        """Raise an error if a row is malformed, and warn of rows that lack a report."""
        blank = rows = 0
        for table in batches:
            self.read(table, Notes())
            rows += len(table)
            blank += sum(not self.read(row, Notes()) for row in _single_rows(table))
        if blank:
            log.warn(f"{blank} of {rows} rows of {source} lack a report, and are left out")

    def started(self) -> Callable[[Table], Any]:
        """Return the function that sends rows to the judge."""
        return self._apply

    def _apply(self, table: Table) -> dict[str, Any]:
        arrow = require("pyarrow", extra=EXTRA)
        items = [list(self.run(self.read(row, Notes())).items) for row in _single_rows(table)]
        run = self.run(self.read(table, Notes()))
        answers = {item: json.dumps(line, ensure_ascii=False) for item, line in run.answers().items()}
        written: set[Any] = set()
        lines = []
        for own in items:
            # Equal items have one line.
            lines.append([answers[item] for item in own if item in answers and item not in written])
            written.update(own)
        return {
            "lines": arrow.array(lines, arrow.list_(arrow.string())),
            "done": [all(item in answers for item in own) for own in items],
            "failures": (dict(run.failures), run.reasons),
        }


def _single_rows(table: Table) -> Iterator[Table]:
    for row in range(len(table)):
        yield Table({name: [table.columns[name][row]] for name in table.names})


@dataclass(frozen=True, kw_only=True)
class EvaluationWork(JudgeWork):
    """Evaluates report pairs for CRIMSON, as ``rrg-rewards judge label``.

    Args:
        settings: Columns, prompt and checks.
    """

    settings: EvaluationSettings = field(default_factory=EvaluationSettings)
    name = "judge label"

    def read(self, table: Table, log: RunLog) -> dict[ReportPair, str]:
        """Return the pairs, with the source of each candidate."""
        return read_sourced_pairs(table, self.settings, log)[0]

    def run(self, items: dict[ReportPair, str]) -> EvaluationRun:
        """Return the run for pairs."""
        return EvaluationRun(items, "-", self.judge, self.settings)


@dataclass(frozen=True, kw_only=True)
class CountingWork(JudgeWork):
    """Counts errors of report pairs, as ``rrg-rewards count``.

    Args:
        settings: Columns and source.
    """

    settings: CountingSettings = field(default_factory=CountingSettings)
    name = "count"

    def read(self, table: Table, log: RunLog) -> list[ReportPair]:
        """Return the pairs."""
        return read_pairs(table, self.settings, log)

    def run(self, items: list[ReportPair]) -> CountingRun:
        """Return the run for pairs."""
        return CountingRun(items, "-", self.judge, self.settings)


@dataclass(frozen=True, kw_only=True)
class GradingWork(JudgeWork):
    """Writes reports of graded quality, as ``rrg-rewards grade``.

    Args:
        settings: Column, scoring system and tiers.
    """

    settings: GradingSettings = field(default_factory=GradingSettings)
    name = "grade"

    def read(self, table: Table, log: RunLog) -> list[str]:
        """Return the references."""
        return read_references(table, self.settings, log)

    def run(self, items: list[str]) -> GradingRun:
        """Return the run for references."""
        return GradingRun(items, "-", self.judge, self.settings)


def judge_files(
    work: JudgeWork,
    files: TableFiles,
    output: str | Path,
    cluster: Cluster = Cluster(),  # noqa: B008 (frozen)
    *,
    batch_size: int = 256,
    log: RunLog | None = None,
) -> TableOutcome:
    """Let a judge answer about the rows of files on a Ray cluster; each worker sends requests of its own.

    Args:
        work: The judge and its task.
        files: The table.
        output: Folder, as for :func:`~rrg_rewards.integrations.ray_tables.run_table`; its files are JSON lines.
        cluster: Where workers run.
        batch_size: Number of rows about which a worker asks at the same time.
        log: Receives notes, and warnings of failures.
    """
    log = log or RunLog()
    outcome = run_table(work, files, output, cluster, batch_size=batch_size, log=log)
    for kind, count in outcome.failures.items():
        log.warn(f"{count} failed with {kind}; the first: {outcome.reasons[kind]}")
    if missing := outcome.rows - outcome.done:
        log.note(f"{missing} rows have no answer yet; repeat the command to request them")
    return outcome


def outcome_summary(outcome: TableOutcome, judge: Judge) -> dict[str, Any]:
    """Return the counts of a run of a judge, as plain data."""
    return {"version": __version__, "judge": judge.signature, **asdict(outcome), "folder": str(outcome.folder)}
