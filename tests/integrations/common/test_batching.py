"""Batches of concurrent callers, on a clock that jumps: no test waits, and none depends on the machine's speed."""

import asyncio

import pytest
from virtual_time import run_virtually

from rrg_rewards.integrations.common.batching import BatchLimits, BatchQueue, QueueFullError


class Process:
    """Doubles numbers; takes a while, and records batches and their times."""

    def __init__(self, seconds=0.0, fails=()):
        self.seconds, self.fails = seconds, fails
        self.batches, self.begun = [], []
        self.under_way = self.most = 0

    async def __call__(self, items):
        self.batches.append(list(items))
        self.begun.append(asyncio.get_running_loop().time())
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(self.seconds)
        self.under_way -= 1
        if failing := [item for item in items if item in self.fails]:
            raise KeyError(failing[0])
        return [2 * item for item in items]


def test_batch_queue_full_batches_do_not_wait():
    process = Process()

    async def main(loop):
        queue = BatchQueue(process, BatchLimits(max_batch=4, max_wait=100))
        return await asyncio.gather(*map(queue.submit, range(8)))

    assert run_virtually(main) == [2 * item for item in range(8)]
    assert process.batches == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert process.begun == [0, 0]


def test_batch_queue_batch_that_is_not_full_begins_when_its_first_item_has_waited():
    process = Process()

    async def main(loop):
        queue = BatchQueue(process, BatchLimits(max_batch=4, max_wait=3))

        async def later(item):
            await asyncio.sleep(item)
            return await queue.submit(item)

        return await asyncio.gather(*map(later, [0, 1, 2, 5, 9]))

    assert run_virtually(main) == [0, 2, 4, 10, 18]
    assert process.batches == [[0, 1, 2], [5], [9]]
    assert process.begun == [3, 8, 12]


def test_batch_queue_item_that_fills_the_batch_ends_the_wait():
    process = Process()

    async def main(loop):
        queue = BatchQueue(process, BatchLimits(max_batch=2, max_wait=3))
        first = asyncio.ensure_future(queue.submit(1))
        await asyncio.sleep(1)
        return [await queue.submit(2), await first]

    assert run_virtually(main) == [4, 2]
    assert process.begun == [1]


@pytest.mark.parametrize("concurrent", [1, 3])
def test_batch_queue_so_many_batches_at_a_time(concurrent):
    process = Process(seconds=1)

    async def main(loop):
        limits = BatchLimits(max_batch=2, max_wait=0, max_concurrent=concurrent)
        return await BatchQueue(process, limits).submit_all(range(12))

    assert run_virtually(main) == [2 * item for item in range(12)]
    assert process.most == concurrent


def test_batch_queue_only_the_items_that_cause_an_error_fail():
    process = Process(fails={2, 7})

    async def main(loop):
        queue = BatchQueue(process, BatchLimits(max_batch=10))
        together, alone = await asyncio.gather(
            queue.submit_all(range(8)), asyncio.gather(queue.submit(8), queue.submit(7), return_exceptions=True)
        )
        return [*together, *alone]

    outcomes = run_virtually(main)
    assert [item for item, outcome in enumerate(outcomes) if isinstance(outcome, KeyError)] == [2, 7, 9]
    assert [outcome for outcome in outcomes if not isinstance(outcome, KeyError)] == [0, 2, 6, 8, 10, 12, 16]


def test_batch_queue_wrong_number_of_results_is_an_error():
    async def too_few(items):
        return items[1:]

    async def main(loop):
        with pytest.raises(ValueError, match="0 results for 1 items"):
            await BatchQueue(too_few).submit(1)

    run_virtually(main)


def test_batch_queue_full_queue_takes_all_items_of_a_caller_or_none():
    process = Process(seconds=5)

    async def main(loop):
        queue = BatchQueue(process, BatchLimits(max_batch=2, max_pending=3, max_wait=0))
        running = [asyncio.ensure_future(queue.submit(item)) for item in range(2)]
        await asyncio.sleep(1)
        waiting = [asyncio.ensure_future(queue.submit(item)) for item in range(2, 4)]
        await asyncio.sleep(1)
        with pytest.raises(QueueFullError, match="2 items are waiting"):
            await queue.submit_all([8, 9])
        assert await queue.submit(4) == 8
        return [await task for task in running + waiting]

    assert run_virtually(main) == [0, 2, 4, 6]
    assert process.batches == [[0, 1], [2, 3], [4]]


def test_batch_queue_items_of_callers_that_gave_up_are_not_processed():
    process = Process(seconds=5)

    async def main(loop):
        queue = BatchQueue(process, BatchLimits(max_batch=1, max_pending=2, max_wait=0))
        first = asyncio.ensure_future(queue.submit(1))
        await asyncio.sleep(1)
        cancelled = asyncio.ensure_future(queue.submit(2))
        with pytest.raises(asyncio.TimeoutError):
            await queue.submit(3, timeout=1)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert queue.num_waiting == 0
        return [await first, await queue.submit(4)]

    assert run_virtually(main) == [2, 8]
    assert process.batches == [[1], [4]]


def test_batch_queue_deadline_while_the_batch_runs_leaves_the_others_their_results():
    process = Process(seconds=5)

    async def main(loop):
        queue = BatchQueue(process, BatchLimits(max_batch=2))
        patient = asyncio.ensure_future(queue.submit(1))
        with pytest.raises(asyncio.TimeoutError):
            await queue.submit(2, timeout=3)
        return await patient

    assert run_virtually(main) == 2
    assert [sorted(batch) for batch in process.batches] == [[1, 2]]


def test_batch_queue_one_event_loop_after_another():
    queue = BatchQueue(Process(), BatchLimits(max_wait=0))
    assert [asyncio.run(queue.submit(item)) for item in range(3)] == [0, 2, 4]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_batch": 0}, "max_batch"),
        ({"max_wait": float("nan")}, "max_wait"),
        ({"max_batch": 64, "max_pending": 32}, "max_pending"),
        ({"max_concurrent": 0}, "max_concurrent"),
    ],
)
def test_batch_queue_limits_are_checked(limits, message):
    with pytest.raises(ValueError, match=message):
        BatchLimits(**limits)
