"""Client and pending answers, shared by simultaneous evaluations in one event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

__all__ = ["Session", "Sessions"]

# Number of iterations of the event loop in which a call sends its request.
_ITERATIONS = 12


class Session:
    """A client of one event loop, with a limit of simultaneous calls and with the pending answers.

    Args:
        client: Client of the package openai, whose connections belong to the event loop.
        concurrency: Maximum number of simultaneous calls.
    """

    def __init__(self, client: Any, concurrency: int) -> None:
        self.client = client
        self.users = 0
        self._slots = asyncio.Semaphore(concurrency)
        self._start = asyncio.Lock()
        self._pending: dict[str, asyncio.Future[str | None]] = {}

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a free slot, and start calls one after another.

        Calls that start together take turns in the event loop, and send their requests only when the last is ready.
        Their answers then arrive together, and the calls stay synchronised.
        """
        async with self._slots:
            await self._start.acquire()
            self._release_after(_ITERATIONS)
            yield

    def _release_after(self, iterations: int) -> None:
        if iterations:
            asyncio.get_running_loop().call_soon(self._release_after, iterations - 1)
        else:
            self._start.release()

    async def pending_answer(self, key: str) -> str | None:
        """Return an answer that another evaluation is requesting, or ``None`` if no evaluation gets one."""
        while (pending := self._pending.get(key)) is not None:
            # Awaiting the future itself would cancel it for all evaluations if this caller is cancelled.
            await asyncio.wait([pending])
            if (text := pending.result()) is not None:
                return text
        return None

    @contextmanager
    def announced(self, key: str) -> Iterator[Callable[[str], None]]:
        """Let other evaluations wait for an answer that is requested inside the block.

        Yields:
            A function that publishes the answer. If it is not called, one of the waiting evaluations requests the
            answer.
        """
        pending: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._pending[key] = pending
        try:
            yield pending.set_result
        finally:
            del self._pending[key]
            if not pending.done():
                pending.set_result(None)


class Sessions:
    """One session per event loop, which is closed after its last use.

    A client works only in the event loop in which it was created. A trainer has one loop for all rewards, and a metric
    creates a loop for each call.

    Args:
        open_client: Function that opens a client.
        concurrency: Maximum number of simultaneous calls in each loop.
    """

    def __init__(self, open_client: Callable[[], Any], concurrency: int) -> None:
        self._open_client = open_client
        self._concurrency = concurrency
        self._sessions: dict[asyncio.AbstractEventLoop, Session] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Use the session of the running event loop inside a block."""
        loop = asyncio.get_running_loop()
        with self._lock:
            session = self._sessions.get(loop)
            if session is None:
                session = self._sessions[loop] = Session(self._open_client(), self._concurrency)
            session.users += 1
        try:
            yield session
        finally:
            with self._lock:
                session.users -= 1
                is_last = session.users == 0
                if is_last:
                    del self._sessions[loop]
            if is_last:
                await session.client.close()
