"""Report metrics in a Lightning validation: exact under any number of processes, with the worst reports at hand."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torchmetrics import MetricCollection

from rrg_rewards.callbacks.samplers import count_misshared
from rrg_rewards.callbacks.step_output import ReportBatch, StepOutput
from rrg_rewards.callbacks.worst_reports import WorstReport, WorstReports, log_table, make_table
from rrg_rewards.data import write_table
from rrg_rewards.metrics.base import ReportMetric, Scores
from rrg_rewards.utilities.processes import gather_objects

__all__ = ["ReportMetricsCallback"]

_Metrics = ReportMetric | MetricCollection | Mapping[str, ReportMetric]


@dataclass
class _LoaderState:
    """What was seen of one data loader in this run of the loop."""

    metrics: dict[str, ReportMetric]
    worst: dict[str, WorstReports]
    num_reports: int = 0


class ReportMetricsCallback(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Scores the reports that ``validation_step`` (or ``test_step``) returns and logs the corpus values.

    The step returns a dict with the candidate and the reference reports of its batch, two lists of texts::

        def validation_step(self, batch, batch_idx):
            return {"prediction": self.generate(batch), "reference": batch["report"]}

    For a batch without reports it returns empty lists; ``None`` is an error, since a forgotten ``return`` looks alike.

    Logged at the end of the epoch, with ``/dataloader_idx_<i>`` behind the name where there are several loaders:
    ``<prefix>/<metric>``, ``<prefix>/<metric>_<statistic>`` for what the metric's ``statistics`` gives, and
    ``<prefix>/<metric>_num_unscorable``. Each metric's states are reduced over processes and the value is computed
    from them, so it is what a single process would give, however unevenly reports are spread. Lightning's own
    validation sampler repeats reports to spread them evenly, and a warning says so: give the loader
    :class:`~rrg_rewards.callbacks.UnpaddedDistributedSampler`. The sanity check runs the metrics and logs nothing.

    The metrics given are never updated: every run of the loop works on clones on the module's device, one for each
    loader.

    **Worst reports.** With ``table_dir`` or ``log_tables`` the ``num_worst`` worst-scored reports of each metric and
    loader are kept with both texts and the score's explanations (labels missed and invented, say), in memory that does
    not grow with the corpus. At the end of the epoch each process sends its own to the others: the one place where
    text crosses processes, all of the same job. Scores of different batches must compare: give
    :class:`~rrg_rewards.metrics.ReportCRG` a ``prior``.

    Args:
        metrics: A report metric, under its own name, or several by name.
        prediction_key: Key of the candidate reports in the step's output.
        reference_key: Key of the reference reports.
        context_keys: Further columns that metrics use, and their keys in the step's output:
            ``{"target_labels": "labels"}`` for every metric, ``{"crg": {"target_labels": "labels"}}`` for one.
        id_key: Key of what identifies a report in the table.
        num_worst: How many reports of each metric and loader the tables hold.
        table_dir: Folder for ``<prefix>_<metric>_worst.csv``, replaced by each validation.
        log_tables: Also hand the tables to loggers that take them (Weights & Biases, MLflow, TensorBoard). Off by
            default: reports are patient data, and a logger may send them to a server.
        prefix: What names start with in validation.
        test_prefix: What names start with in ``trainer.test``.
        prog_bar: Whether the metrics appear in the progress bar.

    Raises:
        TypeError: If something in ``metrics`` is no report metric; in a run, if the step returns no dict.
        ValueError: If there is no metric, ``num_worst`` is not positive, or ``context_keys`` names a metric that is
            not there; in a run, if the step's output lacks a key.

    Example:
        >>> from rrg_rewards.callbacks import ReportMetricsCallback
        >>> from rrg_rewards.metrics import ReportCRG
        >>> callback = ReportMetricsCallback(ReportCRG(prior=0.2), table_dir="tables")
        >>> sorted(callback.metrics)
        ['crg']
    """

    def __init__(
        self,
        metrics: _Metrics,
        *,
        prediction_key: str = "prediction",
        reference_key: str = "reference",
        context_keys: Mapping[str, str | Mapping[str, str]] | None = None,
        id_key: str | None = None,
        num_worst: int = 10,
        table_dir: str | Path | None = None,
        log_tables: bool = False,
        prefix: str = "val",
        test_prefix: str = "test",
        prog_bar: bool = False,
    ) -> None:
        if num_worst < 1:
            raise ValueError(f"num_worst must be positive, got {num_worst}")
        self.metrics = _by_name(metrics)
        self.step_output = StepOutput(prediction_key, reference_key, context_keys or {}, id_key, list(self.metrics))
        self.num_worst = num_worst
        self.table_dir = None if table_dir is None else Path(table_dir)
        self.log_tables = log_tables
        self.prefix = prefix
        self.test_prefix = test_prefix
        self.prog_bar = prog_bar
        self._loaders: dict[int | None, _LoaderState] = {}
        self._warned = False
        if self._keeps_worst:
            self._warn_of_batch_scores()

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Forget what an earlier run saw."""
        self._start(trainer, trainer.val_dataloaders)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
        dataloader_idx: int | None = None,
    ) -> None:
        """Score the reports of a batch. Lightning leaves ``dataloader_idx`` out where there is one loader."""
        self._score(trainer, pl_module, "validation_step", outputs, dataloader_idx)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the corpus values and write the tables."""
        self._finish(trainer, pl_module, self.prefix)

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Forget what an earlier run saw."""
        self._start(trainer, trainer.test_dataloaders)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
        dataloader_idx: int | None = None,
    ) -> None:
        """Score the reports of a batch."""
        self._score(trainer, pl_module, "test_step", outputs, dataloader_idx)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the corpus values and write the tables."""
        self._finish(trainer, pl_module, self.test_prefix)

    @property
    def _keeps_worst(self) -> bool:
        return self.table_dir is not None or self.log_tables

    def _warn_of_batch_scores(self) -> None:
        for name, metric in self.metrics.items():
            if not metric.compares_across_batches:
                rank_zero_warn(
                    f"scores of {name} are relative to their batch, so the worst of several batches are not the worst "
                    "of all; give the metric a fixed setting, as in ReportCRG(prior=0.2)"
                )

    def _start(self, trainer: Trainer, dataloaders: Any) -> None:
        # New clones and not a reset: with ddp_spawn the states of the given metrics lie in memory shared by processes.
        self._loaders = {}
        if trainer.world_size == 1 or self._warned:
            return
        misshared = count_misshared(dataloaders)
        if misshared:
            self._warned = True
            rank_zero_warn(
                f"The distributed sampler repeats or leaves out {misshared} reports so that all {trainer.world_size} "
                "processes get as many: the report metrics are not exact. Give each data loader "
                "`sampler=UnpaddedDistributedSampler(dataset)` from rrg_rewards.callbacks."
            )

    def _loader(self, pl_module: LightningModule, loader: int | None) -> _LoaderState:
        if loader not in self._loaders:
            self._loaders[loader] = _LoaderState(
                metrics={name: _clone(metric, pl_module) for name, metric in self.metrics.items()},
                worst={name: self._no_worst(name) for name in self.metrics},
            )
        return self._loaders[loader]

    def _no_worst(self, name: str) -> WorstReports:
        return WorstReports(self.num_worst, bool(self.metrics[name].higher_is_better))

    def _score(self, trainer: Trainer, pl_module: LightningModule, step: str, outputs: Any, loader: int | None) -> None:
        batch = self.step_output.read(outputs, step)
        if not batch.preds and not batch.target:
            return
        state = self._loader(pl_module, loader)
        for name, metric in state.metrics.items():
            scores = metric.score(batch.preds, batch.target, **batch.context[name])
            metric.add_scores(scores)
            if self._keeps_worst:
                place = (loader or 0, trainer.global_rank, state.num_reports)
                _keep_worst(state.worst[name], scores, batch, place)
        state.num_reports += len(batch)

    def _finish(self, trainer: Trainer, pl_module: LightningModule, prefix: str) -> None:
        if trainer.sanity_checking:
            self._loaders = {}
            return
        # A few rows of text, the only text that crosses processes.
        gathered = gather_objects(
            {
                loader: {name: worst.rows() for name, worst in state.worst.items()}
                for loader, state in self._loaders.items()
            }
        )
        # A process may have seen nothing of a loader that others saw: all log the same names, or reduction would hang.
        seen = sorted({loader for part in gathered for loader in part}, key=lambda loader: loader or 0)
        for loader in seen:
            state = self._loader(pl_module, loader)
            for name, metric in state.metrics.items():
                self._log(pl_module, f"{prefix}/{name}", loader, metric)
        if self._keeps_worst and trainer.is_global_zero:
            for name in self.metrics:
                rows = [row for loader in seen for row in self._worst_of_all(name, loader, gathered)]
                self._write(trainer, prefix, name, rows)
        self._loaders = {}

    def _log(self, pl_module: LightningModule, name: str, loader: int | None, metric: ReportMetric) -> None:
        suffix = "" if loader is None else f"/dataloader_idx_{loader}"
        # Logged at the epoch's end, where Lightning no longer knows the loader, since a process may have had no batch.
        log = partial(pl_module.log, add_dataloader_idx=False, metric_attribute=name)
        # The object and not its value: Lightning calls compute, which reduces the states, and resets it.
        log(f"{name}{suffix}", metric, prog_bar=self.prog_bar)
        # Reduced already, so equal in all processes: the maximum leaves them as they are, where a mean would round.
        for statistic, value in getattr(metric, "statistics", dict)().items():
            log(f"{name}_{statistic}{suffix}", value, reduce_fx="max", sync_dist=True)
        log(f"{name}_num_unscorable{suffix}", metric.num_unscorable.double(), reduce_fx="sum", sync_dist=True)

    def _worst_of_all(
        self, name: str, loader: int | None, gathered: Sequence[Mapping[int | None, Mapping[str, list[WorstReport]]]]
    ) -> list[WorstReport]:
        worst = self._no_worst(name)
        for part in gathered:
            for row in part.get(loader, {}).get(name, []):
                worst.add(row)
        return worst.rows()

    def _write(self, trainer: Trainer, prefix: str, name: str, rows: Sequence[WorstReport]) -> None:
        table = make_table(rows, trainer.current_epoch, trainer.global_step)
        if self.table_dir is not None:
            self.table_dir.mkdir(parents=True, exist_ok=True)
            file_name = f"{prefix}_{name}_worst.csv".replace("/", "_")
            write_table(table, self.table_dir / file_name, overwrite=True)
        if self.log_tables:
            for logger in trainer.loggers:
                log_table(logger, f"{prefix}/{name}_worst", table, trainer.global_step)


