"""Scores of tables of report pairs: streamed, per pair and over the corpus, with bootstrap intervals."""

import math
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.analysis.batch_scoring import score_batches
from rrg_rewards.analysis.constant_text import (
    ConstantBatch,
    ConstantTotals,
    chosen_metrics,
    constant_entries,
    constant_texts,
    note_left_out,
    with_constant_texts,
)
from rrg_rewards.analysis.corpus_statistics import StatisticRows
from rrg_rewards.analysis.input_tables import TableSink, with_new_columns
from rrg_rewards.analysis.metric_choice import metrics_by_name
from rrg_rewards.analysis.outcomes import PairCounts, RunUsage, all_errors, warn_of_failures
from rrg_rewards.analysis.report_pairs import PairBatch, PairReader, opened_pairs
from rrg_rewards.analysis.settings import PairColumns, ScoreSettings
from rrg_rewards.data.tables.table import Table
from rrg_rewards.functional.bootstrap import bootstrap_interval
from rrg_rewards.functional.crg import crg_label_weights, label_table, macro_youden_j, prevalences
from rrg_rewards.functional.label_counts import LabelCounts, label_statistics, macro_statistics
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.crg import LabelScores
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.run_log import RunLog
from rrg_rewards.utilities.worker_pool import one_thread
from rrg_rewards.version import __version__

CONFIDENCE = 0.95


def score_table(
    table: str | Path,
    metrics: Mapping[str, ReportMetric] | Sequence[str],
    *,
    columns: PairColumns = PairColumns(),  # noqa: B008 (frozen)
    settings: ScoreSettings = ScoreSettings(),  # noqa: B008 (frozen)
    output: str | Path | None = None,
    overwrite: bool = False,
    log: RunLog | None = None,
) -> dict[str, Any]:
    r"""Score the report pairs of a table, and return the corpus value of each metric with its bootstrap interval.

    The table is read once, in batches: all rows are checked and kept in a temporary file, from which they are scored.
    Memory does not grow with the table, except by the sufficient statistics of each pair, from which the interval is
    computed: 8 bytes for a score, and by 16 bytes for the hashes of both texts, from which distinct texts are counted.

    Metrics by rules are also computed for texts that are the same for every study: the commonest text of the system if
    it occurs twice, and a normal chest report if the references are of chest CTs or radiographs.
    ``settings.constant_text`` says for which metrics.

    A pair with a missing prediction, or a missing or blank reference, is unscorable: its cells are empty, and it is
    counted and left out of the corpus value.

    Args:
        table: Path of a table (``.csv``, ``.tsv``, ``.jsonl``, ``.parquet``, ``.json``).
        metrics: Metrics by name, or names as in :func:`~rrg_rewards.metrics.make_metric`.
        columns: Where the table has predictions, references and context.
        settings: Bootstrap, seed and batches.
        output: Table to write, with the columns of the input, and the score, its parts and explanations for each pair.
            If the run fails, the rows scored so far are kept in ``NAME.partial.csv``.
        overwrite: Whether to replace ``output`` if it exists.
        log: Receives notes, warnings and progress.

    Returns:
        The summary: ``rows``, ``texts`` (:meth:`~rrg_rewards.analysis.DistinctTexts.to_dict`), and in ``metrics``, for
        each metric, ``value``, ``interval`` (95 %), ``higher_is_better``, ``scored``, ``unscorable``, the ``means`` of
        the parts, and the ``signature``; ``constant_texts``, the value and the number of scored pairs if every study
        has the ``commonest_text`` of the system or a ``normal_report``; with a
        judge that counts it, its ``usage`` (:class:`~rrg_rewards.judges.server.usage.Usage`), at the first metric of
        those that share the judge; with a cascade, ``judged_by``, the number of pairs of each judge; for metrics of
        labels also ``counts``, ``statistics``, ``labels`` and ``best_constant``. Undefined numbers are ``None``.

    Raises:
        SettingError: If a setting is wrong or contradicts another.
        TableError: If the table is malformed or lacks a column. The message names the row.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "pairs.csv"
        ...     _ = path.write_text("prediction,reference\nEnlarged heart.,Cardiomegaly.\nNormal.,Hiatal hernia.\n")
        ...     summary = score_table(path, ["crg"], settings=ScoreSettings(bootstrap=0))
        >>> summary["rows"], summary["metrics"]["crg"]["value"]
        (2, 0.5)
    """
    log = log or RunLog()
    sink = None if output is None else TableSink(str(output), overwrite=overwrite)
    with opened_pairs(table, metrics_by_name(metrics), columns, settings.batch_size, sink=sink, log=log) as pairs:
        scoring = Scoring(pairs, settings, log=log)
        scoring.run(sink)
    return scoring.summary()


