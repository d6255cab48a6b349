"""A free port that no other process is given before a server of the test listens at it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a port of 127.0.0.1. It stays bound, which servers that set ``SO_REUSEADDR`` may share, as all here do."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
