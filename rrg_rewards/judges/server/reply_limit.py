"""Limit the size of a server's replies, which are read into memory."""

from collections.abc import AsyncIterator
from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["MOST_BYTES", "UNCOMPRESSED", "ReplyRefusedError", "limit_reply"]

MOST_BYTES = 8 * 2**20
"""Maximum size of a reply. An answer of 2,048 tokens has about 10 KB, with log-probabilities up to 4 MB."""

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Header that requests replies without compression: 4 MB of gzip can expand to 1 GB."""


class ReplyRefusedError(Exception):
    """A reply that is not read. The message contains none of its text."""


async def limit_reply(response: Any) -> None:
    """Refuse a compressed reply, and a reply of more than :data:`MOST_BYTES` while it is read.

    Args:
        response: An unread httpx response; a hook of the client passes it.

    Raises:
        ReplyRefusedError: For a compressed reply.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ReplyRefusedError("the server compressed its reply, although it was asked not to")
    # Versions of openai use different HTTP packages.
    package = type(response).__module__.partition(".")[0]
    response.stream = _limited_stream(package)(response.stream)


@cache
def _limited_stream(package: str) -> type[Any]:
    base: type[Any] = import_module(package).AsyncByteStream

    class LimitedStream(base):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._stream:
                size += len(chunk)
                if size > MOST_BYTES:
                    raise ReplyRefusedError(f"the server's reply is longer than {MOST_BYTES} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    return LimitedStream
