"""Connections of a reward server: how many there may be, and how long a request may take to arrive."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass
class Connections:
    """The connections of a process, and their limits.

    Args:
        most: Maximum number of connections.
        most_per_address: Maximum number of connections of one address.
        timeout: Maximum seconds from the first byte of a request, or from the beginning of a connection, to the end of
            the request.
    """

    most: int
    most_per_address: int
    timeout: float
    _per_address: Counter[str] = field(default_factory=Counter, init=False)
    # Those without a complete request, longest first.
    _waiting: dict["LimitedConnection", None] = field(default_factory=dict, init=False)

    def enter(self, connection: "LimitedConnection") -> bool:
        """Count a new connection, and return whether it may stay.

        If there are too many, the one that has waited longest for a request makes room. Clients that send none, or only
        a part of one, thus shut nobody out.
        """
        address = connection.address
        self._per_address[address] += 1
        alike = None
        if self._per_address[address] > self.most_per_address:
            alike = address
        elif self._per_address.total() <= self.most:
            return True
        for other in self._waiting:
            if alike in (None, other.address):
                other.refuse(503, "the server has too many connections, and this one has sent no request", {})
                return True
        return False

    def leave(self, connection: "LimitedConnection") -> None:
        """Forget a connection that has ended."""
        self._waiting.pop(connection, None)
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]

    def set_waiting(self, connection: "LimitedConnection", is_waiting: bool) -> None:
        """Note whether a connection has no complete request."""
        if is_waiting:
            self._waiting.setdefault(connection)
        else:
            self._waiting.pop(connection, None)


class LimitedConnection(H11Protocol):  # type: ignore[misc]
    """A connection whose requests must arrive in time, one of a limited number.

    Args:
        connections: All connections of the process.
        options: Arguments of uvicorn's protocol.
    """

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._all = connections
        self._deadline: asyncio.TimerHandle | None = None
        self.address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for a request, or refuse the connection."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self._all.enter(self):
            self.refuse(503, "the server has too many connections", {"Retry-After": "1"})
            return
        self._all.set_waiting(self, is_waiting=True)
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._is_waiting():
            self._start_deadline()
        else:
            self._end_deadline()
        self._all.set_waiting(self, self._is_waiting())

    def on_response_complete(self) -> None:
        """Wait for the next request. Its time begins with its first byte; until then, uvicorn's keep-alive counts."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self._all.set_waiting(self, self._is_waiting())
        # The first bytes may have come before the reply.
        if self._is_waiting() and self.conn.trailing_data[0]:
            self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end_deadline()
        self._all.leave(self)
        super().connection_lost(exc)

    def refuse(self, status: int, message: str, headers: Mapping[str, str]) -> None:
        """Reply with an error, unless a reply has begun, and end the connection."""
        self._end_deadline()
        self._all.set_waiting(self, is_waiting=False)
        if self.cycle is None or not self.cycle.response_started:
            body = json.dumps({"error": message}).encode()
            fields = {**headers, "Content-Type": "application/json", "Content-Length": len(body), "Connection": "close"}
            head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            self.transport.write(f"HTTP/1.1 {status} \r\n{head}\r\n".encode() + body)
        self.transport.close()

    def _is_waiting(self) -> bool:
        """Whether no request has arrived completely that has no reply yet."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._all.timeout, self._expire)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self.refuse(408, f"the request did not arrive within {self._all.timeout:g} s", {})
