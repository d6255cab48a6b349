"""Requests and tokens per minute, with a simulated clock: no minute exceeds the limits, and no call waits too long."""

import asyncio
import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import run_virtually

from rrg_rewards.judges.server.rate_limit import RateLimiter, RateStoppedError, estimated_tokens, expected_tokens

# Sums of fractions of a minute.
SLACK = 1e-6


def simulate(calls, requests=None, tokens=None, concurrency=8):
    """Start times and tokens of calls, each given as (expected tokens, share of them that it uses, its seconds)."""

    async def main(loop):
        limiter = RateLimiter(requests, tokens, clock=loop.time)
        places = asyncio.Semaphore(concurrency)
        begun = []

        async def call(number, expected, share, seconds):
            async with places:
                admission = await limiter.admit(expected)
                taken = int(expected * share)
                begun.append((loop.time(), taken, expected, number))
                await asyncio.sleep(seconds)
                admission.settle(taken)

        await asyncio.gather(*(call(number, *one) for number, one in enumerate(calls)))
        return begun

    return run_virtually(main)


CALLS = st.lists(
    st.tuples(st.integers(0, 900), st.floats(0, 1), st.sampled_from([0.0, 0.3, 2.0, 45.0, 100.0])),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60)
@given(
    calls=CALLS,
    requests=st.none() | st.integers(1, 90),
    tokens=st.none() | st.integers(300, 5000),
    concurrency=st.integers(1, 40),
)
def test_rate_limiter_keeps_its_limits_in_each_minute(calls, requests, tokens, concurrency):
    begun = simulate(calls, requests, tokens, concurrency)
    assert len(begun) == len(calls)
    for first, *_ in begun:
        window = [call for call in begun if first <= call[0] < first + 60 - SLACK]
        if requests is not None:
            assert len(window) <= requests
        if tokens is not None and all(expected <= tokens for _, _, expected, _ in window):
            assert sum(taken for _, taken, _, _ in window) <= tokens
    if tokens is None and concurrency >= len(calls):
        pause = 0 if requests is None else 60 / requests
        for number, (time, *_) in enumerate(begun):
            assert time == pytest.approx(number * pause, abs=SLACK)


def test_rate_limiter_admits_requests_evenly_and_in_order():
    begun = simulate([(10, 1.0, 5.0)] * 30, requests=60, concurrency=30)
    assert [time for time, *_ in begun] == pytest.approx(range(30))
    assert [number for *_, number in begun] == list(range(30))


def test_rate_limiter_frees_tokens_that_were_not_used():
    # Ten calls of 1,000 expected tokens fit; each takes 100 after a second.
    begun = simulate([(1000, 0.1, 1.0)] * 90, tokens=10_000, concurrency=90)
    assert begun[9][0] == 0
    assert begun[10][0] > 0
    # All 90 take 9,000: none has to wait for the minute's end.
    assert begun[-1][0] < 60


def test_rate_limiter_waits_for_tokens_that_were_used():
    begun = simulate([(1000, 1.0, 1.0)] * 25, tokens=10_000, concurrency=90)
    assert [time for time, *_ in begun] == pytest.approx([0] * 10 + [60] * 10 + [120] * 5)


def test_rate_limiter_admits_a_call_above_the_limit_alone():
    begun = simulate([(100, 1.0, 0.0), (5000, 1.0, 0.0), (100, 1.0, 0.0)], tokens=1000)
    assert [time for time, *_ in begun] == pytest.approx([0, 60, 120])


def test_rate_limiter_does_not_count_a_cancelled_call():
    async def main(loop):
        limiter = RateLimiter(requests_per_minute=1, clock=loop.time)
        await limiter.admit(1)
        waiting = [asyncio.create_task(limiter.admit(1)) for _ in range(3)]
        await asyncio.sleep(5)
        for task in waiting[:2]:
            task.cancel()
        admission = await waiting[2]
        return admission.begun, [task.cancelled() for task in waiting[:2]]

    assert run_virtually(main) == (60.0, [True, True])


def test_a_stopped_rate_limiter_admits_no_call():
    async def main(loop):
        limiter = RateLimiter(requests_per_minute=1, clock=loop.time)
        await limiter.admit(1)
        waiting = [asyncio.create_task(limiter.admit(1)) for _ in range(5)]
        await asyncio.sleep(5)
        limiter.stop()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(RateStoppedError):
            await limiter.admit(1)
        return [type(end) for end in ends], loop.time()

    kinds, time = run_virtually(main)
    assert kinds == [RateStoppedError] * 5
    assert time <= 6.5


def test_rate_limiter_is_shared_by_threads_and_loops():
    limiter = RateLimiter(requests_per_minute=6000)
    begun = []

    async def several():
        admissions = await asyncio.gather(*(limiter.admit(1) for _ in range(6)))
        begun.extend(admission.begun for admission in admissions)

    threads = [threading.Thread(target=lambda: asyncio.run(several())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    begun.sort()
    assert len(begun) == 24
    assert all(later - earlier >= 0.01 - SLACK for earlier, later in pairwise(begun))


def test_rate_limiter_without_limits_does_not_wait():
    begun = simulate([(10**9, 1.0, 0.0)] * 50, concurrency=50)
    assert {time for time, *_ in begun} == {0.0}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"requests_per_minute": 0}, "requests_per_minute must be positive, got 0"),
        ({"tokens_per_minute": -1}, "tokens_per_minute must be positive, got -1"),
        ({"tokens_per_minute": float("nan")}, "tokens_per_minute must be positive, got nan"),
        ({"requests_per_minute": float("inf")}, "requests_per_minute must be positive, got inf"),
    ],
)
def test_rate_limiter_rejects_limits_that_are_not_positive(limits, message):
    with pytest.raises(ValueError, match=message):
        RateLimiter(**limits)


def test_estimated_and_expected_tokens():
    assert estimated_tokens([]) == 0
    assert estimated_tokens(["abcd", ""]) == 5 + 4
    messages = [{"role": "user", "content": "a" * 400}]
    assert expected_tokens({"messages": messages, "max_tokens": 50}) == 154
    assert expected_tokens({"messages": messages, "max_completion_tokens": 60}) == 164
    assert expected_tokens({"messages": messages}) == 104 + 1024
