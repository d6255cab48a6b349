"""Scoring on several machines: functions of batches for Ray Data and ``datasets.map``, and actors that keep order."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from rrg_rewards.analysis.outcomes import RunUsage
from rrg_rewards.analysis.pairs import PairBatch
from rrg_rewards.integrations.ray_cluster import EXTRA, checked_workers, free_resources, local_options
from rrg_rewards.judges.server.usage import Usage
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.references import score_batch
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.settings import SettingError

# Batches that wait for each worker, so that no worker is idle while the driver waits for the first of them.
_WAITING = 4

Columns = Mapping[str, Any]


class _BatchedFunction:
    """A function of batches of columns; see :class:`ReportScorer` for arguments and errors."""

    sums_batches = False
    """Whether the function returns sums, in which scores that depend on the other pairs of a batch are correct."""

    def __init__(
        self,
        metrics: ReportMetric | Mapping[str, ReportMetric],
        prediction_column: str = "prediction",
        reference_column: str | None = "reference",
        context: Mapping[str, str] | None = None,
    ) -> None:
        self.metrics = _by_name(metrics)
        self.prediction_column = prediction_column
        self.reference_column = reference_column
        self.context = dict(context or {})
        for keyword in self.context:
            if not any(_takes(metric, keyword) for metric in self.metrics.values()):
                known = sorted({name for metric in self.metrics.values() for name in metric.context or ()})
                raise ValueError(unknown_name_message("context column", keyword, known))
        for name, metric in self.metrics.items():
            if not (self.sums_batches or metric.compares_across_batches):
                raise ValueError(
                    f"scores of {name} depend on the other pairs of a batch; set a prior. Sums need none: ReportSums"
                )

    def _scores(self, batch: Columns) -> dict[str, Scores]:
        """Score the report pairs of a batch with each metric."""
        predictions = _texts(batch, self.prediction_column)
        if self.reference_column is None:
            references: list[str | None] = [None] * len(predictions)
        else:
            references = _texts(batch, self.reference_column)
        context = {keyword: _column(batch, column) for keyword, column in self.context.items()}
        return {
            name: metric.score(predictions, references, **_accepted(metric, context))
            for name, metric in self.metrics.items()
        }


class ReportScorer(_BatchedFunction):
    """Adds the scores of report pairs to batches of rows, for ``map_batches`` of Ray Data and ``map`` of ``datasets``.

    For each metric, the new columns are ``{name}``, the score, and ``{name}_{part}`` for its sub-scores and
    explanations; NaN or ``None`` if a pair is unscorable. On Ray, pass the class and its arguments: each actor loads
    its models once, and an actor that dies is replaced and repeats its batch. An instance is a picklable function of a
    batch.

    Args:
        metrics: A metric, or metrics by name.
        prediction_column: Column of predictions; missing ones are ``None`` or NaN.
        reference_column: Column of references; ``None`` if no metric reads reference texts.
        context: Columns of the metrics' context, by keyword: ``{"age": "PatientAge"}``.

    Raises:
        ValueError: If scores of a metric depend on the other pairs of a batch, such as CRG without a prior; or if no
            metric takes a keyword of the context.

    Example:
        >>> from rrg_rewards.integrations.ray import ReportScorer
        >>> from rrg_rewards.metrics import ROUGE
        >>> scorer = ReportScorer(ROUGE(), prediction_column="report")
        >>> batch = scorer({"report": ["Small effusion.", None], "reference": ["Small left effusion.", "Normal."]})
        >>> batch["rouge"].round(2).tolist()
        [0.8, nan]
        >>> dataset.map(scorer, batched=True, num_proc=8)                                       # doctest: +SKIP
        >>> ray.data.read_parquet("pairs").map_batches(                                         # doctest: +SKIP
        ...     ReportScorer, fn_constructor_kwargs={"metrics": ROUGE()}, concurrency=8, num_cpus=0.5)
    """

    def __call__(self, batch: Columns) -> dict[str, Any]:
        """Return a batch, a mapping of columns, with the columns of its scores."""
        columns = dict(batch)
        for name, scores in self._scores(batch).items():
            columns[name] = scores.value.double().numpy()
            for part, values in scores.details.items():
                columns[f"{name}_{part}"] = values.double().numpy()
            for part, texts in scores.explanations.items():
                columns[f"{name}_{part}"] = list(texts)
        return columns


class ReportSums(_BatchedFunction):
    """Turns each batch of rows into one row: the states of the metrics after these report pairs.

    :func:`merge_sums` merges the rows of any number of processes. Counts are integers, so the merged counts equal those
    of one process exactly. Sums of scores are float64 and may differ in the last digits, because their order differs.
    The arguments are those of :class:`ReportScorer`.

    Example:
        >>> from rrg_rewards.integrations.ray import ReportSums, merge_sums
        >>> from rrg_rewards.metrics import ReportCRG
        >>> sums = ReportSums(ReportCRG())
        >>> pairs = [("Cardiomegaly.", "Cardiomegaly. Hiatal hernia."), ("Normal.", "Normal.")]
        >>> batches = [sums({"prediction": [pred], "reference": [ref]}) for pred, ref in pairs]
        >>> rows = [{name: column[0] for name, column in batch.items()} for batch in batches]
        >>> merge_sums(ReportCRG(), rows)["crg"].compute()
        tensor(0.5000, dtype=torch.float64)
    """

    sums_batches = True

    def __call__(self, batch: Columns) -> dict[str, Any]:
        """Return the states of all metrics for a batch, as columns with one row."""
        columns = {}
        for name, scores in self._scores(batch).items():
            metric = deepcopy(self.metrics[name])
            metric.reset()
            metric.add_scores(scores)
            for state, value in metric.metric_state.items():
                assert isinstance(value, torch.Tensor)
                columns[f"{name}.{state}"] = value.unsqueeze(0).cpu().numpy()
        return columns


def merge_sums(metrics: ReportMetric | Mapping[str, ReportMetric], rows: Iterable[Columns]) -> dict[str, ReportMetric]:
    """Merge the rows of :class:`ReportSums` into copies of the metrics, whose ``compute`` returns the corpus values.

    Args:
        metrics: The metrics of :class:`ReportSums`.
        rows: Its rows, in any order.

    Raises:
        ValueError: If a row lacks a state of a metric.
    """
    merged = {name: deepcopy(metric) for name, metric in _by_name(metrics).items()}
    for metric in merged.values():
        metric.reset()
    for row in rows:
        for name, metric in merged.items():
            metric.merge_state(_state(name, metric, row))
            # As torchmetrics does in `update`: the cached value is discarded, and the call is counted.
            metric._computed = None
            metric._update_count += 1
    return merged


def score_dataset(
    dataset: Any,
    metrics: ReportMetric | Mapping[str, ReportMetric],
    *,
    workers: int,
    batch_size: int = 256,
    num_cpus: float = 0.5,
    num_gpus: float = 0,
    **columns: Any,
) -> dict[str, ReportMetric]:
    """Return metrics that have seen all report pairs of a data set of Ray Data.

    An actor that dies is replaced, and its batches are repeated; each batch counts once.

    Args:
        dataset: A ``ray.data.Dataset`` of report pairs.
        metrics: A metric, or metrics by name.
        workers: Number of actors.
        batch_size: Maximum number of report pairs in a batch.
        num_cpus: CPUs that Ray reserves for each actor. By default, half a CPU: if the actors reserved all CPUs, the
            tasks that read and divide the data set would wait forever.
        num_gpus: GPUs of each actor, for metrics with a model.
        columns: ``prediction_column``, ``reference_column`` and ``context`` of :class:`ReportScorer`.

    Raises:
        ModuleNotFoundError: If Ray is not installed (extra ``ray``).
        ValueError: If the cluster has fewer CPUs or GPUs than the actors reserve, or a judge counts a budget.

    Warns:
        RuntimeWarning: If other work has reserved CPUs or GPUs that the actors need, so that they wait for it.
    """
    refuse_budgets(_by_name(metrics))
    data: Any = require("ray.data", extra=EXTRA)
    cluster: Any = require("ray", extra=EXTRA)
    each = {"CPU": num_cpus, "GPU": num_gpus}
    checked_workers(workers, each, cluster.cluster_resources(), free_resources(cluster, each, workers))
    sums = dataset.map_batches(
        ReportSums,
        fn_constructor_kwargs={"metrics": _by_name(metrics), **columns},
        batch_size=batch_size,
        compute=data.ActorPoolStrategy(size=workers),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    )
    return merge_sums(metrics, sums.iter_rows())


def _by_name(metrics: ReportMetric | Mapping[str, ReportMetric]) -> dict[str, ReportMetric]:
    return {metrics.name: metrics} if isinstance(metrics, ReportMetric) else dict(metrics)


def _accepted(metric: ReportMetric, context: Columns) -> dict[str, Any]:
    return {name: column for name, column in context.items() if _takes(metric, name)}


def _takes(metric: ReportMetric, name: str) -> bool:
    return metric.context is None or name in metric.context


def _column(batch: Columns, name: str) -> Any:
    if name not in batch:
        raise ValueError(f"the rows have no column {name!r}; they have {', '.join(batch) or 'none'}")
    column = batch[name]
    return column.tolist() if hasattr(column, "tolist") else column


def _texts(batch: Columns, name: str) -> list[str | None]:
    """Return a column of texts, with ``None`` for the NaN by which data frames represent a missing one."""
    return [None if isinstance(text, float) and text != text else text for text in _column(batch, name)]


def _state(name: str, metric: ReportMetric, row: Columns) -> dict[str, Any]:
    """Return the state of a metric in a row."""
    found = {}
    for state, default in metric.metric_state.items():
        assert isinstance(default, torch.Tensor)
        if f"{name}.{state}" not in row:
            raise ValueError(f"a row of sums lacks {name}.{state}; make the sums with the same metrics")
        # A copy, because arrays of Ray are read-only.
        value = np.array(row[f"{name}.{state}"])
        found[state] = torch.from_numpy(value).to(default.dtype).reshape(default.shape)
    return found


class RayScorers:
    """Ray actors that score batches of report pairs, and return the scores in the order of the batches.

    Batches and scores are those of one process, so all numbers computed from them are equal to the last bit. An actor
    that dies is restarted, and its batches are scored again.

    Args:
        metrics: The metrics by name.
        workers: Number of actors, of one CPU each; default: as many as the cluster has CPUs and GPUs for.
        address: Address of a cluster, such as ``auto`` or ``ray://head:10001``; default: a cluster on this machine,
            which ends with :meth:`close`.
        num_gpus: GPUs of each actor, for metrics with a model.
        best: For reports with several references, as in :func:`rrg_rewards.metrics.score_references`; ``None`` if they
            have one.
        usage: Gets what the judges of the metrics use in the actors.

    Raises:
        ModuleNotFoundError: If Ray is not installed (extra ``ray``).
        ConnectionError: If there is no cluster at the address.
        ValueError: If the cluster has fewer CPUs or GPUs than the actors reserve, or a judge counts a budget.

    Warns:
        RuntimeWarning: If other work has reserved CPUs or GPUs that the actors need, so that they wait for it.
    """

    def __init__(
        self,
        metrics: Mapping[str, ReportMetric],
        workers: int | None = None,
        address: str | None = None,
        num_gpus: float = 0,
        best: bool | None = None,
        usage: RunUsage | None = None,
    ) -> None:
        self._ray: Any = require("ray", extra=EXTRA)
        refuse_budgets(metrics)
        self._actors: list[Any] = []
        self._usage = usage
        self._owns_connection = not self._ray.is_initialized()
        if self._owns_connection:
            options = local_options(workers) if address is None else {"address": address}
            self._ray.init(log_to_driver=False, **options)
        try:
            workers = self._worker_count(workers, address, num_gpus)
        except SettingError:
            self.close()
            raise
        actor = self._ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=1, num_gpus=num_gpus)(_Actor)
        self._actors = [actor.remote(dict(metrics), best) for _ in range(workers)]

    def _worker_count(self, workers: int | None, address: str | None, num_gpus: float) -> int:
        """Return the number of actors; see :func:`checked_workers`."""
        total = self._ray.cluster_resources()
        each = {"CPU": 1, "GPU": num_gpus}
        # A cluster that has just started does not know its free resources yet, and no other work runs on it.
        started_here = self._owns_connection and address is None
        free = total if started_here else free_resources(self._ray, each, workers)
        return checked_workers(workers, each, total, free)

    def __enter__(self) -> "RayScorers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def scored(self, batches: Iterable[PairBatch]) -> Iterator[tuple[PairBatch, dict[str, Scores]]]:
        """Yield each batch with its scores by the metrics of its context, in order.

        Exceptions of metrics are raised unchanged.
        """
        waiting: deque[tuple[PairBatch, Any, Any]] = deque()
        free = deque(self._actors * _WAITING)
        for batch in batches:
            if not free:
                yield self._first(waiting, free)
            actor = free.popleft()
            waiting.append((batch, actor, actor.score.remote(batch.predictions, batch.references, batch.context)))
        while waiting:
            yield self._first(waiting, free)

    def _first(
        self, waiting: "deque[tuple[PairBatch, Any, Any]]", free: "deque[Any]"
    ) -> tuple[PairBatch, dict[str, Scores]]:
        """Wait for the first batch, and free its actor."""
        batch, actor, result = waiting.popleft()
        try:
            scores: dict[str, Scores]
            scores, used = self._ray.get(result)
        except self._ray.exceptions.RayTaskError as error:
            # Ray's own error contains the traceback of the worker as its text.
            raise error.cause from error
        free.append(actor)
        if self._usage is not None:
            # Without the requests of an actor that died.
            self._usage.add(used)
        return batch, scores

    def close(self) -> None:
        """End the actors, and the cluster if it was started here."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if self._owns_connection:
            self._ray.shutdown()


class _Actor:
    """Scores batches in a process of its own."""

    def __init__(self, metrics: Mapping[str, ReportMetric], best: bool | None) -> None:
        self._metrics = metrics
        self._best = best
        self._usage = RunUsage({name: metric.judges() for name, metric in metrics.items()})

    def score(
        self,
        predictions: Sequence[str | None],
        references: Sequence[Any],
        context: Mapping[str, Mapping[str, Any]],
    ) -> tuple[dict[str, Scores], dict[str, dict[str, Usage]]]:
        """Return the scores, and what the judges have used for them."""
        scores = {
            name: score_batch(self._metrics[name], predictions, references, self._best, own)
            for name, own in context.items()
        }
        return scores, self._usage.take()


def refuse_budgets(metrics: Mapping[str, ReportMetric]) -> None:
    """Raise a ValueError if a judge counts a budget, of which each actor would have one of its own."""
    for name, metric in metrics.items():
        if any(judge.has_budget for judge in metric.judges().values()):
            raise ValueError(
                f"the budget of the judge of {name} is counted in one process, and each process on Ray would spend it; "
                "leave out the budget, or score in this process"
            )
