"""Calls of OpenAIJudge: their counts, rates and end."""

import asyncio

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
