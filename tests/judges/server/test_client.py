"""Counters of judges."""

import threading

from rrg_rewards.judges.server.client import Usage, UsageCounter


def test_counts_from_many_threads():
    counter = UsageCounter(price=(2.0, 8.0))

    def work():
        for _ in range(500):
            counter.add(calls=1, prompt_tokens=10, completion_tokens=5)
            counter.add(cached=2, retries=1)
            counter.fail("deadline")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.usage() == Usage(
        calls=4000,
        cached=8000,
        retries=4000,
        failures={"deadline": 4000},
        prompt_tokens=40_000,
        completion_tokens=20_000,
        cost=0.08 + 0.16,
    )


def test_a_usage_does_not_change():
    counter = UsageCounter()
    before = counter.usage()
    counter.fail("status")
    assert before == Usage()
    assert counter.usage().cost is None
