"""Scores of batches of report pairs, in this process or in several."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from rrg_rewards.analysis.outcomes import failures_counted
from rrg_rewards.analysis.pairs import PairBatch, located
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.references import score_batch
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.run_log import Progress
from rrg_rewards.utilities.worker_pool import WorkerPool, calls, divided, optional_pool

ScoredBatches = Iterator[tuple[PairBatch, dict[str, Scores]]]

Scorer = Callable[[Mapping[str, ReportMetric], Iterable[PairBatch], Progress, "bool | None"], ScoredBatches]
"""Scores batches, such as :func:`score_batches`."""

# Number of pairs that a worker scores in a call: few, so that all workers end at nearly the same time.
_PART = 64

Texts = tuple[Sequence[str | None], Sequence[Any], Mapping[str, Mapping[str, Any]]]
"""Predictions, references, and the context columns of each metric that scores them."""


class BatchScorer:
    """Scores predictions, references and context columns with metrics, here or in another process.

    Args:
        metrics: The metrics by name.
        best: As in :func:`~rrg_rewards.metrics.references.score_batch`.
    """

    def __init__(self, metrics: Mapping[str, ReportMetric], best: bool | None) -> None:
        self._metrics = dict(metrics)
        self._best = best

    def __call__(self, texts: Texts) -> dict[str, Scores]:
        """Return the scores by metric."""
        predictions, references, context = texts
        with failures_counted():
            return {
                name: score_batch(self._metrics[name], predictions, references, self._best, own)
                for name, own in context.items()
            }


@dataclass(frozen=True)
class BatchPart:
    """Consecutive rows of a batch, which a metric scores in one call."""

    name: str
    batch: PairBatch
    rows: slice

    @property
    def context(self) -> dict[str, Any]:
        """Context columns of the metric."""
        return {key: column[self.rows] for key, column in self.batch.context[self.name].items()}

    @property
    def texts(self) -> Texts:
        """What a :class:`BatchScorer` needs."""
        return self.batch.predictions[self.rows], self.batch.references[self.rows], {self.name: self.context}

    @property
    def place(self) -> int:
        """A number for the process that scores it; the same one for parts of the same rows and size."""
        return int((self.batch.table.first + self.rows.start) // max(1, self.rows.stop - self.rows.start))

    @property
    def is_last(self) -> bool:
        """Whether the batch has no further rows."""
        return bool(self.rows.stop >= len(self.batch.table))


def scored_parts(
    scorer: Callable[[Any], dict[str, Scores]],
    metrics: Mapping[str, ReportMetric],
    batches: Iterable[PairBatch],
    pool: WorkerPool[Any, Any] | None = None,
) -> Iterator[tuple[BatchPart, Scores]]:
    """Yield the scores of batches: for each metric of a batch's context, in its order, those of its parts.

    Several workers score parts of a batch by metrics with independent rows; other metrics score a batch in one call.

    Args:
        scorer: A :class:`BatchScorer`, or a function that contains one.
        metrics: The metrics by name.
        batches: The report pairs.
        pool: Processes with the scorer; ``None`` to score in this process.
    """
    parts = (part for batch in batches for part in _parts(batch, metrics, pool is not None))
    # The process that has read some references reads no others of the same rows.
    for part, result in calls(scorer, ((part, part.texts) for part in parts), pool, attrgetter("place")):
        with located(part.batch.table, part.rows.start):
            scores = result()[part.name]
        yield part, scores


def _parts(batch: PairBatch, metrics: Mapping[str, ReportMetric], divides: bool) -> Iterator[BatchPart]:
    count = len(batch.table)
    for name in batch.context:
        metric = metrics[name]
        is_divided = divides and metric.has_independent_rows and metric.compares_across_batches
        size = _PART if is_divided else count
        # A batch without rows is scored too, so that there is a tensor.
        for rows in divided(count, max(1, size)) or [slice(0, 0)]:
            yield BatchPart(name, batch, rows)


def score_batches(
    metrics: Mapping[str, ReportMetric],
    batches: Iterable[PairBatch],
    progress: Progress,
    best: bool | None,
    workers: int = 1,
) -> ScoredBatches:
    """Yield each batch with its scores by metric, in order. They do not depend on the number of workers.

    Args:
        metrics: The metrics by name.
        batches: The report pairs.
        progress: Receives the number of scored rows.
        best: As in :func:`~rrg_rewards.metrics.references.score_batch`.
        workers: Number of processes; 1 for this process, and 0 for one for each core.

    Raises:
        SettingError: If a metric of several processes has a model or a language model as judge.
        ChildProcessError: If a process was killed.
    """
    scorer = BatchScorer(metrics, best)
    found: dict[str, list[Scores]] = {}
    with optional_pool(scorer, workers, name="a metric") as pool:
        for part, scores in scored_parts(scorer, metrics, batches, pool):
            progress(part.rows.stop - part.rows.start, 0)
            found.setdefault(part.name, []).append(scores)
            if part.is_last and len(found) == len(part.batch.context):
                joined = {name: one.joined(others) if others else one for name, (one, *others) in found.items()}
                yield part.batch, joined
                found = {}
