"""Score the completions of many requests in batches, in a thread of their own."""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from rrg_rewards.integrations.common.background import without_exits
from rrg_rewards.integrations.common.batching import BatchQueue, QueueFullError
from rrg_rewards.integrations.serve.requests import (
    RequestError,
    Sample,
    ScoredSample,
    busy,
    error_place,
    scoring_error,
)
from rrg_rewards.integrations.serve.settings import ServerOptions
from rrg_rewards.utilities.concurrency import LoopThread

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Scorer:
    """Scores samples in batches. The event loop of the server stays free while a reward computes.

    A reward that does not return cannot be interrupted, because it computes in a thread. It is logged, and
    :attr:`problem` says so until it returns.

    Args:
        options: The reward and its limits.
        on_batch: Called with the results of each batch.
    """

    def __init__(self, options: ServerOptions, on_batch: Callable[[Sequence[ScoredSample]], None]) -> None:
        self._reward = options.reward
        self._timeout = options.timeout
        self._on_batch = on_batch
        self._thread = LoopThread("rrg-rewards-scoring", on_death=_log_death)
        self._queue: BatchQueue[Sample, ScoredSample] = BatchQueue(self._process, options.batch_limits)
        # Batches that have taken longer than the limit.
        self._overdue: set[object] = set()

    @property
    def num_waiting(self) -> int:
        """Number of samples that wait for a batch."""
        return self._queue.num_waiting

    @property
    def problem(self) -> str | None:
        """Why requests get no rewards at present, or will not soon; ``None`` if nothing is known to be wrong."""
        if not self._thread.is_alive:
            return "the thread that scores has ended; restart the server"
        if self._overdue:
            return (
                f"the reward has not returned from {len(self._overdue)} batches within {self._timeout:g} s "
                "(`timeout`); if it never does, restart the server"
            )
        return None

    def start(self) -> None:
        """Check that the reward can score, and load its model.

        Raises:
            Exception: The error of the reward.
        """
        columns = self._reward.columns
        self._in_thread(self._reward.score_async([], **{column: [] for column in columns})).result()
        # Other columns have values that are not known here.
        if len(columns) <= 1:
            self._in_thread(self._score([Sample("Clear lungs.", dict.fromkeys(columns, "Clear lungs."))])).result()

    async def score(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        """Score the samples of a request.

        Raises:
            RequestError: If too many samples are waiting, the deadline passes, the reward raises an error, or no batch
                can begin.
        """
        if not self._thread.is_alive or len(self._overdue) >= self._queue.limits.max_concurrent:
            raise RequestError(503, str(self.problem))
        try:
            outcomes = await self._queue.submit_all(samples, self._timeout)
        except QueueFullError as error:
            raise busy(str(error)) from None
        except asyncio.TimeoutError:
            raise RequestError(504, f"no reward within {self._timeout:g} s") from None
        if not self._thread.is_alive:
            raise RequestError(503, str(self.problem))
        scored = []
        for row, outcome in enumerate(outcomes):
            if isinstance(outcome, Exception):
                raise scoring_error(row, outcome)
            scored.append(outcome)
        return scored

    def close(self) -> None:
        """End the thread."""
        self._thread.close()

    async def _process(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        batch = object()
        alarm = asyncio.get_running_loop().call_later(self._timeout, self._report_overdue, batch, len(samples))
        try:
            scored = await asyncio.wrap_future(self._in_thread(self._score(samples)))
        finally:
            alarm.cancel()
            if batch in self._overdue:
                self._overdue.discard(batch)
                _log.warning("a batch that took longer than %g s has ended", self._timeout)
        self._on_batch(scored)
        return scored

    def _report_overdue(self, batch: object, num_samples: int) -> None:
        self._overdue.add(batch)
        _log.error("a batch of %d completions has no rewards after %g s: %s", num_samples, self._timeout, self.problem)

    def _in_thread(self, scoring: Coroutine[Any, Any, T]) -> "Future[T]":
        return self._thread.submit(without_exits(scoring))

    async def _score(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        columns = {name: [sample.columns[name] for sample in samples] for name in self._reward.columns}
        scores = await self._reward.score_async([sample.completion for sample in samples], **columns)
        rewards = self._reward.rewards(scores)
        if not all(reward is None or math.isfinite(reward) for reward in rewards):
            raise ArithmeticError("a reward is infinite or NaN")
        details = {name: _or_none(values.tolist()) for name, values in scores.details.items()}
        failures: list[str | None] = [None] * len(samples)
        for kind, rows in scores.failures.items():
            for row in rows.nonzero().flatten().tolist():
                failures[row] = kind
        return [
            ScoredSample(reward, {name: values[row] for name, values in details.items()}, failure)
            for row, (reward, failure) in enumerate(zip(rewards, failures, strict=True))
        ]


def _or_none(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def _log_death(error: BaseException) -> None:
    _log.error("the thread that scores has ended: %s", error_place(error))
