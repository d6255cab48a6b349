"""Calls to servers: allowed addresses, HTTP clients with limited replies, and retries."""

import asyncio
import ipaddress
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from rrg_rewards.judges.base import FailureKind

T = TypeVar("T")

Hook = Callable[[Any], Awaitable[None]]
"""Function that a client awaits with each request or reply."""

# Request replies without compression: 4 MB of gzip can expand to 1 GB.
_UNCOMPRESSED = {"Accept-Encoding": "identity"}
# URL parsers disagree on other characters (user names, backslashes, blanks, other alphabets). They are refused, because
# the host that is checked here might otherwise differ from the host that is called.
_ADDRESS = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?((?:/[A-Za-z0-9._~%-]*)*)")
# Longest pause, in multiples of the first.
_LONGEST_PAUSE = 16
# Minimum number of lost items after which the judge gives up on a server.
_FEWEST_LOST = 8


class Address(NamedTuple):
    """A server's address.

    Attributes:
        url: The address, without a slash at the end.
        host: The host in lower case.
        is_loopback: Whether the host is this machine.
        is_encrypted: Whether the address uses HTTPS.
    """

    url: str
    host: str
    is_loopback: bool
    is_encrypted: bool


def check_address(base_url: str, allow_remote: bool = False, name: str = "base_url", key: str = "api_key") -> Address:
    """Parse a server's address, and reject other machines unless they are allowed.

    Loopback addresses are ``localhost``, ``127.0.0.0/8`` and ``::1``, in these spellings only.

    Args:
        base_url: Address such as ``http://localhost:8000/v1``.
        allow_remote: Whether the host may be another machine.
        name: Name of the argument in errors.
        key: Name of the argument that takes a key, in errors.

    Raises:
        ValueError: If the address is not a plain HTTP address, contains a user name or password, or is on another
            machine and ``allow_remote`` is false.

    Example:
        >>> check_address("http://localhost:8000/v1/").is_loopback
        True
        >>> check_address("http://localhost.example.org/v1")
        Traceback (most recent call last):
        ...
        ValueError: base_url is on another machine, 'localhost.example.org', ... pass allow_remote=True
    """
    match = _ADDRESS.fullmatch(base_url)
    if match is None or int(match[3] or 0) > 65535:
        # Do not repeat the address, which may contain a password.
        raise ValueError(
            f"{name} must be a plain address such as http://localhost:8000/v1: http or https, a host, a port and a "
            f"path, without user name, password, query or fragment; a key is passed as {key}"
        )
    host = match[2].strip("[]").lower()
    is_loopback = host == "localhost" or _is_loopback_number(host)
    if not is_loopback and not allow_remote:
        raise ValueError(
            f"{name} is on another machine, {host!r}, and report text would leave this one. Serve the model on "
            "localhost, or, if the reports may go there, pass allow_remote=True"
        )
    return Address(base_url.rstrip("/"), host, is_loopback, match[1] == "https")


