"""An event loop in a thread of its own, in which a process scores, and exceptions that would end it."""

import os
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

from rrg_rewards.utilities.concurrency import LoopThread

T = TypeVar("T")

_THREADS: dict[int, LoopThread] = {}
_LOCK = Lock()


class ExitError(RuntimeError):
    """Code that scores raised an exception that ends threads or tasks, such as ``SystemExit``; its cause."""


async def without_exits(result: Awaitable[T]) -> T:
    """Await a result, and turn exceptions that are no ``Exception`` into errors.

    ``SystemExit`` and ``KeyboardInterrupt`` would end the event loop of all callers, and ``CancelledError`` would be
    taken for their own.

    Raises:
        ExitError: If ``SystemExit``, ``KeyboardInterrupt``, ``CancelledError`` or the like is raised.

    Example:
        >>> import asyncio
        >>> async def leave():
        ...     raise SystemExit(1)
        >>> asyncio.run(without_exits(leave()))
        Traceback (most recent call last):
        ...
        rrg_rewards.integrations.common.background.ExitError: scoring raised SystemExit
    """
    try:
        return await result
    except (Exception, GeneratorExit):
        raise
    except BaseException as error:
        raise ExitError(f"scoring raised {type(error).__name__}") from error


def start_in_background(coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
    """Run a coroutine in the background loop of this process, which other threads and event loops share.

    Example:
        >>> async def answer():
        ...     return 42
        >>> start_in_background(answer()).result()
        42
    """
    # A forked process inherits the object, but not the thread.
    with _LOCK:
        thread = _THREADS.get(os.getpid())
        if thread is None or not thread.is_alive:
            thread = _THREADS[os.getpid()] = LoopThread("rrg-rewards")
        return thread.submit(coroutine)
