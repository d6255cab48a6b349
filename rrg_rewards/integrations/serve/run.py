"""Run a reward server in one or several processes."""

import asyncio
import gc
import ipaddress
import json
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors.multiprocess import Multiprocess

from rrg_rewards.integrations.serve.app import SHARED_FOLDER, make_app
from rrg_rewards.integrations.serve.settings import ServerOptions
from rrg_rewards.utilities.worker_pool import when_parent_ends

S = TypeVar("S", bound=socket.socket)

_log = logging.getLogger("uvicorn.error")

_BACKLOG = 2048


def bind(host: str, port: int, token: str | None, num_workers: int = 1) -> socket.socket:
    """Return a socket that is bound to an address.

    Args:
        host: Name or number of the address.
        port: Port; 0 for a free one.
        token: Token of the server.
        num_workers: Number of workers. Several need a system with ``SO_REUSEPORT``, such as Linux.

    Raises:
        ValueError: If the address can be reached from other machines and there is no token.
        OSError: If the address is not available.

    Example:
        >>> with bind("localhost", 0, token=None) as address:
        ...     address.getsockname()[0]
        '127.0.0.1'
        >>> bind("0.0.0.0", 0, token=None)
        Traceback (most recent call last):
        ...
        ValueError: 0.0.0.0 can be reached from other machines, which needs a token
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    if token is None and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise ValueError(f"{host} can be reached from other machines, which needs a token")
    # Without SO_REUSEPORT, the address of a running server is refused.
    listener = _bound(family, address, socket.socket)
    if num_workers == 1:
        return listener
    address = listener.getsockname()
    listener.close()
    return _WorkerSocket.bound(family, address)


def _bound(family: int, address: Any, kind: type[S], *options: int) -> S:
    """Return a bound socket of a class, with further options."""
    # asyncio sets TCP_NODELAY only for sockets that name TCP. Without it, the body of a reply waits up to 40 ms for the
    # client to acknowledge the headers.
    listener = kind(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        for option in (socket.SO_REUSEADDR, *options):
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener


class _WorkerSocket(socket.socket):
    """A bound socket whose copy in a worker process is another socket of the same address.

    The system distributes connections over the sockets that listen at an address. If all workers listened at one
    socket, the first of them that wakes would accept all waiting connections.
    """

    @classmethod
    def bound(cls, family: int, address: Any) -> "_WorkerSocket":
        """Return a socket that shares its address with others."""
        return _bound(family, address, cls, socket.SO_REUSEPORT)

    def __reduce__(self) -> tuple[Any, ...]:
        return _WorkerSocket.bound, (int(self.family), self.getsockname())


def run_server(options: ServerOptions, listener: socket.socket) -> bool:
    """Serve a reward until SIGTERM or SIGINT, after which running requests are finished.

    Args:
        options: The reward and its limits.
        listener: Bound socket, which is closed at the end.

    Returns:
        Whether the server could start.
    """
    config = server_config(options, partial(_make_app, options))
    with listener:
        if options.workers == 1:
            server = uvicorn.Server(config)
            # After its requests are finished, uvicorn raises the signal again, which would end the process with an
            # exit code other than 0.
            signal.signal(signal.SIGTERM, lambda *_: None)
            with suppress(SystemExit):
                server.run([listener])
            started: bool = server.started
            return started
        with tempfile.TemporaryDirectory(prefix="rrg-rewards-metrics-") as folder:
            os.environ[SHARED_FOLDER] = folder
            try:
                supervisor = _Supervisor(config, [listener])
                supervisor.run()
            finally:
                del os.environ[SHARED_FOLDER]
            return all(process.exitcode != STARTUP_FAILURE for process in supervisor.processes)


class _Supervisor(Multiprocess):  # type: ignore[misc]
    def init_processes(self) -> None:
        super().init_processes()
        self._close_other_ends()

    def keep_subprocess_alive(self) -> None:
        super().keep_subprocess_alive()
        self._close_other_ends()

    def _close_other_ends(self) -> None:
        # While this process holds a worker's end of their pipe, it waits for a dead worker until the time-out.
        for process in self.processes:
            process.child_conn.close()


def _make_app(options: ServerOptions) -> Starlette:
    if options.workers > 1:
        when_parent_ends(_end)
        torch.set_num_threads(max(1, torch.get_num_threads() // options.workers))
    try:
        app = make_app(options)
    except Exception as error:
        # One line, and the exit code after which a worker is not replaced.
        _log.error("the reward %r cannot start: %s: %s", options.reward.__name__, type(error).__name__, error)
        raise SystemExit(STARTUP_FAILURE) from None
    # Garbage collection would search the objects of torch and the reward again and again, and hold up all requests.
    gc.collect()
    gc.freeze()
    return app


def _end() -> None:
    """End this worker, whose supervisor has ended, after its running requests."""
    _log.error("the supervisor of the workers has ended; this worker ends")
    os.kill(os.getpid(), signal.SIGTERM)


def server_config(options: ServerOptions, make_app: Callable[[], ASGIApp]) -> uvicorn.Config:
    """Return uvicorn's configuration of a server.

    Args:
        options: Limits of the server.
        make_app: Makes the application, in the process of each worker.
    """
    return uvicorn.Config(
        make_app,
        factory=True,
        http=partial(_TimedConnection, options.timeout),
        # uvicorn counts the connection of the request, too.
        limit_concurrency=options.max_connections + 1,
        ws="none",
        workers=options.workers,
        # Access logs contain paths and queries.
        access_log=False,
        log_level="warning",
        lifespan="on",
        backlog=_BACKLOG,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=75,
        # A running request may take this long to arrive, and again to be scored.
        timeout_graceful_shutdown=int(2 * options.timeout) + 1,
        # A worker that loads a model or parses a large body answers late.
        timeout_worker_healthcheck=60,
    )


class _TimedConnection(H11Protocol):  # type: ignore[misc]
    """A connection whose requests must arrive in time.

    Args:
        timeout: Maximum seconds from the first byte of a request, or from the beginning of the connection, to the end
            of the request.
        options: Arguments of uvicorn's protocol.
    """

    def __init__(self, timeout: float, **options: Any) -> None:
        super().__init__(**options)
        self._timeout = timeout
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The time of the next request begins with its first byte, which may have come before the reply. Until then,
        # uvicorn's keep-alive counts.
        if self.conn.trailing_data[0]:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        """Limit the time of a request that has not arrived completely, and end the limit of one that has."""
        has_arrived = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if has_arrived or self.transport.is_closing():
            self._end_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._timeout, self._expire)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        if self.cycle is None or not self.cycle.response_started:
            body = json.dumps({"error": f"the request did not arrive within {self._timeout:g} s"}).encode()
            head = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close"
            self.transport.write(f"HTTP/1.1 408 \r\n{head}\r\n\r\n".encode() + body)
        self.transport.close()
