"""Score the completions of many requests in batches, in a thread of their own."""

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from rrg_rewards.integrations.common.batching import BatchQueue, QueueFullError
from rrg_rewards.integrations.serve.requests import RequestError, Sample, ScoredSample, busy, scoring_error
from rrg_rewards.integrations.serve.settings import ServerOptions

T = TypeVar("T")


class Scorer:
    """Scores samples in batches. The event loop of the server stays free while a reward computes.

    Args:
        options: The reward and its limits.
        on_batch: Called with the results of each batch.
    """

    def __init__(self, options: ServerOptions, on_batch: Callable[[Sequence[ScoredSample]], None]) -> None:
        self._reward = options.reward
        self._timeout = options.timeout
        self._on_batch = on_batch
        self._thread = _LoopThread()
        self._queue: BatchQueue[Sample, ScoredSample] = BatchQueue(self._process, options.batch_limits)

    @property
    def num_waiting(self) -> int:
        """Number of samples that wait for a batch."""
        return self._queue.num_waiting

    def start(self) -> None:
        """Check that the reward can score, and load its model.

        Raises:
            Exception: The error of the reward.
        """
        columns = self._reward.columns
        self._thread.start(self._reward.score_async([], **{column: [] for column in columns})).result()
        # Other columns have values that are not known here.
        if len(columns) <= 1:
            self._thread.start(self._score([Sample("Clear lungs.", dict.fromkeys(columns, "Clear lungs."))])).result()

    async def score(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        """Score the samples of a request.

        Raises:
            RequestError: If too many samples are waiting, the deadline passes, or the reward raises an error.
        """
        try:
            outcomes = await self._queue.submit_all(samples, self._timeout)
        except QueueFullError as error:
            if len(samples) > self._queue.limits.max_pending:
                limit = self._queue.limits.max_pending
                raise RequestError(413, f"{len(samples)} completions are more than the maximum, {limit}") from None
            raise busy(str(error)) from None
        except asyncio.TimeoutError:
            raise RequestError(504, f"no reward within {self._timeout:g} s") from None
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
        scored = await asyncio.wrap_future(self._thread.start(self._score(samples)))
        self._on_batch(scored)
        return scored

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


class _LoopThread:
    """A thread with an event loop. Coroutines that block delay only each other."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rrg-rewards-scoring", daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
