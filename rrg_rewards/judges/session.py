"""What evaluations that run at the same time in one event loop share: a client, and answers that are on their way."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

__all__ = ["Session", "Sessions"]

# Turns of the event loop in which a call gets its request onto the wire.
_TURNS = 12


class Session:
    """A client of one event loop, with what bounds and shares its calls.

    Args:
        client: The client, whose connections belong to the loop.
        concurrency: How many calls may be under way.
    """

    def __init__(self, client: Any, concurrency: int) -> None:
        self.client = client
        self.users = 0
        self._places = asyncio.Semaphore(concurrency)
        self._door = asyncio.Lock()
        self._asked: dict[str, asyncio.Future[str | None]] = {}

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """One of the places for calls, which are entered one after the other.

        Calls that begin in the same turn of the event loop take turns at every step, so that all requests are sent
        when the last is ready; where a server takes equally long for each, their answers come together again, and they
        never part.
        """
        async with self._places:
            await self._door.acquire()
            self._open_after(_TURNS)
            yield

    def _open_after(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._open_after, turns - 1)
        else:
            self._door.release()

    async def answer_of_another(self, key: str) -> str | None:
        """Answer to a question that another evaluation is asking, or ``None`` when nobody asks it any more."""
        while (asked := self._asked.get(key)) is not None:
            # Not awaited itself: a cancellation of this caller would cancel it for all.
            await asyncio.wait([asked])
            if (text := asked.result()) is not None:
                return text
        return None

    @contextmanager
    def asking(self, key: str) -> Iterator[Callable[[str], None]]:
        """Let others wait for an answer, until the block ends.

        Yields:
            A function to call with the answer, if there is a good one.
        """
        asked: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._asked[key] = asked
        try:
            yield asked.set_result
        finally:
            del self._asked[key]
            if not asked.done():
                asked.set_result(None)


class Sessions:
    """One session for each event loop that has a use for it.

    A trainer awaits its rewards in a loop of its own, and a metric makes a loop for each call, so that a client, which
    is bound to a loop, lives as long as there are evaluations in it.

    Args:
        make_client: Makes a client.
        close_client: Closes it.
        concurrency: How many calls may be under way in each loop.
    """

    def __init__(
        self, make_client: Callable[[], Any], close_client: Callable[[Any], Awaitable[None]], concurrency: int
    ) -> None:
        self._make_client = make_client
        self._close_client = close_client
        self._concurrency = concurrency
        self._sessions: dict[asyncio.AbstractEventLoop, Session] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """The running loop's session, for the length of a block."""
        loop = asyncio.get_running_loop()
        with self._lock:
            session = self._sessions.get(loop)
            if session is None:
                session = self._sessions[loop] = Session(self._make_client(), self._concurrency)
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
                await self._close_client(session.client)
