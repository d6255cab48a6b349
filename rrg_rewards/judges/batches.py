"""Work on many items at a time in an event loop, within bounds of number and time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

__all__ = ["for_each", "within"]

T = TypeVar("T")


async def for_each(
    items: Sequence[T], work: Callable[[T], Awaitable[None]], *, workers: int, deadline: float | None
) -> None:
    """Work on items, some at a time, until all are done or the deadline is there.

    Nothing is under way any more when it returns, be it at the end, at the deadline, by an error or a cancellation.

    Args:
        items: What to work on.
        work: Works on an item. An error that it raises ends all work, and is raised.
        workers: How many items are worked on at a time.
        deadline: Time of the event loop's clock at which what is under way is cancelled and the rest left undone.

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
    """Result of a coroutine, which is cancelled when it takes longer.

    Unlike ``asyncio.wait_for`` of Python 3.11 and earlier it never takes a cancellation of the caller for a result, so
    that no caller goes on after it was told to end.

    Raises:
        asyncio.TimeoutError: If it takes longer.
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
    """Cancel what is not done, and wait until it is."""
    under_way = [task for task in tasks if not task.done()]
    for task in under_way:
        task.cancel()
    if under_way:
        await asyncio.gather(*under_way, return_exceptions=True)
