"""How fast a server may be asked: so many requests and tokens a minute."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Admission", "RateLimiter", "RateStoppedError", "estimated_tokens", "expected_tokens"]

_MINUTE = 60.0
# A wait is looked at again this often: calls that ended meanwhile may have taken fewer tokens than expected.
_LONGEST_NAP = 1.0
# English reports and instructions, in the vocabularies of current models.
_CHARACTERS_PER_TOKEN = 4
# What a chat format adds to a message.
_TOKENS_PER_MESSAGE = 4
# Expected of an answer that nothing bounds.
_UNBOUNDED_ANSWER = 1024


class RateStoppedError(Exception):
    """Nobody is let in any more."""


@dataclass(eq=False)
class Admission:
    """A call that was let in.

    Args:
        begun: When, by the limiter's clock.
        tokens: Tokens that it takes: those expected, until they are known.
    """

    begun: float
    tokens: int

    def settle(self, tokens: int) -> None:
        """Note how many tokens the call took."""
        self.tokens = tokens


class RateLimiter:
    """Lets calls begin as fast as a server allows, and no faster.

    Requests are let in evenly, one each ``60 / requests_per_minute`` seconds, so that no 60 seconds see more of them,
    nor does a shorter time. Tokens are counted over the last 60 seconds: a call is let in when those that began in
    this time, and itself, take no more than ``tokens_per_minute``. A call counts with the tokens that it is expected to
    take until :meth:`Admission.settle` says how many they were. A call that is expected to take more than a minute's
    tokens is let in when no other is counted.

    One limiter serves any number of threads and event loops. Callers of one loop are let in in the order in which they
    came. A caller that is cancelled while it waits takes nothing.

    Args:
        requests_per_minute: Most requests a minute, or ``None``.
        tokens_per_minute: Most tokens a minute, or ``None``.
        clock: Seconds, rising.

    Raises:
        ValueError: If a limit is not positive.

    Example:
        >>> async def ask(limiter):
        ...     admission = await limiter.admit(tokens=300)
        ...     admission.settle(120)
        ...     return admission.tokens
        >>> asyncio.run(ask(RateLimiter(requests_per_minute=60, tokens_per_minute=10_000)))
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
        self._stopped = False
        self._lock = Lock()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def admit(self, tokens: int) -> Admission:
        """Wait until a call may begin.

        Args:
            tokens: Tokens that it is expected to take.

        Raises:
            RateStoppedError: If nobody is let in any more, also while waiting.
        """
        async with self._turn():
            while True:
                admission, wait = self._try(tokens)
                if admission is not None:
                    return admission
                await asyncio.sleep(min(wait, _LONGEST_NAP))

    def stop(self) -> None:
        """Let nobody in any more; who waits learns of it within a second."""
        self._stopped = True

    def _turn(self) -> asyncio.Lock:
        with self._lock:
            return self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def _try(self, tokens: int) -> tuple[Admission | None, float]:
        """Let a call in, or say how many seconds there are to wait at least."""
        with self._lock:
            if self._stopped:
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
    """About how many tokens the messages of a conversation take: a quarter of their characters.

    Example:
        >>> estimated_tokens(["No pleural effusion or pneumothorax."])
        13
    """
    return sum(_TOKENS_PER_MESSAGE + math.ceil(len(text) / _CHARACTERS_PER_TOKEN) for text in texts)


def expected_tokens(body: Mapping[str, Any]) -> int:
    """Tokens that a chat request takes at most, about: those of its messages, and the longest answer it allows.

    Example:
        >>> expected_tokens({"messages": [{"role": "user", "content": "Clear?"}], "max_tokens": 100})
        106
    """
    longest = body.get("max_tokens") or body.get("max_completion_tokens")
    answer = longest if isinstance(longest, int) else _UNBOUNDED_ANSWER
    return estimated_tokens(message["content"] for message in body["messages"]) + answer
