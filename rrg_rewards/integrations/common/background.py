"""An event loop in a thread of its own, in which a process scores."""

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
_LOCK = Lock()


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
