"""Concurrent work in an event loop, with limits of tasks and time, and in a thread that no exit waits for."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def for_each(
    items: Sequence[T], work: Callable[[T], Awaitable[None]], *, workers: int, deadline: float | None
) -> None:
    """Process items concurrently until all are done or the deadline has passed.

    No task is still running when this function returns, raises or is cancelled.

    Args:
        items: The items.
        work: Processes one item. The first exception that it raises ends all work and is raised.
        workers: Maximum number of items that are processed at the same time.
        deadline: Time of the event loop's clock at which running tasks are cancelled.

    Example:
        >>> done = []
        >>> async def note(item):
        ...     done.append(item)
        >>> asyncio.run(for_each("ab", note, workers=2, deadline=None))
        >>> done
        ['a', 'b']
    """
    loop = asyncio.get_running_loop()
    queue = iter(items)

    async def run() -> None:
        for item in queue:
            await work(item)

    remaining = None if deadline is None else deadline - loop.time()
    if not items or (remaining is not None and remaining <= 0):
        return
    tasks = [loop.create_task(run()) for _ in range(min(workers, len(items)))]
    try:
        done, _ = await asyncio.wait(tasks, timeout=remaining, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await _cancel(tasks)
    for task in done:
        task.result()


async def within(seconds: float, coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, or cancel it after ``seconds``.

    Unlike ``asyncio.wait_for`` of Python 3.11 and earlier, it never ignores a cancellation of the caller.

    Raises:
        asyncio.TimeoutError: If the coroutine takes longer.
    """
    task = asyncio.ensure_future(coroutine)
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
    finally:
        await _cancel([task])
    if not done:
        raise asyncio.TimeoutError
    return task.result()


async def _cancel(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    """Cancel unfinished tasks, and wait until they have ended."""
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        task.cancel()
    if unfinished:
        await asyncio.gather(*unfinished, return_exceptions=True)


class LoopThread:
    """Runs coroutines in an event loop, in a thread that does not keep the process alive.

    The interpreter waits at its exit for the threads of ``ThreadPoolExecutor``, and so forever for a call that does not
    return.

    Args:
        name: Name of the thread.
        on_death: Called with the exception by which a task has ended the loop, such as ``SystemExit``.

    Example:
        >>> thread = LoopThread("sleeps")
        >>> thread.submit(asyncio.sleep(0, "done")).result()
        'done'
        >>> thread.close()
    """

    def __init__(self, name: str, on_death: Callable[[BaseException], None] | None = None) -> None:
        self.is_alive = True
        """Whether the loop runs, and takes coroutines."""
        self._loop = asyncio.new_event_loop()
        self._on_death = on_death
        self._lock = threading.Lock()
        self._futures: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except BaseException as error:
            self._refuse()
            if self._on_death is not None:
                self._on_death(error)
        finally:
            self._refuse()
            self._finish()

    def _refuse(self) -> None:
        with self._lock:
            self.is_alive = False

    def _finish(self) -> None:
        """Cancel all coroutines; their callers wait for them."""
        # Coroutines that were submitted last become tasks, and in the end results are passed on.
        self._go_on(asyncio.sleep(0))
        while tasks := asyncio.all_tasks(self._loop):
            self._go_on(_cancel([*tasks]))
        self._go_on(asyncio.sleep(0))
        for future in [*self._futures]:
            future.cancel()
        self._loop.close()

    def _go_on(self, coroutine: Coroutine[Any, Any, None]) -> None:
        # A coroutine that is cancelled can raise SystemExit, too.
        with suppress(BaseException):
            self._loop.run_until_complete(coroutine)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine.

        Raises:
            RuntimeError: If the thread has ended or is closed.
        """
        with self._lock:
            if self.is_alive:
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
                self._futures.add(future)
                future.add_done_callback(self._futures.discard)
                return future
        coroutine.close()
        raise RuntimeError(f"the thread {self._thread.name!r} has ended")

    def close(self, seconds: float = 5.0) -> None:
        """Cancel all coroutines and end the thread.

        Args:
            seconds: How long to wait for it. A coroutine that blocks the loop cannot be ended.
        """
        with self._lock:
            if self.is_alive:
                self.is_alive = False
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(seconds)
