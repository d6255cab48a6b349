"""Addresses that report text may be sent to, limits of replies, retries, and requests and tokens per minute."""

import asyncio
import gzip
import math
from datetime import datetime, timezone
from functools import partial

import pytest
from fault_server import ITEMS, FaultServer, evaluate, kinds, make_judge, raw, reply_bytes, says, status
from tiny_task import good_answer

from rrg_rewards.judges import OpenAIJudge
from rrg_rewards.judges.server.calls import CallError, Retries, check_address, retry_after_seconds

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
# Sums of fractions of a minute.
SLACK = 1e-6


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/v1",
        "http://LOCALHOST/v1/",
        "https://localhost",
        "http://127.0.0.1:1/v1",
        "http://127.255.3.4",
        "http://[::1]:8000/v1",
    ],
)
def test_check_address_recognises_loopback(url):
    address = check_address(url)
    assert address.is_loopback
    assert not address.url.endswith("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost.evil.com/v1",
        "http://evil.com/localhost",
        "https://api.openai.com/v1",
        "http://127.0.0.1.evil.com",
        "http://127.0.0.1.:80",
        "http://0.0.0.0:8000",
        "http://[::2]/v1",
        "http://10.0.0.7/v1",
        "http://2130706433/v1",
        "http://127.1/v1",
    ],
)
def test_check_address_rejects_other_machines_unless_allowed(url):
    with pytest.raises(ValueError, match=r"^base_url .*allow_remote=True"):
        check_address(url)
    assert not check_address(url, allow_remote=True).is_loopback


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1@evil.com/v1",
        "http://user:secret@localhost/v1",
        "http://evil.com\\@localhost/v1",
        "http://localhost\\.evil.com/v1",
        "http://localhost#@evil.com/",
        "http://localhost?@evil.com/",
        "http://localhost:80:90/v1",
        "http://localhost:99999/v1",
        "http://local\thost/v1",
        " http://localhost/v1",
        "http://localhost/v1\n",
        "http://ⓛocalhost/v1",
        "http://localhost。evil.com/v1",
        "ftp://localhost/v1",
        "localhost:8000/v1",
        "//localhost/v1",
        "unix:///run/model.sock",
        "",
    ],
)
@pytest.mark.parametrize("allow_remote", [False, True])
def test_check_address_rejects_ambiguous_addresses(url, allow_remote):
    with pytest.raises(ValueError, match=r"^base_url .*plain address") as error:
        check_address(url, allow_remote)
    assert "secret" not in str(error.value)


def test_http_client_limits_replies(monkeypatch):
    monkeypatch.setattr("rrg_rewards.judges.server.judge._MOST_BYTES", 1000)
    bomb = reply_bytes(gzip.compress(b" " * 10**6), Content_Encoding="gzip")
    script = {
        "a": [says("x" * 1001)],
        "bb": [status(500, {"error": {"message": "x" * 1001}})],
        "ccc": [raw(bomb)],
        "dddd": [says(" " * 500 + good_answer("dddd"))],
    }
    with FaultServer(script) as server:
        results = evaluate(make_judge(server), ITEMS)
        assert server.asked == dict.fromkeys(ITEMS, 1)
    assert kinds(results) == ["status", "status", "status", 4]
    assert results[0].reason == results[1].reason == "the server's reply is longer than 1000 bytes"
    assert results[2].reason == "the server compressed its reply, although it was asked not to"
    assert server.requests[0].headers["accept-encoding"] == "identity"


def test_http_client_does_not_follow_redirects():
    with FaultServer() as other, FaultServer(otherwise=status(307, Location=f"{other.url}/x")) as server:
        assert kinds(evaluate(make_judge(server), ITEMS)) == ["status"] * 4
    assert other.requests == []


def test_http_client_does_not_use_proxies_of_the_environment(monkeypatch):
    with FaultServer() as proxy, FaultServer() as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert evaluate(make_judge(server), ["a"]) == [1]
        assert evaluate(make_judge(server, allow_remote=True), ["a"]) == [1]
        assert proxy.connections == 0


