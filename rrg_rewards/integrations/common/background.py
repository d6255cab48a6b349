"""An event loop in a thread of its own, in which a process scores, and exceptions that would end it."""

import asyncio
import os
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
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
    return asyncio.run_coroutine_threadsafe(coroutine, _loop())


def _loop() -> asyncio.AbstractEventLoop:
    # A forked process inherits the loop, but not the thread that runs it.
    with _LOCK:
        loop = _LOOPS.get(os.getpid())
        if loop is None:
            loop = _LOOPS[os.getpid()] = asyncio.new_event_loop()
            Thread(target=loop.run_forever, name="rrg-rewards", daemon=True).start()
        return loop
