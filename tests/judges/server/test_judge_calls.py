"""Calls of OpenAIJudge: their counts, rates and end."""

import asyncio
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
