"""Concurrent work in an event loop: no task is running any more when it ends, for whatever reason."""

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from rrg_rewards.utilities.concurrency import LoopThread, for_each, within

GUARD = 120


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, GUARD))


class Work:
    """Records the items that were begun, done and cancelled."""

    def __init__(self, seconds=0.0, fails=()):
        self.seconds, self.fails = seconds, fails
        self.begun, self.done, self.cancelled = [], [], []
        self.under_way = self.most = 0

    async def __call__(self, item):
        self.begun.append(item)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(self.seconds)
            if item in self.fails:
                raise KeyError(item)
            self.done.append(item)
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        finally:
            self.under_way -= 1


def test_for_each_processes_each_item_once():
    work = Work(0.005)
    run(for_each(range(50), work, workers=8, deadline=None))
    assert sorted(work.done) == list(range(50))
    assert work.most == 8


def test_for_each_without_items():
    run(for_each([], Work(), workers=8, deadline=None))


@pytest.mark.parametrize("seconds", [0.1, 0.0, -1.0])
def test_for_each_cancels_at_the_deadline(seconds):
    work = Work(3600)

    async def timed():
        await for_each(range(5), work, workers=2, deadline=asyncio.get_running_loop().time() + seconds)
        assert work.under_way == 0

    run(timed())
    assert work.done == []
    assert work.cancelled == work.begun == ([0, 1] if seconds > 0 else [])


def test_for_each_ends_at_an_error():
    work = Work(0.01, fails={1})
    with pytest.raises(KeyError, match="1"):
        run(for_each(range(100), work, workers=3, deadline=None))
    assert work.under_way == 0
    assert len(work.begun) < 10


def test_for_each_ends_when_cancelled():
    work = Work(3600)

    async def cancelled():
        task = asyncio.ensure_future(for_each(range(5), work, workers=2, deadline=None))
        while work.under_way < 2:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.under_way == 0

    run(cancelled())


def test_within():
    async def answer():
        return 42

    assert run(within(5, answer())) == 42
    with pytest.raises(asyncio.TimeoutError):
        run(within(0.01, asyncio.Event().wait()))


def test_within_does_not_ignore_a_cancellation():
    async def cancelled():
        done = asyncio.Event()
        went_on = []

        async def caller():
            await within(3600, done.wait())
            went_on.append(True)

        task = asyncio.ensure_future(caller())
        for _ in range(5):
            await asyncio.sleep(0)
        done.set()
        # The result is there, and the caller is told to end before it sees it.
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert went_on == []

    run(cancelled())


def test_loop_thread_close_cancels_what_waits():
    thread = LoopThread("waits")
    waiting = thread.submit(asyncio.sleep(3600))
    thread.close()
    assert waiting.cancelled()
    assert not thread.is_alive
    with pytest.raises(RuntimeError, match="the thread 'waits' has ended"):
        thread.submit(asyncio.sleep(0))
    thread.close()


def test_loop_thread_close_does_not_wait_for_a_coroutine_that_blocks_the_loop():
    thread, begun, may_end = LoopThread("blocks"), threading.Event(), threading.Event()

    async def block():
        begun.set()
        return may_end.wait(GUARD)

    blocked = thread.submit(block())
    assert begun.wait(GUARD)
    thread.close(seconds=0.05)
    assert thread._thread.daemon
    assert not blocked.done()
    may_end.set()
    thread._thread.join(GUARD)
    assert not thread.is_alive


def test_loop_thread_that_a_task_ends_tells_all_callers():
    deaths = []
    thread = LoopThread("ends", on_death=deaths.append)

    async def leave():
        await asyncio.sleep(0)
        raise SystemExit(3)

    waiting, leaving = thread.submit(asyncio.sleep(3600)), thread.submit(leave())
    with pytest.raises(SystemExit):
        leaving.result(GUARD)
    with pytest.raises(CancelledError):
        waiting.result(GUARD)
    thread._thread.join(GUARD)
    assert [type(error) for error in deaths] == [SystemExit]
    assert not thread.is_alive
    with pytest.raises(RuntimeError, match="has ended"):
        thread.submit(asyncio.sleep(0))


def test_loop_thread_tells_callers_that_submit_while_it_closes():
    begun, may_end = threading.Event(), threading.Event()

    async def slow_to_end():
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            while not may_end.is_set():
                await asyncio.sleep(0.001)

    thread = LoopThread("closes")
    slow = thread.submit(slow_to_end())
    assert begun.wait(GUARD)
    closing = threading.Thread(target=thread.close, args=(GUARD,))
    futures = [thread.submit(asyncio.sleep(3600)) for _ in range(10)]
    closing.start()
    with pytest.raises(RuntimeError, match="the thread 'closes' has ended"):  # noqa: PT012
        while True:
            futures.append(thread.submit(asyncio.sleep(3600)))
    assert closing.is_alive()
    may_end.set()
    closing.join(GUARD)
    assert all(future.cancelled() for future in (slow, *futures))


def test_loop_thread_whose_tasks_all_exit_refuses_further_coroutines():
    thread, begun = LoopThread("exits"), threading.Barrier(2)

    async def leave_when_cancelled():
        begun.wait(GUARD)
        try:
            await asyncio.sleep(3600)
        finally:
            raise SystemExit(4)

    async def leave():
        raise SystemExit(3)

    waiting = thread.submit(leave_when_cancelled())
    begun.wait(GUARD)
    assert isinstance(thread.submit(leave()).exception(GUARD), SystemExit)
    assert isinstance(waiting.exception(GUARD), SystemExit)
    thread._thread.join(GUARD)
    with pytest.raises(RuntimeError, match="has ended"):
        thread.submit(asyncio.sleep(0))
