"""Read the bodies of requests within limits of size and time."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request

from rrg_rewards.integrations.serve.errors import RequestError, busy
from rrg_rewards.integrations.serve.settings import ServerOptions
from rrg_rewards.utilities.concurrency import within

__all__ = ["Bodies", "json_object"]


class Bodies:
    """Reads bodies, and limits the memory that they take together.

    Args:
        options: Limits of the server.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytearray]:
        """Read a body, which counts as held until the block ends.

        Raises:
            RequestError: If the body is too long, compressed or too slow, or other bodies take all memory.
            starlette.requests.ClientDisconnect: If the client leaves.
        """
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise RequestError(415, "the body is compressed; send plain JSON")
        body = bytearray()
        try:
            try:
                await within(self._options.timeout, self._receive(request, body))
            except asyncio.TimeoutError:
                raise RequestError(408, f"the body did not arrive within {self._options.timeout:g} s") from None
            yield body
        finally:
            self._held -= len(body)

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