def _is_loopback_number(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ReplyRefusedError(Exception):
    """A reply that is not read. The message contains none of its text."""


def make_http_client(
    client_class: Callable[..., Any],
    limits_class: Callable[..., Any],
    *,
    connections: int,
    most_bytes: int,
    trust_env: bool,
    verify: Any,
    headers: Mapping[str, Any] | None = None,
    before_request: Hook | None = None,
) -> Any:
    """Make an asynchronous HTTP client that follows no redirects and limits the size of replies.

    The client limits no time, because it would limit the time of each read and not of a whole call.

    Args:
        client_class: Class of the client, such as ``AsyncClient`` of httpx2. The package openai has a class of its own.
        limits_class: Class ``Limits`` of the same package.
        connections: Maximum number of connections, which are kept open.
        most_bytes: Maximum size of a reply, which is read into memory.
        trust_env: Whether to use proxies from the environment.
        verify: Whether to verify certificates, or a context with certificates.
        headers: Headers of each request.
        before_request: Hook for requests that are ready to be sent.
    """
    return client_class(
        limits=limits_class(max_connections=connections, max_keepalive_connections=connections),
        headers={**_UNCOMPRESSED, **(headers or {})},
        event_hooks={
            "request": [] if before_request is None else [before_request],
            "response": [partial(_limit_reply, most_bytes)],
        },
        timeout=None,
        # A redirect or a proxy could send report text to a host that the user did not allow.
        follow_redirects=False,
        trust_env=trust_env,
        verify=verify,
    )


async def _limit_reply(most_bytes: int, response: Any) -> None:
    """Refuse a compressed reply, and a reply of more than ``most_bytes`` while it is read."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ReplyRefusedError("the server compressed its reply, although it was asked not to")
    # Versions of openai use different HTTP packages.
    package = type(response).__module__.partition(".")[0]
    response.stream = _limited_stream(package)(response.stream, most_bytes)


@cache
def _limited_stream(package: str) -> type[Any]:
    base: type[Any] = import_module(package).AsyncByteStream

    class LimitedStream(base):  # type: ignore[misc]
        def __init__(self, stream: Any, most_bytes: int) -> None:
            self._stream = stream
            self._most_bytes = most_bytes

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._stream:
                size += len(chunk)
                if size > self._most_bytes:
                    raise ReplyRefusedError(f"the server's reply is longer than {self._most_bytes} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    return LimitedStream


class CallError(Exception):
    """A call without an answer.

    Args:
        kind: ``deadline``, ``connection`` or ``status``.
        reason: Description of the error, without report text.
        passing: Whether the same call may succeed later.
        retry_after: Seconds that the server requests to wait, if any.
    """

    def __init__(
        self, kind: FailureKind, reason: str, *, passing: bool = True, retry_after: float | None = None
    ) -> None:
        super().__init__(reason)
        self.kind: FailureKind = kind
        self.passing = passing
        self.retry_after = retry_after


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """Parse a ``Retry-After`` header, which contains seconds or a date.

    Returns:
        Seconds, not negative; ``None`` without a header or if it cannot be parsed.

    Example:
        >>> now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=timezone.utc)
        >>> retry_after_seconds("Thu, 01 Jan 2026 12:00:30 GMT", now), retry_after_seconds("soon", now)
        (30.0, None)
    """
    if header is None:
        return None
    text = header.strip()
    # Digits only, because float() also accepts "nan" and "infinity".
    if text.replace(".", "", 1).isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return max(0.0, (moment - now).total_seconds())
    except (ValueError, OverflowError):  # No date, or one beyond the range of datetime.
        return None


def backoff_seconds(attempt: int, first_pause: float) -> float:
    """Return the pause before a retry.

    Each pause is twice as long as the one before, up to 16 times the first. Up to half of it is removed at random, so
    that calls do not retry at the same moment.

    Args:
        attempt: Number of earlier retries.
        first_pause: Seconds of the longest first pause.

    Example:
        >>> 4.0 <= backoff_seconds(3, first_pause=1.0) <= 8.0
        True
    """
    return first_pause * min(1 << attempt, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)


class Retries:
    """Repeats failed calls of an evaluation after growing pauses, and gives up on a server that does not answer.

    An item is lost if all its attempts failed. After a lost item, each item gets one attempt until the server answers
    again. After twice ``concurrency`` lost items in a row (at least 8), all further calls fail, so that a batch does
    not retry thousands of items on a server that does not run. A ``Retry-After`` of the server pauses all calls.

    Args:
        most: Maximum number of retries after the first attempt.
        first_pause: Seconds before the first retry, as for :func:`backoff_seconds`.
        longest_hold: Maximum seconds to wait for a server's ``Retry-After``.
        concurrency: Number of simultaneous calls.
        clock: Clock of the event loop, in seconds.
    """

    def __init__(
        self, most: int, first_pause: float, longest_hold: float, concurrency: int, clock: Callable[[], float]
    ) -> None:
        self._most, self._first_pause, self._longest_hold = most, first_pause, longest_hold
        self._most_lost = max(_FEWEST_LOST, 2 * concurrency)
        self._clock = clock
        self._not_before = 0.0
        self._lost = 0
        self._last_kind: FailureKind = "connection"

    async def run(self, call: Callable[[], Awaitable[T]], on_retry: Callable[[], None]) -> T:
        """Repeat a call until it succeeds.

        Args:
            call: The call; raises :class:`CallError` if there is no answer.
            on_retry: Called before each retry.

        Raises:
            CallError: The error of the last attempt, or of the last lost item if the server was given up.
        """
        attempt = 0
        while True:
            while (wait := self._not_before - self._clock()) > 0:
                await asyncio.sleep(wait)
            if self._lost >= self._most_lost:
                raise CallError(self._last_kind, f"the server was given up: it failed {self._lost} items in a row")
            try:
                answer = await call()
            except CallError as error:
                if not error.passing:
                    # A final refusal is an answer, too.
                    self._lost = 0
                    raise
                if attempt >= self._most or self._lost:
                    self._lost, self._last_kind = self._lost + 1, error.kind
                    raise
                if error.retry_after is None:
                    await asyncio.sleep(backoff_seconds(attempt, self._first_pause))
                else:
                    hold = min(error.retry_after, self._longest_hold)
                    self._not_before = max(self._not_before, self._clock() + hold)
            else:
                self._lost = 0
                return answer
            attempt += 1
            on_retry()
