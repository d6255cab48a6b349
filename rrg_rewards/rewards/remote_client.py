"""HTTP calls to reward servers, with retries on other addresses."""

import asyncio
import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from rrg_rewards.judges.server.http_client import check_address
from rrg_rewards.judges.server.retries import CallError, retry_after_seconds
from rrg_rewards.utilities.imports import require

__all__ = ["RemoteOptions", "RewardClient", "TooLongError"]

# Longest pause, in multiples of the first.
_LONGEST_PAUSE = 16
# A reply has some hundred bytes for each completion.
_MOST_BYTES = 64 * 2**20
# Statuses other than 5xx after which a retry may succeed.
_PASSING_STATUSES = frozenset({408, 425, 429})
_TOO_LONG = 413
_SHOWN = 300


class TooLongError(Exception):
    """A request is too long for the server."""


@dataclass(frozen=True)
class RemoteOptions:
    """Addresses and limits of a :class:`rrg_rewards.rewards.RemoteReward`, which takes each as a keyword argument.

    Args:
        allow_remote: Whether report text may be sent to another machine.
        token_variable: Environment variable with the token of the servers, read at each call.
        batch_size: Maximum number of completions in a request.
        concurrency: Maximum number of requests at a time in a call.
        timeout: Maximum seconds of a request.
        deadline: Maximum seconds of a call with all its requests and retries; ``None`` for no limit.
        max_retries: How often a request is repeated after it failed at all addresses.
        first_pause: Seconds before the first repetition. Each further pause is twice as long, up to 16 times the first.
            Up to half of each pause is removed at random. A server's ``Retry-After`` replaces the pause.

    Raises:
        ValueError: If a limit is out of its range.
    """

    allow_remote: bool = False
    token_variable: str = "RRG_REWARDS_TOKEN"
    batch_size: int = 64
    concurrency: int = 16
    timeout: float = 60.0
    deadline: float | None = None
    max_retries: int = 4
    first_pause: float = 0.5

    def __post_init__(self) -> None:
        for name, least in {"batch_size": 1, "concurrency": 1, "max_retries": 0, "first_pause": 0}.items():
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("timeout", "deadline"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


class RewardClient:
    """Calls reward servers that serve the same reward.

    Args:
        urls: Addresses of the servers.
        options: Limits.

    Raises:
        ValueError: If there is no address, or one is not a plain HTTP address or is on another machine without
            ``allow_remote``.
    """

    def __init__(self, urls: str | Sequence[str], options: RemoteOptions) -> None:
        given = [urls] if isinstance(urls, str) else list(urls)
        if not given:
            raise ValueError("urls must contain at least one address")
        self.urls = [
            check_address(url, options.allow_remote, "urls", "the token in token_variable").url for url in given
        ]
        self.options = options
        self._turn = random.randrange(len(self.urls))

    def session(self) -> Any:
        """Return an HTTP session, which is an asynchronous context manager."""
        aiohttp = require("aiohttp", extra="remote")
        token = os.environ.get(self.options.token_variable)
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        timeout = aiohttp.ClientTimeout(total=self.options.timeout)
        # Environment variables with proxies are ignored: a proxy would see the reports.
        return aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=False)

    async def call(self, session: Any, method: str, path: str, content: bytes | None) -> Any:
        """Return the JSON of a reply, from the first address that gives one.

        Args:
            session: Result of :meth:`session`.
            method: ``GET`` or ``POST``.
            path: Path at each address.
            content: Body of the request.

        Raises:
            CallError: If all attempts failed.
            TooLongError: If the request is too long.
            ValueError: If a server refuses the request, which it would do again.
        """
        self._turn += 1
        first = self._turn
        for attempt in range(self.options.max_retries + 1):
            errors = []
            for place in range(len(self.urls)):
                url = self.urls[(first + place) % len(self.urls)]
                try:
                    return await self._call_address(session, method, url + path, content)
                except CallError as error:
                    errors.append(error)
            if attempt < self.options.max_retries:
                await asyncio.sleep(self._pause(attempt, errors))
        raise errors[-1]

    def _pause(self, attempt: int, errors: Sequence[CallError]) -> float:
        requested = [error.retry_after for error in errors if error.retry_after is not None]
        if len(requested) == len(errors):
            return min([*requested, self.options.timeout])
        longest = self.options.first_pause * min(1 << attempt, _LONGEST_PAUSE)
        return longest * random.uniform(0.5, 1.0)

    async def _call_address(self, session: Any, method: str, url: str, content: bytes | None) -> Any:
        aiohttp = require("aiohttp", extra="remote")
        try:
            async with session.request(method, url, data=content, allow_redirects=False) as response:
                body = await _read(response)
                status, headers = response.status, response.headers
        except asyncio.TimeoutError:
            raise CallError("deadline", f"no reply within {self.options.timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise CallError("connection", f"the connection failed ({type(error).__name__})") from None
        reply = _parse(body)
        if status == 200:
            if reply is None:
                raise CallError("malformed", "the reply is not a JSON object")
            return reply
        _raise_refusal(url, status, reply)
        retry_after = retry_after_seconds(headers.get("Retry-After"), datetime.now(timezone.utc))
        raise CallError("status", f"the server answered HTTP {status}", retry_after=retry_after)


async def _read(response: Any) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise CallError("malformed", f"the reply is longer than {_MOST_BYTES} bytes")
    return bytes(body)


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return reply if isinstance(reply, dict) else None


def _raise_refusal(url: str, status: int, reply: Any) -> None:
    """Raise an error for a status after which a retry cannot succeed."""
    if status == _TOO_LONG:
        raise TooLongError
    if status in _PASSING_STATUSES or status >= 500:
        return
    # The messages of `rrg-rewards serve` contain no text of the request.
    told = f": {str(reply['error'])[:_SHOWN]}" if isinstance(reply, dict) and "error" in reply else ""
    raise ValueError(f"the reward server at {url} refuses the request with HTTP {status}{told}")
