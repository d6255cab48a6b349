"""Bodies of requests: their size, the memory that they take, and their contents as JSON."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request

from rrg_rewards.integrations.serve.requests import Dialect, RequestError, Sample, busy
from rrg_rewards.integrations.serve.settings import ServerOptions

# Bytes of a body that takes about a millisecond to parse.
_SMALL = 64 * 1024
# Of the most completions that may wait: messages, parts and columns that are lists.
_VALUES_PER_COMPLETION = 64


class Bodies:
    """Reads bodies, and limits the memory that they take together.

    Args:
        options: Limits of the server.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._held = 0
        # One thread, so that several long bodies do not take the memory of their contents at a time.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rrg-rewards-bodies")

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytearray]:
        """Read a body, which counts as held until the block ends.

        Raises:
            RequestError: If the body is too long or compressed, or other bodies take all memory.
            starlette.requests.ClientDisconnect: If the client leaves, or is too slow.
        """
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise RequestError(415, "the body is compressed; send plain JSON")
        body = bytearray()
        try:
            await self._receive(request, body)
            yield body
        finally:
            self._held -= len(body)

    async def samples(self, dialect: Dialect, body: bytearray) -> list[Sample]:
        """Return the samples of a request, without blocking the event loop for long.

        Raises:
            RequestError: If the body is no JSON, or not that of the dialect.
        """
        if len(body) <= _SMALL:
            return dialect.samples(json_object(body), self._options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._samples, dialect, body)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _samples(self, dialect: Dialect, body: bytearray) -> list[Sample]:
        most = _VALUES_PER_COMPLETION * self._options.max_pending
        if has_more_values(body, most):
            raise RequestError(413, f"the body has more than {most} values; send fewer completions")
        return dialect.samples(json_object(body), self._options)

    async def _receive(self, request: Request, body: bytearray) -> None:
        limit = self._options.max_request_bytes
        error: RequestError | None = None
        discarded = 0
        async for chunk in request.stream():
            if error is None and len(body) + len(chunk) > limit:
                error = RequestError(413, f"the body is longer than {limit} bytes; send fewer completions")
            if error is None and self._held + len(chunk) > self._options.max_total_bytes:
                error = busy("the bodies of other requests take all memory that requests may take")
            if error is None:
                self._held += len(chunk)
                body += chunk
                continue
            # A client reads the reply only after it has sent the body.
            discarded += len(chunk)
            if discarded > self._options.max_total_bytes:
                raise error
        if error is not None:
            raise error


def has_more_values(body: bytes | bytearray, most: int) -> bool:
    """Whether JSON has more values than ``most``, without parsing it.

    A megabyte of JSON can have half a million values, which take a hundred times its memory and seconds to parse.

    Example:
        >>> has_more_values(b'{"completions": ["a, [b]", []], "reference": ["c", null]}', most=7)
        False
    """
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 2 * most:
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) > most


def json_object(body: bytes | bytearray) -> Mapping[str, Any]:
    """Parse a body that must be a JSON object.

    Raises:
        RequestError: If it is not.

    Example:
        >>> json_object(b'{"completions": []}')
        {'completions': []}
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body must be JSON in UTF-8 ({type(error).__name__})") from None
    if not isinstance(content, dict):
        raise RequestError(400, f"the body must be a JSON object, got {type(content).__name__}")
    return content
