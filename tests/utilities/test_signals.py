"""Tests of the signals that end a run: what handles an interrupt handles them, once."""

import asyncio
import os
import signal
import sys

import pytest

from rrg_rewards.utilities.signals import ending_signals, signals_as_interrupts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_an_interrupt_once_and_the_handlers_come_back(sent):
    before = [signal.getsignal(one) for one in ending_signals()]
    with signals_as_interrupts() as received:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), sent)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
    assert received == [sent]
    assert [signal.getsignal(one) for one in ending_signals()] == before


def test_a_signal_goes_to_the_handler_of_interrupts(request):
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("stop"))
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with signals_as_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert seen == ["stop"]


def test_a_signal_ends_a_process_that_ignores_interrupts(request):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with signals_as_interrupts(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_that_the_process_ignores_stays_ignored(request):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    request.addfinalizer(lambda: signal.signal(signal.SIGHUP, before))
    with signals_as_interrupts() as received:
        os.kill(os.getpid(), signal.SIGHUP)
    assert received == []


def test_a_signal_cancels_an_event_loop():
    seen = []

    async def wait():
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with signals_as_interrupts(), pytest.raises(KeyboardInterrupt):
        asyncio.run(wait())
    assert seen == ["cancelled"]
