"""Scores of batches of report pairs, in this process or in several."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rrg_rewards.analysis.outcomes import failures_counted
from rrg_rewards.analysis.pairs import PairBatch, located
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.references import score_batch
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.run_log import Progress
from rrg_rewards.utilities.worker_pool import WorkerPool, calls, divided, worker_count

ScoredBatches = Iterator[tuple[PairBatch, dict[str, Scores]]]

Scorer = Callable[[Mapping[str, ReportMetric], Iterable[PairBatch], Progress, "bool | None"], ScoredBatches]
"""Scores batches, such as :func:`score_batches` in this process."""

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
    def texts(self) -> Texts:
        """What a :class:`BatchScorer` needs."""
        context = {key: column[self.rows] for key, column in self.batch.context[self.name].items()}
        return self.batch.predictions[self.rows], self.batch.references[self.rows], {self.name: context}

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
    """Yield the scores of batches: for each metric in its order, those of its parts.

    Several workers score parts of a batch by metrics with independent rows; other metrics score a batch in one call.

    Args:
        scorer: A :class:`BatchScorer`, or a function that contains one.
        metrics: The metrics by name.
        batches: The report pairs.
        pool: Processes with the scorer; ``None`` to score in this process.
    """
    parts = (part for batch in batches for part in _parts(batch, metrics, pool is not None))
    for part, result in calls(scorer, ((part, part.texts) for part in parts), pool):
        with located(part.batch.table, part.rows.start):
            scores = result()[part.name]
        yield part, scores


def _parts(batch: PairBatch, metrics: Mapping[str, ReportMetric], divides: bool) -> Iterator[BatchPart]:
    count = len(batch.table)
    for name, metric in metrics.items():
        size = _PART if divides and metric.has_independent_rows else count
        # A batch without rows is scored too, so that there is a tensor.
        for rows in divided(count, max(1, size)) or [slice(0, 0)]:
            yield BatchPart(name, batch, rows)


def score_batches(
    metrics: Mapping[str, ReportMetric], batches: Iterable[PairBatch], progress: Progress, best: bool | None
) -> ScoredBatches:
    """Yield each batch with its scores by metric, in order.

    Args:
        metrics: The metrics by name.
        batches: The report pairs.
        progress: Receives the number of scored rows.
        best: As in :func:`~rrg_rewards.metrics.references.score_batch`.
    """
    yield from _scored_batches(BatchScorer(metrics, best), metrics, batches, progress)


def score_in_workers(
    metrics: Mapping[str, ReportMetric],
    batches: Iterable[PairBatch],
    progress: Progress,
    best: bool | None,
    workers: int = 0,
) -> ScoredBatches:
    """Do the same as :func:`score_batches` in several processes. Batches, and so all numbers, are the same.

    Args:
        metrics: The metrics by name.
        batches: The report pairs.
        progress: Receives the number of scored rows.
        best: As in :func:`~rrg_rewards.metrics.references.score_batch`.
        workers: Number of processes; 0 for one for each core.

    Raises:
        SettingError: If a metric has a model or a language model as judge.
        ChildProcessError: If a process was killed.
    """
    scorer = BatchScorer(metrics, best)
    with WorkerPool(scorer, workers, name="a metric") as pool:
        yield from _scored_batches(scorer, metrics, batches, progress, pool)


def _scored_batches(
    scorer: BatchScorer,
    metrics: Mapping[str, ReportMetric],
    batches: Iterable[PairBatch],
    progress: Progress,
    pool: WorkerPool[Texts, dict[str, Scores]] | None = None,
) -> ScoredBatches:
    found: dict[str, list[Scores]] = {name: [] for name in metrics}
    last = [*metrics][-1]
    for part, scores in scored_parts(scorer, metrics, batches, pool):
        progress(part.rows.stop - part.rows.start, 0)
        found[part.name].append(scores)
        if part.name == last and part.is_last:
            yield part.batch, {name: one.joined(others) if others else one for name, (one, *others) in found.items()}
            found = {name: [] for name in metrics}


def local_scorer(workers: int) -> Scorer:
    """Return the function that scores batches on this machine, in this process if the number of workers is 1."""
    return score_batches if worker_count(workers) == 1 else partial(score_in_workers, workers=workers)
