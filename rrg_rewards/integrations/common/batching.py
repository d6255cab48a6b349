"""Collect the items of concurrent callers into batches."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class QueueFullError(RuntimeError):
    """Too many items are waiting; none of the new ones was accepted."""


@dataclass(frozen=True)
class BatchLimits:
    """Limits of a :class:`BatchQueue`.

    Args:
        max_batch: Maximum number of items in a batch.
        max_wait: Maximum seconds that an item waits for others if no batch is being processed. 0 collects the items of
            one iteration of the event loop.
        max_pending: Maximum number of waiting items, without those of batches that are being processed.
        max_concurrent: Maximum number of batches that are processed at the same time.

    Raises:
        ValueError: If a limit is out of its range, or ``max_pending`` is less than ``max_batch``.
    """

    max_batch: int = 32
    max_wait: float = 0.005
    max_pending: int = 1024
    max_concurrent: int = 1

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_concurrent"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.max_wait < math.inf:
            raise ValueError(f"max_wait must be at least 0 and finite, got {self.max_wait}")
        if self.max_pending < self.max_batch:
            raise ValueError(f"max_pending must be at least max_batch {self.max_batch}, got {self.max_pending}")


@dataclass(eq=False)
class _Entry(Generic[Item, Result]):
    item: Item
    entered: float
    outcome: "asyncio.Future[Result | Exception]"


class BatchQueue(Generic[Item, Result]):
    """Processes the items of concurrent callers in batches.

    Items are processed in the order in which they arrive. An item of a caller that was cancelled or timed out while it
    waited is not processed. If ``process`` raises an error for a batch, its halves are processed again, so that only
    the items that cause the error fail.

    All callers share one event loop. A queue whose loop has ended is empty in the next one.

    Args:
        process: Coroutine function that returns one result for each item of a batch, in order. It must not block the
            event loop.
        limits: Limits of batches, time and waiting items.

    Example:
        >>> async def lengths(texts):
        ...     return [len(text) for text in texts]
        >>> async def main():
        ...     queue = BatchQueue(lengths)
        ...     return await asyncio.gather(queue.submit("one"), queue.submit("three"))
        >>> asyncio.run(main())
        [3, 5]
    """

    def __init__(
        self,
        process: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        limits: BatchLimits | None = None,
    ) -> None:
        self.limits = BatchLimits() if limits is None else limits
        self._process = process
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[_Entry[Item, Result], None] = {}
        # The event loop only keeps weak references to tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def num_waiting(self) -> int:
        """Number of items that wait for a batch."""
        return len(self._waiting)

    async def submit(self, item: Item, timeout: float | None = None) -> Result:
        """Return the result of one item.

        Args:
            item: The item.
            timeout: Maximum seconds until the result; ``None`` for no limit.

        Raises:
            QueueFullError: If too many items are waiting.
            asyncio.TimeoutError: If there is no result in time.
            Exception: The error that ``process`` raised for the item.
        """
        (result,) = await self.submit_all([item], timeout)
        if isinstance(result, Exception):
            raise result
        return result

    async def submit_all(self, items: Sequence[Item], timeout: float | None = None) -> list[Result | Exception]:
        """Return the result of each item, or the error that ``process`` raised for it, in order.

        The items may be divided among several batches. Either all items are accepted, or none.

        Args:
            items: The items.
            timeout: Maximum seconds until the last result; ``None`` for no limit.

        Raises:
            QueueFullError: If the queue has no place for all items.
            asyncio.TimeoutError: If a result is missing in time; all results are then discarded.
        """
        if not items:
            return []
        entries = self._enter(items)
        try:
            # Unlike asyncio.wait_for of Python 3.11 and earlier, asyncio.wait never ignores a cancellation.
            await asyncio.wait([entry.outcome for entry in entries], timeout=timeout)
            if not all(entry.outcome.done() for entry in entries):
                raise asyncio.TimeoutError
            return [entry.outcome.result() for entry in entries]
        finally:
            for entry in entries:
                entry.outcome.cancel()
                self._waiting.pop(entry, None)

    def _enter(self, items: Sequence[Item]) -> list[_Entry[Item, Result]]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._is_collecting = loop, False
            self._waiting.clear()
            self._tasks.clear()
            self._is_full, self._slots = asyncio.Event(), asyncio.Semaphore(self.limits.max_concurrent)
        if self.num_waiting + len(items) > self.limits.max_pending:
            raise QueueFullError(
                f"{self.num_waiting} items are waiting, and there is no place for {len(items)} more: max_pending is "
                f"{self.limits.max_pending}"
            )
        entries = [_Entry[Item, Result](item, loop.time(), loop.create_future()) for item in items]
        self._waiting.update(dict.fromkeys(entries))
        if self.num_waiting >= self.limits.max_batch:
            self._is_full.set()
        if not self._is_collecting:
            self._is_collecting = True
            self._start(loop.create_task(self._collect()))
        return entries

    def _start(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _collect(self) -> None:
        """Start batches as long as items wait."""
        while self._waiting:
            await self._slots.acquire()
            await self._until_full()
            batch = list(islice(self._waiting, self.limits.max_batch))
            for entry in batch:
                del self._waiting[entry]
            if self._waiting:
                self._start(asyncio.get_running_loop().create_task(self._run(batch)))
                continue
            # The last batch needs no task of its own. Items that arrive meanwhile start another one that collects.
            self._is_collecting = False
            await self._run(batch)
            return
        self._is_collecting = False

    async def _until_full(self) -> None:
        """Wait until there are enough items for a batch, or the first has waited long enough."""
        loop = asyncio.get_running_loop()
        # Callers that are ready in this iteration of the loop have not entered their items yet.
        await asyncio.sleep(0)
        while self._waiting and self.num_waiting < self.limits.max_batch:
            rest = next(iter(self._waiting)).entered + self.limits.max_wait - loop.time()
            if rest <= 0:
                return
            self._is_full.clear()
            is_full = asyncio.ensure_future(self._is_full.wait())
            await asyncio.wait([is_full], timeout=rest)
            is_full.cancel()

    async def _run(self, batch: Sequence[_Entry[Item, Result]]) -> None:
        try:
            outcomes = await self._outcomes([entry.item for entry in batch])
            for entry, outcome in zip(batch, outcomes, strict=True):
                if not entry.outcome.done():
                    entry.outcome.set_result(outcome)
        finally:
            self._slots.release()
            for entry in batch:
                entry.outcome.cancel()

    async def _outcomes(self, items: Sequence[Item]) -> list[Result | Exception]:
        if not items:
            return []
        try:
            results = list(await self._process(items))
            if len(results) != len(items):
                raise ValueError(f"process returned {len(results)} results for {len(items)} items")
        except Exception as error:
            if len(items) == 1:
                return [error]
        else:
            return [*results]
        half = len(items) // 2
        return [*await self._outcomes(items[:half]), *await self._outcomes(items[half:])]
