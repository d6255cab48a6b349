"""HTTP clients that send report text only to addresses that the user allows, and limit replies."""

import ipaddress
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

Hook = Callable[[Any], Awaitable[None]]
"""Function that a client awaits with each request or reply."""

# Request replies without compression: 4 MB of gzip can expand to 1 GB.
_UNCOMPRESSED = {"Accept-Encoding": "identity"}
# URL parsers disagree on other characters (user names, backslashes, blanks, other alphabets). They are refused, because
# the host that is checked here might otherwise differ from the host that is called.
_ADDRESS = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?((?:/[A-Za-z0-9._~%-]*)*)")


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
