"""Retries of calls, and when a server is given up."""

import asyncio
import math
from datetime import datetime, timezone
from functools import partial

import pytest

from rrg_rewards.judges.server.retries import CallError, Retries, ServerHealth, retry_after_seconds

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("Thu, 01 Jan 2026 12:01:00 GMT", 60.0),
        ("Thu, 01 Jan 2026 11:59:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 12:00:10 -0000", 10.0),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("²", None),
        ("9" * 5000, math.inf),
        ("Thu, 01 Jan 99999999999999999999 12:00:30 GMT", None),
        ("Thu, 01 Jan 2026 12:00:30 +99999999999999999999", None),
        ("Mon, 01 Jan 0001 00:00:00 +2359", 0.0),
        (f"Thu, {'9' * 5000} Jan 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_seconds(header, seconds):
    assert retry_after_seconds(header, NOON) == seconds


class Clock:
    """A clock that advances when a coroutine sleeps."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.slept = []
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def run(clock, outcomes, health=None, **settings):
    """Run calls with the given outcomes; return the result and the number of retries."""
    outcomes = iter(outcomes)
    retries = []

    async def call():
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    policy = Retries(**{"most": 4, "first_pause": 1.0, "longest_hold": 60.0, **settings})
    health = health or ServerHealth(1, lambda: clock.now)
    return asyncio.run(policy.run(call, health, lambda: retries.append(1))), len(retries)


def test_retries_pause_longer_each_time(monkeypatch):
    clock = Clock(monkeypatch)
    assert run(clock, [CallError("connection", "x")] * 7 + ["good"], most=7) == ("good", 7)
    bounds = [1, 2, 4, 8, 16, 16, 16]
    assert all(bound / 2 <= slept <= bound for slept, bound in zip(clock.slept, bounds, strict=True))
    assert len(set(clock.slept)) == 7


def test_retries_raise_the_last_error(monkeypatch):
    errors = [CallError("connection", "first"), CallError("status", "last")]
    with pytest.raises(CallError, match="last"):
        run(Clock(monkeypatch), errors, most=1)


def test_retries_end_at_a_refusal(monkeypatch):
    clock = Clock(monkeypatch)
    with pytest.raises(CallError, match="no"):
        run(clock, [CallError("status", "no", passing=False), "good"])
    assert clock.slept == []


def test_retries_hold_all_calls_for_retry_after(monkeypatch):
    clock = Clock(monkeypatch)
    health = ServerHealth(1, lambda: clock.now)
    assert run(clock, [CallError("status", "busy", retry_after=30), "good"], health) == ("good", 1)
    assert clock.slept == [30]
    health.hold(5)
    run(clock, ["good"], health)
    assert clock.slept == [30, 5]


def test_retries_limit_retry_after(monkeypatch):
    clock = Clock(monkeypatch)
    run(clock, [CallError("status", "busy", retry_after=86400), "good"], longest_hold=60)
    assert clock.slept == [60]


def test_server_health_gives_up_on_a_server_without_answers(monkeypatch):
    clock = Clock(monkeypatch)
    health = ServerHealth(4, lambda: clock.now)
    attempts = []

    async def fail(item):
        attempts.append(item)
        raise CallError("deadline", "gone")

    for item in range(12):
        with pytest.raises(CallError):
            asyncio.run(Retries(4, 1.0, 60.0).run(partial(fail, item), health, lambda: None))
    # All attempts for the first item, one for each of the next seven, none for the rest.
    assert attempts == [0] * 5 + list(range(1, 8))
    with pytest.raises(CallError, match="given up") as error:
        health.check()
    assert error.value.kind == "deadline"


def test_server_health_forgets_lost_items_after_an_answer(monkeypatch):
    clock = Clock(monkeypatch)
    health = ServerHealth(1, lambda: clock.now)
    for _ in range(7):
        health.lost("status")
    assert not health.retries_pay
    assert run(clock, ["good"], health) == ("good", 0)
    assert health.retries_pay
    health.check()