class Scoring:
    """A run that scores report pairs once, batch by batch: of a file, a data frame, or a block of a Ray cluster.

    Args:
        pairs: The report pairs.
        settings: Bootstrap, seed, workers and prefix of new columns.
        keep: Receives each batch with its scores.
        log: Receives notes, warnings and progress.
    """

    def __init__(
        self,
        pairs: PairReader,
        settings: ScoreSettings,
        *,
        keep: Callable[[PairBatch, Mapping[str, Scores]], None] | None = None,
        log: RunLog | None = None,
    ) -> None:
        self._pairs = pairs
        self._settings = settings
        self._keep = keep
        self._log = log or RunLog()
        self._totals = {name: MetricTotals(metric) for name, metric in pairs.metrics.items()}
        self._counts = {name: totals.counts for name, totals in self._totals.items()}
        self._usage = RunUsage({name: metric.judges() for name, metric in pairs.metrics.items()})
        self._constants = ConstantTotals()
        self.is_complete = False
        """Whether all pairs are scored."""

    def run(self, sink: TableSink | None = None) -> None:
        """Score all pairs, and write their table.

        If the table cannot be written, the other pairs are scored nevertheless, and the error is raised at the end. If
        scoring fails, the rows scored so far are kept.

        Args:
            sink: The table to write.
        """
        if sink is None:
            deque(self._scored(), maxlen=0)
            return
        if self._relative:
            self._log.note(
                f"{sink.path} is written after the last row, because scores of {', '.join(self._relative)} depend "
                "on all references; a prior, as in `set=crg.prior=0.2`, makes them independent"
            )
        sink.write(self.tables(), self._pairs.types, "scores", self._pairs.rows, self._log)

    def tables(self) -> Iterator[Table]:
        """Score all pairs, and yield the rows of the table with the columns of scores.

        If scores depend on all pairs, they are yielded at the end, also if scoring failed after some rows.
        """
        if not self._relative:
            for table, scores in self._scored():
                yield self._with_columns(table, scores)
            return
        failure: BaseException | None = None
        batches = 0
        with TemporaryFile() as kept:
            try:
                for _, scores in self._scored():
                    pickle.dump(scores, kept)
                    batches += 1
            except (Exception, KeyboardInterrupt) as error:
                failure = error
            kept.seek(0)
            # The input has more batches if scoring failed, and without any there is nothing to rescale.
            rescaling = self.rescaling() if batches else {}
            for _, table in zip(range(batches), self._pairs.batches, strict=False):
                relative: dict[str, Scores] = pickle.load(kept)
                final = {name: rescaling[name](own) if name in rescaling else own for name, own in relative.items()}
                yield self._with_columns(table, final)
        if failure is not None:
            raise failure

    def summary(self) -> dict[str, Any]:
        """Return the summary that :func:`score_table` describes; warn of failures of judges."""
        warn_of_failures(self._counts, self._log, "; the column {name}_failure of `output` gives all reasons")
        bootstrap, seed = self._settings.bootstrap, self._settings.seed
        constants = self._constants.values()
        return {
            "version": __version__,
            "table": self._pairs.source,
            "prediction_column": self._pairs.columns.prediction_column,
            "reference_column": self._pairs.reference_column,
            "rows": self._pairs.rows,
            "texts": self._pairs.distinct.to_dict(),
            "bootstrap": {"num_resamples": bootstrap, "confidence": CONFIDENCE, "seed": seed},
            "metrics": {
                name: {
                    **totals.summary(bootstrap, seed),
                    **constant_entries(name, constants),
                    **({"usage": usage} if (usage := self._usage.to_dict(name)) else {}),
                    "signature": self._pairs.metrics[name].signature,
                }
                for name, totals in self._totals.items()
            },
        }

    @property
    def has_scores(self) -> bool:
        """Whether any metric has scored a pair."""
        return any(one.scored for one in self._counts.values())

    def errors(self) -> tuple[str, ...]:
        """Return why no pair has a score, and what is wrong with metrics that have none because their judge failed."""
        failed = all_errors(self._counts)
        return failed if failed or self.has_scores else (self._pairs.unscorable(),)

    def rescaling(self) -> dict[str, Callable[[Scores], Scores]]:
        """Return, for each metric whose scores depend on all pairs, the function that computes the final scores."""
        return {name: self._pairs.metrics[name].rescaling(self._totals[name].statistics) for name in self._relative}

    @property
    def _relative(self) -> list[str]:
        """Metrics whose scores depend on all pairs of the corpus."""
        return [name for name, metric in self._pairs.metrics.items() if not metric.compares_across_batches]

    def _scored(self) -> Iterator[tuple[Table, dict[str, Scores]]]:
        """Score the batches, and after each the texts that are the same for every study; add them to the totals."""
        pairs, choice = self._pairs, self._settings.constant_text
        with self._usage.noted(self._log), self._log.progress("scoring") as progress:
            texts = [] if choice == "none" else constant_texts(pairs.distinct, pairs)
            if texts:
                note_left_out(pairs.metrics, choice, self._log)
            chosen = chosen_metrics(pairs.metrics, choice)
            progress(0, pairs.rows * (len(pairs.metrics) + len(chosen) * len(texts)))
            batches = with_constant_texts(pairs, texts, chosen)
            scored = score_batches(pairs.metrics, batches, progress, self._settings.workers)
            for batch, scores in scored:
                if isinstance(batch, ConstantBatch):
                    self._constants.add(batch.text, scores)
                    continue
                for name, totals in self._totals.items():
                    totals.add(scores[name])
                if self._keep is not None:
                    self._keep(batch, scores)
                yield batch.table, scores
        self.is_complete = True

    def _with_columns(self, table: Table, scores: Mapping[str, Scores]) -> Table:
        columns: dict[str, list[Any]] = {}
        types: dict[str, str] = {}
        for name, own in scores.items():
            cells = per_report_columns(name, own)
            columns.update(cells)
            # The score and its parts come first, then explanations. A batch may have only missing cells.
            for index, column in enumerate(cells):
                types[column] = "double" if index <= len(own.details) else "string"
        return with_new_columns(table, columns, types, self._settings.prefix, self._log)


