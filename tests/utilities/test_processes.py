"""Coroutines from synchronous code."""

import asyncio
import os
import signal
import sys
from functools import partial

import pytest

from rrg_rewards.utilities.processes import run_coroutine


async def one_plus(number):
    await asyncio.sleep(0)
    if number < 0:
        raise ValueError("must not be negative")
    return number + 1


def in_a_loop(function):
    """Call a function from a running event loop that leaves signals to Python, as that of a notebook."""

    async def cell():
        return function()

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()


@pytest.mark.parametrize("call", [lambda function: function(), in_a_loop], ids=["no loop", "a running loop"])
def test_run_coroutine_returns_and_raises(call):
    assert call(lambda: run_coroutine(one_plus(1))) == 2
    with pytest.raises(ValueError, match="must not be negative"):
        call(lambda: run_coroutine(one_plus(-1)))


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("call", [lambda function: function(), in_a_loop], ids=["no loop", "a running loop"])
def test_an_interrupt_of_run_coroutine_cancels_the_coroutine(call, request):
    # A shell starts background processes with ignored interrupts.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(partial(signal.signal, signal.SIGINT, handler))
    ended = []

    async def endless():
        await asyncio.sleep(0.1)  # The caller is waiting by then.
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        call(lambda: run_coroutine(endless()))
    assert ended == [True]
