"""Limits of requests and tokens per minute."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

_MINUTE = 60.0
# Maximum seconds between checks of a waiting call. Finished calls may have used fewer tokens than expected.
_LONGEST_NAP = 1.0
# For English reports and instructions in the vocabularies of current models.
CHARACTERS_PER_TOKEN = 4
# Tokens that a chat format adds to a message.
_TOKENS_PER_MESSAGE = 4
# Expected tokens of an answer without a maximum.
_UNBOUNDED_ANSWER = 1024


class RateStoppedError(Exception):
    """The limiter was stopped."""


@dataclass(eq=False)
class Admission:
    """An admitted call.

    Args:
        begun: Time of the admission, by the limiter's clock.
        tokens: Number of tokens of the call; the expected number until the true number is known.
    """

    begun: float
    tokens: int

    def settle(self, tokens: int) -> None:
        """Record the true number of tokens."""
        self.tokens = tokens


class RateLimiter:
    """Delays calls to keep limits of requests and tokens per minute.

    Requests are evenly spaced, one every ``60 / requests_per_minute`` seconds. Tokens are counted over the last 60
    seconds: a call is admitted if it and the calls that began in this time use at most ``tokens_per_minute``. A call
    counts with its expected tokens until :meth:`Admission.settle` records the true number. A call with more expected
    tokens than ``tokens_per_minute`` is admitted if no other call is counted.

    A limiter can be used from several threads and event loops. Calls of one loop are admitted in order of arrival. A
    call that is cancelled while it waits does not count.

    Args:
        requests_per_minute: Maximum number of requests per minute, or ``None``.
        tokens_per_minute: Maximum number of tokens per minute, or ``None``.
        clock: Monotonic clock in seconds.

    Raises:
        ValueError: If a limit is not positive.

    Example:
        >>> async def call(limiter):
        ...     admission = await limiter.admit(tokens=300)
        ...     admission.settle(120)
        ...     return admission.tokens
        >>> asyncio.run(call(RateLimiter(requests_per_minute=60, tokens_per_minute=10_000)))
        120
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = {"requests_per_minute": requests_per_minute, "tokens_per_minute": tokens_per_minute}
        for name, limit in limits.items():
            if limit is not None and not 0 < limit < math.inf:
                raise ValueError(f"{name} must be positive, got {limit}")
        self.requests_per_minute = requests_per_minute
        self.tokens_per_minute = tokens_per_minute
        self._clock = clock
        self._next_request = -math.inf
        self._counted: deque[Admission] = deque()
        self.is_stopped = False
        self._lock = Lock()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def admit(self, tokens: int) -> Admission:
        """Wait until a call may begin.

        Args:
            tokens: Expected tokens of the call.

        Raises:
            RateStoppedError: If the limiter was stopped, or is stopped while the call waits.
        """
        async with self._turn():
            while True:
                admission, wait = self._try(tokens)
                if admission is not None:
                    return admission
                await asyncio.sleep(min(wait, _LONGEST_NAP))

    def stop(self) -> None:
        """Admit no further call; waiting calls raise within a second."""
        self.is_stopped = True

    def _turn(self) -> asyncio.Lock:
        with self._lock:
            return self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def _try(self, tokens: int) -> tuple[Admission | None, float]:
        """Admit a call, or return the minimum number of seconds to wait."""
        with self._lock:
            if self.is_stopped:
                raise RateStoppedError
            now = self._clock()
            wait = max(self._next_request - now, self._wait_for_tokens(tokens, now))
            if wait > 0:
                return None, wait
            admission = Admission(now, tokens)
            if self.requests_per_minute is not None:
                self._next_request = now + _MINUTE / self.requests_per_minute
            if self.tokens_per_minute is not None:
                self._counted.append(admission)
            return admission, 0.0

    def _wait_for_tokens(self, tokens: int, now: float) -> float:
        if self.tokens_per_minute is None:
            return 0.0
        while self._counted and self._counted[0].begun + _MINUTE <= now:
            self._counted.popleft()
        excess = sum(admission.tokens for admission in self._counted) + tokens - self.tokens_per_minute
        wait = 0.0
        for admission in self._counted:
            if excess <= 0:
                break
            excess -= admission.tokens
            wait = admission.begun + _MINUTE - now
        return wait


def estimated_tokens(texts: Iterable[str]) -> int:
    """Estimate the number of tokens of messages: one for four characters, and four for each message.

    Example:
        >>> estimated_tokens(["No pleural effusion or pneumothorax."])
        13
    """
    return sum(_TOKENS_PER_MESSAGE + math.ceil(len(text) / CHARACTERS_PER_TOKEN) for text in texts)


def expected_tokens(body: Mapping[str, Any]) -> int:
    """Estimate the maximum number of tokens of a request: its messages, and the longest answer that it allows.

    Example:
        >>> expected_tokens({"messages": [{"role": "user", "content": "Clear?"}], "max_tokens": 100})
        106
    """
    longest = body.get("max_tokens") or body.get("max_completion_tokens")
    answer = longest if isinstance(longest, int) else _UNBOUNDED_ANSWER
    return estimated_tokens(message["content"] for message in body["messages"]) + answer