def per_report_columns(name: str, scores: Scores) -> dict[str, list[Any]]:
    """Return columns of ``N`` cells: score, parts and explanations. Cells of unscorable pairs are ``None``.

    Args:
        name: Name of the metric, the prefix of the column names.
        scores: Scores of the ``N`` pairs.

    Example:
        >>> nan = float("nan")
        >>> per_report_columns("f1", Scores(torch.tensor([0.5, nan]), {"tp": torch.tensor([1.0, nan])}))
        {'f1': [0.5, None], 'f1_tp': [1.0, None]}
    """
    columns = {name: _cells(scores.value)}
    for detail, values in scores.details.items():
        columns[f"{name}_{detail}"] = _cells(values)
    scored = scores.scored.tolist()
    for explanation, texts in scores.explanations.items():
        # An unscorable pair has no explanation except the reason of a failure.
        columns[f"{name}_{explanation}"] = [
            text if is_scored or text else None for text, is_scored in zip(texts, scored, strict=True)
        ]
    return columns


def _cells(values: Tensor) -> list[Any]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> float | None:
    """Return a number for a summary, ``None`` for NaN."""
    return None if math.isnan(value) else value


class MetricTotals:
    """Corpus value, interval and counts of a metric, from the scores of batches of report pairs.

    The sufficient statistics of each scored pair are kept, because the bootstrap draws pairs: 8 bytes for a score.
    Everything else is summed.

    Args:
        metric: The metric.

    Example:
        >>> from rrg_rewards.metrics import BLEU
        >>> metric = BLEU()
        >>> totals = MetricTotals(metric)
        >>> for report in ("Small left pleural effusion.", "Large left pleural effusion."):
        ...     totals.add(metric.score([report], ["Small left pleural effusion."]))
        >>> summary = totals.summary(num_resamples=100, seed=0)
        >>> round(summary["value"], 3), summary["scored"]
        (0.834, 2)
    """

    def __init__(self, metric: ReportMetric) -> None:
        self._metric = metric
        self._statistics = StatisticRows()
        self._last: Scores | None = None
        self._means: dict[str, tuple[float, int]] = {}
        self._labels: LabelCounts | None = None
        self.counts = PairCounts()

    def add(self, scores: Scores) -> None:
        """Add the scores of a batch."""
        self.counts.add(scores)
        for name, values in scores.details.items():
            total, count = self._means.get(name, (0.0, 0))
            self._means[name] = total + float(values.double().nansum()), count + int((~values.isnan()).sum())
        if isinstance(scores, LabelScores):
            batch = scores.counts(dim=0)
            self._labels = batch if self._labels is None else LabelCounts(*map(torch.add, self._labels, batch))
        self._statistics.add(scores)
        # For the names of labels and for `aggregate`; the texts in explanations are not needed.
        self._last = scores

    @property
    def statistics(self) -> tuple[Tensor, ...]:
        """The sufficient statistics of all scored pairs so far."""
        return self._statistics.tensors()

    @one_thread()
    def summary(self, num_resamples: int, seed: int) -> dict[str, Any]:
        """Return the corpus value with its interval, counts and parts; undefined numbers are ``None``.

        Args:
            num_resamples: Resamples of the bootstrap; 0 for no interval.
            seed: Seed of the bootstrap.
        """
        assert self._last is not None
        value = low = high = float("nan")
        parts: dict[str, Tensor] = {}
        if self.counts.scored:
            statistics = self.statistics
            parts = self._last.corpus_parts(*statistics)
            value = float(self._last.aggregate(*statistics))
            if num_resamples:
                low, high = bootstrap_interval(self._last.aggregate, statistics, num_resamples, CONFIDENCE, seed)
        summary: dict[str, Any] = {
            "value": _number(value),
            "interval": [_number(low), _number(high)],
            "higher_is_better": self._metric.higher_is_better,
            "scored": self.counts.scored,
            "unscorable": self.counts.pairs - self.counts.scored,
            "means": {name: total / count if count else None for name, (total, count) in self._means.items()},
            "signature": self._metric.signature,
        }
        if parts:
            summary["corpus"] = {name: float(part) for name, part in parts.items()}
        if self.counts.failed:
            summary["failed"] = dict(self.counts.failed)
        if self.counts.judged_by:
            summary["judged_by"] = dict(self.counts.judged_by)
        if self._labels is not None and isinstance(self._last, LabelScores):
            summary.update(_label_summary(self._last, self._labels))
        return summary


