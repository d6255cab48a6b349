"""When a call that found trouble is made again, and when a server is given up."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TypeVar

from rrg_rewards.judges.base import FailureKind

__all__ = ["CallError", "Retries", "ServerWatch", "retry_after_seconds"]

# A pause doubles up to so many times the first.
_LONGEST_PAUSE = 16
# A server is given up after twice as many lost items as there are calls at a time, and not before so many.
_FEWEST_LOST = 8

T = TypeVar("T")


class CallError(Exception):
    """A call that brought no answer.

    Args:
        kind: ``deadline``, ``connection`` or ``status``.
        reason: What happened, in words, without report text.
        passing: Whether the same call may succeed later.
        retry_after: Seconds that the server asks to be left alone.
    """

    def __init__(
        self, kind: FailureKind, reason: str, *, passing: bool = True, retry_after: float | None = None
    ) -> None:
        super().__init__(reason)
        self.kind: FailureKind = kind
        self.passing = passing
        self.retry_after = retry_after


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """Seconds that a ``Retry-After`` header asks for, given as seconds or as a date.

    Returns:
        Seconds, not negative; ``None`` without a header or for one that says nothing.

    Example:
        >>> now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=timezone.utc)
        >>> retry_after_seconds("Thu, 01 Jan 2026 12:00:30 GMT", now), retry_after_seconds("soon", now)
        (30.0, None)
    """
    if header is None:
        return None
    text = header.strip()
    # Digits only: float() would also take "nan" and "infinity".
    if text.replace(".", "", 1).isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - now).total_seconds())


class ServerWatch:
    """What callers of one server learn from each other: when to wait, and whether it serves anybody.

    An item that ran out of retries is lost. From the first lost item until the server serves somebody again, items get
    one attempt each; after ``limit`` lost in a row the server is given up, so that a batch does not run through all
    retries of thousands of items against a server that is gone.

    Args:
        concurrency: How many calls are made at a time.
        clock: Seconds of the event loop.
    """

    def __init__(self, concurrency: int, clock: Callable[[], float]) -> None:
        self.limit = max(_FEWEST_LOST, 2 * concurrency)
        self._clock = clock
        self._not_before = 0.0
        self._lost = 0
        self._last_kind: FailureKind = "connection"

    @property
    def retries_pay(self) -> bool:
        """Whether trouble may be that of one call only."""
        return self._lost == 0

    def check(self) -> None:
        """Raise if the server is given up.

        Raises:
            CallError: Of the kind by which the last item was lost.
        """
        if self._lost >= self.limit:
            raise CallError(self._last_kind, f"the server was given up: it failed {self._lost} items in a row")

    def served(self) -> None:
        """Note that the server answered, be it by a refusal that stays one."""
        self._lost = 0

    def lost(self, kind: FailureKind) -> None:
        """Note that an item ran out of attempts, and by what."""
        self._lost += 1
        self._last_kind = kind

    def hold(self, seconds: float) -> None:
        """Make all callers wait."""
        self._not_before = max(self._not_before, self._clock() + seconds)

    async def ready(self) -> None:
        """Wait until calls may be made."""
        while (wait := self._not_before - self._clock()) > 0:
            await asyncio.sleep(wait)


@dataclass(frozen=True)
class Retries:
    """How often and how soon a call is repeated.

    Args:
        most: Retries after the first attempt.
        first_pause: Seconds before the first retry; each further one doubles it, up to 16 times, less up to half by
            chance so that callers do not return together.
        longest_hold: Most seconds that a server's ``Retry-After`` is honoured for.
    """

    most: int
    first_pause: float
    longest_hold: float

    async def run(self, call: Callable[[], Awaitable[T]], watch: ServerWatch, on_retry: Callable[[], None]) -> T:
        """Call until it succeeds.

        Args:
            call: What to do; raises :class:`CallError` where it brought nothing.
            watch: What is known of the server.
            on_retry: Called before each retry.

        Raises:
            CallError: That of the last attempt.
        """
        attempt = 0
        while True:
            await watch.ready()
            watch.check()
            try:
                answer = await call()
            except CallError as error:
                if not error.passing:
                    watch.served()
                    raise
                if attempt >= self.most or not watch.retries_pay:
                    watch.lost(error.kind)
                    raise
                await self._pause(attempt, error, watch)
            else:
                watch.served()
                return answer
            attempt += 1
            on_retry()

    async def _pause(self, attempt: int, error: CallError, watch: ServerWatch) -> None:
        if error.retry_after is not None:
            # Waited for at the next attempt, by all callers.
            watch.hold(min(error.retry_after, self.longest_hold))
            return
        longest = self.first_pause * min(2**attempt, _LONGEST_PAUSE)
        await asyncio.sleep(longest * random.uniform(0.5, 1.0))
