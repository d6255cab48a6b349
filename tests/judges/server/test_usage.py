"""Counts of judges: from many threads, in parts of a run, and as text."""

import copy
import pickle
import threading

import pytest
from fault_server import GOOD, ITEMS, FaultServer, completion, evaluate, make_judge, raw, reply_bytes, status
from tiny_task import good_answer

from rrg_rewards.judges import OpenAIJudge, RuleJudge
from rrg_rewards.judges.server.usage import Usage, UsageCounter, UsageMeter, judge_usage


def test_usage_counter_counts_from_many_threads():
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


@pytest.mark.parametrize(
    ("price_cached", "cost"), [(None, 1.0 + 2.0), (0.25, 0.2 + 0.8 * 0.25 + 2.0), (0.0, 0.2 + 2.0)]
)
def test_usage_counter_prices_cached_prompt_tokens_separately(price_cached, cost):
    counter = UsageCounter(price=(1.0, 8.0), price_cached=price_cached)
    counter.add(prompt_tokens=600_000, completion_tokens=250_000, cached_prompt_tokens=500_000)
    counter.add(prompt_tokens=400_000, cached_prompt_tokens=300_000)
    assert counter.usage().cached_prompt_tokens == 800_000
    assert counter.usage().cost == pytest.approx(cost, rel=1e-12)


def test_judge_usage_sums_the_cached_tokens_that_replies_report():
    replies = [{"cached_tokens": 64}, None, {"cached_tokens": 0}, {"cached_tokens": 96}]
    behaviours = {item: [cached_reply(item, details)] for item, details in zip(ITEMS, replies, strict=True)}
    with FaultServer(behaviours) as server:
        judge = make_judge(server, price=(1.0, 0.0), price_cached=0.5)
        assert evaluate(judge, ITEMS[1:2]) == GOOD[1:2]
        assert judge.usage.cached_prompt_tokens is None
        assert evaluate(judge, ITEMS) == GOOD
    assert judge.usage.cached_prompt_tokens == 160
    assert judge.usage.prompt_tokens == 500
    assert judge.usage.cost == pytest.approx((340 + 0.5 * 160) / 1e6)


def cached_reply(item, details):
    reply = completion(good_answer(item))
    reply["usage"]["prompt_tokens_details"] = details
    return raw(reply_bytes(reply))


def test_a_usage_does_not_change():
    counter = UsageCounter()
    before = counter.usage()
    counter.fail("status")
    assert before == Usage()
    assert counter.usage().cost is None


@pytest.mark.parametrize(
    ("usage", "line"),
    [
        (Usage(calls=3, retries=1, cached=2, prompt_tokens=1000), "1,000 prompt tokens, 0 completion tokens"),
        (
            Usage(prompt_tokens=1000, cached_prompt_tokens=0),
            "1,000 prompt tokens (0 from the server's prefix cache), 0",
        ),
        (Usage(completion_tokens=7, cost=12.5), "0 prompt tokens, 7 completion tokens, cost 12.50"),
    ],
)
def test_usage_as_text_says_what_the_server_reported(usage, line):
    assert line in str(usage)


def test_usage_sums_and_differences_keep_what_is_unknown():
    first = Usage(calls=3, cached=1, failures={"status": 1}, prompt_tokens=30, cached_prompt_tokens=8, cost=0.5)
    second = Usage(calls=1, retries=1, failures={"deadline": 2}, prompt_tokens=10, completion_tokens=5)
    total = first + second
    assert total == Usage(4, 1, 1, {"status": 1, "deadline": 2}, 40, 8, 5, 0.5)
    assert total - first == Usage(1, 0, 1, {"deadline": 2}, 10, 0, 5, 0.0)
    assert total - total == Usage(cached_prompt_tokens=0, cost=0.0)
    assert (second + second).cost is None
    assert (second - second).cached_prompt_tokens is None


def test_judge_usage_is_none_for_a_judge_that_counts_nothing():
    assert judge_usage(None) is judge_usage(RuleJudge()) is None


def test_usage_meter_counts_parts_and_the_whole_and_a_shared_judge_once():
    with FaultServer({"bb": [status(400)]}) as server:
        judge = make_judge(server, max_retries=0)
        evaluate(judge, ITEMS[:1])
        meter = UsageMeter({"answers": judge, "rules": RuleJudge(), "grades": judge})
        assert meter.take() == {"answers and grades": Usage()}
        assert evaluate(judge, ITEMS[:2])[0] == GOOD[0]
        expected = Usage(calls=2, failures={"status": 1}, prompt_tokens=100, completion_tokens=10)
        assert meter.take() == meter.usage() == {"answers and grades": expected}
        evaluate(judge, ITEMS[2:3])
        assert meter.take()["answers and grades"].calls == 1
        assert meter.usage()["answers and grades"].calls == 3
        assert judge.usage.calls == 4


def test_usage_meter_copies_begin_anew():
    judge = OpenAIJudge("m")
    judge._client.usage.add(calls=5)
    meter = UsageMeter({"judge": judge})
    judge._client.usage.add(calls=2)
    for made in (pickle.loads(pickle.dumps(meter)), copy.deepcopy(meter)):
        assert made.take() == {"judge": Usage()}
    assert meter.take()["judge"].calls == 2
