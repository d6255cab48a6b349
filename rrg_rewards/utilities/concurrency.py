"""Concurrent work in an event loop, with limits of tasks and time, and in a thread that no exit waits for."""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
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


class BackgroundThread:
    """Makes calls one after the other in a thread that does not keep the process alive.

    The interpreter waits at its exit for the threads of ``ThreadPoolExecutor``, and so forever for a call that does not
    return.

    Args:
        name: Name of the thread.

    Example:
        >>> thread = BackgroundThread("sums")
        >>> thread.submit(sum, [1, 2]).result()
        3
        >>> thread.close()
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_make_calls, args=(self._calls,), name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., T], *args: Any) -> "Future[T]":
        """Return a future of the result of a call."""
        future: Future[T] = Future()
        self._calls.put((future, lambda: function(*args)))
        return future

    def close(self) -> None:
        """Cancel the calls that have not begun, and end the thread after the current one, without waiting for it."""
        while not self._calls.empty():
            call = self._calls.get()
            if call is not None:
                call[0].cancel()
        self._calls.put(None)


def _make_calls(calls: "queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]") -> None:
    while (call := calls.get()) is not None:
        future, function = call
        if future.set_running_or_notify_cancel():
            try:
                result = function()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
        # The results and their arguments are not kept until the next call.
        del call, future, function