def _label_summary(scores: LabelScores, counts: LabelCounts) -> dict[str, Any]:
    """Return counts and statistics, pooled and by label, the CRG of each level, and the best constant text.

    With ``average="macro"``, Youden's J is averaged as the score, and each label has its weight.

    Args:
        scores: Scores of any pairs, with the names of the ``L`` labels.
        counts: Counts of each label over all pairs, ``(L,)``.
    """
    pooled = LabelCounts(*(count.sum() for count in counts))
    statistics, table = {**label_statistics(pooled), **macro_statistics(counts)}, label_table(counts)
    if scores.average == "macro":
        statistics["youden_j"] = macro_youden_j(counts, scores.min_prevalence)
        table["weight"] = crg_label_weights(prevalences(counts), scores.min_prevalence)
    cells = {name: _cells(values) for name, values in table.items()}
    best, constant = scores.best_constant_for(counts)
    levels = dict(zip(scores.levels, _cells(scores.level_scores(counts)), strict=True)) if scores.levels else {}
    return {
        **({"levels": levels} if levels else {}),
        "best_constant": {"value": _number(best), "labels": list(constant)},
        "counts": {name: int(count) for name, count in pooled._asdict().items()},
        "statistics": {name: _number(float(value)) for name, value in statistics.items()},
        "labels": [
            {"label": label, **{name: values[row] for name, values in cells.items()}}
            for row, label in enumerate(scores.labels)
        ],
    }
