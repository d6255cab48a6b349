"""Scores of batches of report pairs, in this process or in several."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from rrg_rewards.analysis.outcomes import failures_counted
from rrg_rewards.analysis.report_pairs import PairBatch, located
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.run_log import Progress
from rrg_rewards.utilities.worker_pool import calls, divided, optional_pool

# Number of pairs that a worker scores in a call: few, so that all workers end at nearly the same time.
_PART = 64


def score_batches(
    metrics: Mapping[str, ReportMetric],
    batches: Iterable[PairBatch],
    progress: Progress,
    workers: int = 1,
) -> Iterator[tuple[PairBatch, dict[str, Scores]]]:
    """Yield each batch with its scores by the metrics of its context, in order. They do not depend on the workers.

    Several workers score parts of a batch by metrics with independent rows; other metrics score a batch in one call.

    Args:
        metrics: The metrics by name.
        batches: The report pairs.
        progress: Receives the number of scored rows.
        workers: Number of processes; 1 for this process, and 0 for one for each core.

    Raises:
        SettingError: If a metric of several processes has a model or a language model as judge.
        ChildProcessError: If a process was killed.
    """
    scorer = _Scorer(metrics)
    found: dict[str, list[Scores]] = {}
    with optional_pool(scorer, workers, name="a metric") as pool:
        parts = (part for batch in batches for part in _parts(batch, metrics, pool is not None))
        # The process that has read some references reads no others of the same rows.
        for part, result in calls(scorer, ((part, part.texts) for part in parts), pool, attrgetter("place")):
            with located(part.batch.table, part.rows.start):
                scores = result()
            metrics[part.name].note_scored(part.batch.context[part.name], scores)
            progress(part.rows.stop - part.rows.start, 0)
            found.setdefault(part.name, []).append(scores)
            if part.rows.stop >= len(part.batch.table) and len(found) == len(part.batch.context):
                yield (
                    part.batch,
                    {name: one.joined(others) if others else one for name, (one, *others) in found.items()},
                )
                found = {}


class _Scorer:
    """Scores texts with a metric, here or in another process."""

    def __init__(self, metrics: Mapping[str, ReportMetric]) -> None:
        self._metrics = dict(metrics)

    def __call__(self, task: tuple[str, Sequence[str | None], Sequence[Any], Mapping[str, Any]]) -> Scores:
        name, predictions, references, context = task
        with failures_counted():
            return self._metrics[name].score(predictions, references, **context)


class _Part(NamedTuple):
    """Consecutive rows of a batch, which a metric scores in one call."""

    name: str
    batch: PairBatch
    rows: slice

    @property
    def texts(self) -> tuple[str, Sequence[str | None], Sequence[Any], Mapping[str, Any]]:
        """What a :class:`_Scorer` needs."""
        context = {key: column[self.rows] for key, column in self.batch.context[self.name].items()}
        return self.name, self.batch.predictions[self.rows], self.batch.references[self.rows], context

    @property
    def place(self) -> int:
        """A number for the process that scores it; the same one for parts of the same rows and size."""
        return int((self.batch.table.first + self.rows.start) // max(1, self.rows.stop - self.rows.start))


def _parts(batch: PairBatch, metrics: Mapping[str, ReportMetric], divides: bool) -> Iterator[_Part]:
    count = len(batch.table)
    for name in batch.context:
        metric = metrics[name]
        is_divided = divides and metric.has_independent_rows and metric.compares_across_batches
        size = _PART if is_divided else count
        # A batch without rows is scored too, so that there is a tensor.
        for rows in divided(count, max(1, size)) or [slice(0, 0)]:
            yield _Part(name, batch, rows)