def _by_name(metrics: _Metrics) -> dict[str, ReportMetric]:
    if isinstance(metrics, ReportMetric):
        return {metrics.name: metrics}
    if not isinstance(metrics, Mapping | MetricCollection):
        raise TypeError(f"metrics must be a report metric or several by name, got {type(metrics).__name__}")
    named: dict[str, ReportMetric] = {}
    for name, metric in metrics.items():
        if not isinstance(metric, ReportMetric):
            raise TypeError(f"metrics[{name!r}] must be a report metric, got {type(metric).__name__}")
        named[str(name)] = metric
    if not named:
        raise ValueError("metrics must hold at least one metric")
    return named


def _clone(metric: ReportMetric, pl_module: LightningModule) -> ReportMetric:
    clone: ReportMetric = copy.deepcopy(metric)
    clone.reset()
    return clone.to(pl_module.device)


def _keep_worst(worst: WorstReports, scores: Scores, batch: ReportBatch, place: tuple[int, int, int]) -> None:
    loader, rank, first = place
    explanations = scores.explanations
    rows = zip(scores.value.tolist(), batch.identifiers, batch.target, batch.preds, strict=True)
    for row, (score, identifier, reference, prediction) in enumerate(rows):
        if worst.takes(score):
            why = {kind: texts[row] for kind, texts in explanations.items()}
            name = None if identifier is None else str(identifier)
            worst.add(WorstReport(score, loader, rank, first + row, name, reference, prediction, why))
