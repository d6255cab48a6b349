"""Retry failed HTTP calls, and give up on a server that does not answer."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TypeVar

from rrg_rewards.judges.base import FailureKind

# Longest pause, in multiples of the first.
_LONGEST_PAUSE = 16
# Minimum number of lost items after which the judge gives up on a server.
_FEWEST_LOST = 8

T = TypeVar("T")


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


class ServerHealth:
    """Whether a server answers, shared by all calls of an evaluation.

    An item is lost if all its attempts failed. After a lost item, each item gets one attempt until the server answers
    again. After ``limit`` lost items in a row, all further calls fail, so that a batch does not retry thousands of
    items on a server that does not run.

    Args:
        concurrency: Number of simultaneous calls. ``limit`` is twice this number, at least 8.
        clock: Clock of the event loop, in seconds.
    """

    def __init__(self, concurrency: int, clock: Callable[[], float]) -> None:
        self.limit = max(_FEWEST_LOST, 2 * concurrency)
        self._clock = clock
        self._not_before = 0.0
        self._lost = 0
        self._last_kind: FailureKind = "connection"

    @property
    def retries_pay(self) -> bool:
        """Whether failed calls are retried: no item was lost since the last answer."""
        return self._lost == 0

    def check(self) -> None:
        """Raise :class:`CallError` with the kind of the last lost item if ``limit`` items were lost."""
        if self._lost >= self.limit:
            raise CallError(self._last_kind, f"the server was given up: it failed {self._lost} items in a row")

    def served(self) -> None:
        """Record that the server answered, including a final refusal."""
        self._lost = 0

    def lost(self, kind: FailureKind) -> None:
        """Record a lost item with the kind of its last error."""
        self._lost += 1
        self._last_kind = kind

    def hold(self, seconds: float) -> None:
        """Pause all calls for a number of seconds."""
        self._not_before = max(self._not_before, self._clock() + seconds)

    async def ready(self) -> None:
        """Wait until the pause is over."""
        while (wait := self._not_before - self._clock()) > 0:
            await asyncio.sleep(wait)


@dataclass(frozen=True)
class Retries:
    """Retries failed calls after growing pauses.

    Args:
        most: Maximum number of retries after the first attempt.
        first_pause: Seconds before the first retry. Further pauses are as in
            :class:`rrg_rewards.judges.server.settings.ServerSettings`.
        longest_hold: Maximum seconds to wait for a server's ``Retry-After``.
    """

    most: int
    first_pause: float
    longest_hold: float

    async def run(self, call: Callable[[], Awaitable[T]], health: ServerHealth, on_retry: Callable[[], None]) -> T:
        """Repeat a call until it succeeds.

        Args:
            call: The call; raises :class:`CallError` if there is no answer.
            health: State of the server.
            on_retry: Called before each retry.

        Raises:
            CallError: The error of the last attempt.
        """
        attempt = 0
        while True:
            await health.ready()
            health.check()
            try:
                answer = await call()
            except CallError as error:
                if not error.passing:
                    health.served()
                    raise
                if attempt >= self.most or not health.retries_pay:
                    health.lost(error.kind)
                    raise
                await self._pause(attempt, error, health)
            else:
                health.served()
                return answer
            attempt += 1
            on_retry()

    async def _pause(self, attempt: int, error: CallError, health: ServerHealth) -> None:
        if error.retry_after is not None:
            # `ready` then delays the next attempt of every call.
            health.hold(min(error.retry_after, self.longest_hold))
            return
        await asyncio.sleep(backoff_seconds(attempt, self.first_pause))
