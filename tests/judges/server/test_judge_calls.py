"""Calls of OpenAIJudge: their counts, rates and end."""

import asyncio
import threading
import time

from fault_server import (
    GOOD,
    ITEMS,
    FaultServer,
    evaluate,
    make_judge,
    reset,
    says,
    status,
)

from rrg_rewards.judges.base import STOPPED
from rrg_rewards.judges.server.calls import RateLimiter
from rrg_rewards.judges.server.judge import Session


def test_session_starts_a_call_when_the_request_of_the_call_before_is_ready():
    async def calls():
        hooks, entered = [], []
        session = Session(hooks.append, concurrency=3)
        (before_request,) = hooks

        async def call(name, fails=False):
            async with session.slot():
                entered.append(name)
                await asyncio.sleep(0)
                if fails:
                    raise OSError
                await finish.wait()

        finish = asyncio.Event()
        tasks = [asyncio.ensure_future(call(name, fails=name == "b")) for name in "abcd"]
        for _ in range(20):
            await asyncio.sleep(0)
        assert entered == ["a"]
        await before_request("request of a")
        for _ in range(20):
            await asyncio.sleep(0)
        # b fails before its request.
        assert entered == ["a", "b", "c"]
        await before_request("request of c")
        for _ in range(20):
            await asyncio.sleep(0)
        assert entered == ["a", "b", "c", "d"]
        finish.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(calls())
    assert [type(outcome) for outcome in outcomes] == [type(None), OSError, type(None), type(None)]


def test_chat_client_admits_each_call_by_the_rate(monkeypatch):
    admitted = []
    admit = RateLimiter.admit

    async def noted(self, tokens):
        admission = await admit(self, tokens)
        admitted.append((tokens, admission))
        return admission

    monkeypatch.setattr(RateLimiter, "admit", noted)
    with FaultServer({"bb": [status(429), says("nonsense")], "ccc": [reset()]}) as server:
        judge = make_judge(server, requests_per_minute=60_000, tokens_per_minute=1e6, max_tokens=500, concurrency=1)
        assert evaluate(judge, ITEMS) == GOOD
        assert len(admitted) == len(server.requests) == judge.usage.calls == 7
    # Two messages of 21 and 14 to 17 characters, and the answer.
    assert {tokens for tokens, _ in admitted} == {4 + 6 + 4 + 4 + 500, 4 + 6 + 4 + 5 + 500}
    # What was answered counts as the server says, what was refused not at all, what broke off as was expected.
    assert sorted(admission.tokens for _, admission in admitted) == [0, *[110] * 5, 518]


def test_chat_client_keeps_the_rate_over_evaluations():
    with FaultServer() as server:
        judge = make_judge(server, requests_per_minute=1200)
        begun = time.monotonic()
        for item in ITEMS:
            assert evaluate(judge, [item]) == [len(item)]
        # Three pauses of 50 ms, of which no other time is asserted than that they were made.
        assert time.monotonic() - begun > 0.15
        assert judge.arguments()["requests_per_minute"] == 1200


def test_a_stopped_chat_client_finishes_running_calls():
    stop = threading.Event()

    async def late(request, writer):
        while not stop.is_set():
            await asyncio.sleep(0.01)
        await says(delay=0.1)(request, writer)

    with FaultServer({"a": [late], "bb": [late]}) as server:
        judge = make_judge(server, concurrency=2)

        def stopping():
            while server.in_flight < 2:
                threading.Event().wait(0.01)
            judge.stop()
            stop.set()

        thread = threading.Thread(target=stopping)
        thread.start()
        assert evaluate(judge, ITEMS) == [1, 2, STOPPED, STOPPED]
        thread.join()
        assert evaluate(judge, ["a"]) == [STOPPED]
        assert server.asked == {"a": 1, "bb": 1}


def test_a_stopped_chat_client_neither_reasks_nor_retries():
    judges = []

    async def stop_and(request, writer, behave):
        judges[0].stop()
        await behave(request, writer)

    for behave in (says("nonsense"), status(500), reset()):
        with FaultServer(otherwise=lambda request, writer, behave=behave: stop_and(request, writer, behave)) as server:
            judges[:] = [make_judge(server)]
            assert evaluate(judges[0], ["a"]) == [STOPPED]
            assert len(server.requests) == 1


def test_a_stopped_chat_client_ends_calls_that_wait_for_the_rate():
    with FaultServer() as server:
        judge = make_judge(server, requests_per_minute=0.1)
        assert evaluate(judge, ["a"]) == [1]
        threading.Timer(0.1, judge.stop).start()
        assert evaluate(judge, ["bb", "ccc"]) == [STOPPED, STOPPED]
        assert len(server.requests) == 1