def test_remote_addresses_of_openai_judge_must_be_allowed():
    with pytest.raises(ValueError, match=r"^base_url "):
        OpenAIJudge("m", base_url="http://localhost.evil.com/v1")
    judge = OpenAIJudge("m", base_url="https://api.example.org/v1", allow_remote=True)
    assert "|host:api.example.org|" in judge.signature


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


def make_retries(clock, most=4, longest_hold=60.0, concurrency=1):
    return Retries(most, 1.0, longest_hold, concurrency, lambda: clock.now)


def run(retries, outcomes):
    """Run calls with the given outcomes; return the result and the number of retries."""
    outcomes = iter(outcomes)
    retried = []

    async def call():
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return asyncio.run(retries.run(call, lambda: retried.append(1))), len(retried)


def test_retries_pause_longer_each_time(monkeypatch):
    clock = Clock(monkeypatch)
    assert run(make_retries(clock, most=7), [CallError("connection", "x")] * 7 + ["good"]) == ("good", 7)
    bounds = [1, 2, 4, 8, 16, 16, 16]
    assert all(bound / 2 <= slept <= bound for slept, bound in zip(clock.slept, bounds, strict=True))
    assert len(set(clock.slept)) == 7


def test_retries_raise_the_last_error(monkeypatch):
    errors = [CallError("connection", "first"), CallError("status", "last")]
    with pytest.raises(CallError, match="last"):
        run(make_retries(Clock(monkeypatch), most=1), errors)


def test_retries_end_at_a_refusal(monkeypatch):
    clock = Clock(monkeypatch)
    with pytest.raises(CallError, match="no"):
        run(make_retries(clock), [CallError("status", "no", passing=False), "good"])
    assert clock.slept == []


def test_retries_hold_all_calls_for_retry_after(monkeypatch):
    clock = Clock(monkeypatch)
    retries = make_retries(clock)
    assert run(retries, [CallError("status", "busy", retry_after=30), "good"]) == ("good", 1)
    assert clock.slept == [30]

    async def one_call_is_told_to_wait():
        both = asyncio.Event()
        retried = []

        async def call(outcomes):
            both.set()
            if isinstance(outcome := outcomes.pop(), Exception):
                raise outcome
            return clock.now

        busy = [30, CallError("status", "busy", retry_after=5)]
        await retries.run(partial(call, busy), lambda: retried.append(1))
        return await retries.run(partial(call, [1]), lambda: None)

    assert asyncio.run(one_call_is_told_to_wait()) == 35
    assert clock.slept == [30, 5]


def test_retries_limit_retry_after(monkeypatch):
    clock = Clock(monkeypatch)
    run(make_retries(clock), [CallError("status", "busy", retry_after=86400), "good"])
    assert clock.slept == [60]


def test_retries_give_up_on_a_server_without_answers(monkeypatch):
    retries = make_retries(Clock(monkeypatch), concurrency=4)
    attempts = []

    async def fail(item):
        attempts.append(item)
        raise CallError("deadline", "gone")

    for item in range(12):
        with pytest.raises(CallError) as raised:
            asyncio.run(retries.run(partial(fail, item), lambda: None))
    # All attempts for the first item, one for each of the next seven, none for the rest.
    assert attempts == [0] * 5 + list(range(1, 8))
    assert (raised.value.kind, "given up" in str(raised.value)) == ("deadline", True)


def test_retries_forget_lost_items_after_an_answer(monkeypatch):
    retries = make_retries(Clock(monkeypatch), most=1)
    broken = CallError("status", "broken")
    for attempts in (2, 1, 1):
        with pytest.raises(CallError, match="broken"):
            run(retries, [broken] * attempts)
    assert run(retries, ["good"]) == ("good", 0)
    assert run(retries, [broken, "good"]) == ("good", 1), "failed calls are retried again"
