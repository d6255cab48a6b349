"""Ray actors that score batches of report pairs in order."""

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rrg_rewards.integrations.ray_resources import checked_workers
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.references import score_batch
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.imports import require

__all__ = ["RayScorers"]

_EXTRA = "ray"
# Batches that wait for each worker, so that no worker is idle while the driver waits for the first of them.
_WAITING = 4


class ReportBatch(Protocol):
    """Report pairs, with the context columns of each metric."""

    @property
    def predictions(self) -> Sequence[str | None]:
        """The predictions."""
        ...

    @property
    def references(self) -> Sequence[Any]:
        """The references: one for each report, or lists of them."""
        ...

    @property
    def context(self) -> Mapping[str, Mapping[str, Any]]:
        """The context columns of each metric."""
        ...


Batch = TypeVar("Batch", bound=ReportBatch)


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

    Raises:
        ModuleNotFoundError: If Ray is not installed (extra ``ray``).
        ConnectionError: If there is no cluster at the address.
        ValueError: If the cluster has fewer CPUs or GPUs than the actors reserve.

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
    ) -> None:
        self._ray: Any = require("ray", extra=_EXTRA)
        self._actors: list[Any] = []
        self._owns_connection = not self._ray.is_initialized()
        if self._owns_connection:
            options = _local_options(workers) if address is None else {"address": address}
            self._ray.init(log_to_driver=False, **options)
        try:
            workers = self._checked(workers, address, num_gpus)
        except ValueError:
            self.close()
            raise
        actor = self._ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=1, num_gpus=num_gpus)(_Actor)
        self._actors = [actor.remote(dict(metrics), best) for _ in range(workers)]

    def _checked(self, workers: int | None, address: str | None, num_gpus: float) -> int:
        """Return the number of actors; see :func:`checked_workers`."""
        total = self._ray.cluster_resources()
        # A cluster that has just started does not know its free resources yet, and no other work runs on it.
        started_here = self._owns_connection and address is None
        free = total if started_here else self._ray.available_resources()
        return checked_workers(workers, {"CPU": 1, "GPU": num_gpus}, total, free)

    def __enter__(self) -> "RayScorers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def scored(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, dict[str, Scores]]]:
        """Yield each batch with its scores by metric, in order. Errors of metrics are raised as they are."""
        waiting: deque[tuple[Batch, Any, Any]] = deque()
        free = deque(self._actors * _WAITING)
        for batch in batches:
            if not free:
                yield self._first(waiting, free)
            actor = free.popleft()
            waiting.append((batch, actor, actor.score.remote(batch.predictions, batch.references, batch.context)))
        while waiting:
            yield self._first(waiting, free)

    def _first(self, waiting: "deque[tuple[Batch, Any, Any]]", free: "deque[Any]") -> tuple[Batch, dict[str, Scores]]:
        """Wait for the first batch, and free its actor."""
        batch, actor, result = waiting.popleft()
        try:
            scores: dict[str, Scores] = self._ray.get(result)
        except self._ray.exceptions.RayTaskError as error:
            # Ray's own error contains the traceback of the worker as its text.
            raise error.cause from error
        free.append(actor)
        return batch, scores

    def close(self) -> None:
        """End the actors, and the cluster if it was started here."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if self._owns_connection:
            self._ray.shutdown()


def _local_options(workers: int | None) -> dict[str, Any]:
    """Return the options of a cluster on this machine, whose processes import modules from the same folders."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return {"num_cpus": workers, "include_dashboard": False, "runtime_env": {"env_vars": paths}}


class _Actor:
    """Scores batches in a process of its own."""

    def __init__(self, metrics: Mapping[str, ReportMetric], best: bool | None) -> None:
        self._metrics = metrics
        self._best = best

    def score(
        self,
        predictions: Sequence[str | None],
        references: Sequence[Any],
        context: Mapping[str, Mapping[str, Any]],
    ) -> dict[str, Scores]:
        return {
            name: score_batch(metric, predictions, references, self._best, context[name])
            for name, metric in self._metrics.items()
        }
