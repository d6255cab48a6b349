"""OpenAIJudge against a local server that fails in every way: no call hangs, no item is lost or requested twice.

No test asserts how long something takes: `evaluate` runs under a guard that only a hang would reach.
"""

import asyncio
import json
import pickle
import re
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest
from fault_server import (
    GOOD,
    GUARD,
    ITEMS,
    FaultServer,
    completion,
    drip,
    evaluate,
    kinds,
    make_judge,
    raw,
    reply_bytes,
    reset,
    says,
    silent,
    status,
)
from tiny_task import LengthTask, asked_item, good_answer

from rrg_rewards.judges import JudgeFailure, OpenAIJudge


def cached_answers(folder):
    """Values of all rows on disk, sorted."""
    connection = sqlite3.connect(folder / "answers.db")
    values = [value for (value,) in connection.execute("SELECT answer FROM answers")]
    connection.close()
    return sorted(values)


def test_openai_judge_requests_each_answer_once(tmp_path):
    with FaultServer() as server:
        judge = make_judge(server, cache=tmp_path, price=(1.0, 10.0))
        assert evaluate(judge, ITEMS) == GOOD
        assert judge.usage.calls == 4
        assert judge.usage.prompt_tokens == 400
        assert judge.usage.completion_tokens == 40
        assert judge.usage.cost == pytest.approx((400 + 400) / 1e6)
        assert evaluate(judge, ITEMS) == GOOD
        assert server.asked == dict.fromkeys(ITEMS, 1)
    assert judge.usage.calls == judge.usage.cached == 4
    assert judge.usage.failures == {}
    assert cached_answers(tmp_path) == sorted(map(good_answer, ITEMS))


PASSING = {
    "500": status(500),
    "502": status(502, b"<html>bad gateway</html>"),
    "429": status(429),
    "429 seconds": status(429, Retry_After="0.05"),
    "429 date": status(429, Retry_After=format_datetime(datetime.now(timezone.utc) - timedelta(1), usegmt=True)),
    "408": status(408),
    "409": status(409),
    "dropped before": reset(),
    "dropped in the head": reset(after=20),
    "dropped in the body": reset(after=150),
    "no HTTP": raw(b"\x00\xff garbage\r\n\r\n"),
    "hangs": silent(),
    "drips": drip(0.02),
}


def with_slow(names):
    """Mark those that wait as slow."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in ("hangs", "drips") else name for name in names]


@pytest.mark.parametrize("name", with_slow(PASSING))
def test_openai_judge_retries_after_a_passing_failure(name, tmp_path):
    fault = PASSING[name]
    slow = name in ("hangs", "drips")
    with FaultServer({"bb": [fault, fault], "dddd": [fault]}) as server:
        judge = make_judge(server, cache=tmp_path, timeout=1.5 if slow else 60.0)
        assert evaluate(judge, [*ITEMS, "bb"]) == [*GOOD, 2]
        assert server.asked == {"a": 1, "bb": 3, "ccc": 1, "dddd": 2}
        assert (judge.usage.calls, judge.usage.retries, judge.usage.failures) == (7, 3, {})
        assert evaluate(judge, ITEMS) == GOOD
        assert sum(server.asked.values()) == 7
    assert cached_answers(tmp_path) == sorted(map(good_answer, ITEMS))


LASTING = {
    "500": (status(500), "status", "HTTP 500", 3),
    "429": (status(429, Retry_After="0.01"), "status", "HTTP 429", 3),
    "400": (status(400), "status", r"HTTP 400 \(some_code\)", 1),
    "401": (status(401, {"error": {"message": "report bb is bad", "code": "report bb"}}), "status", "HTTP 401$", 1),
    "404": (status(404, b"not found"), "status", "HTTP 404", 1),
    "301": (status(301, Location="http://127.0.0.1:1/v1"), "status", "HTTP 301 .*redirect", 1),
    "dropped": (reset(after=100), "connection", r"the connection to http://127\.0\.0\.1:\d+\S* failed \(\w+\)$", 3),
    "hangs": (silent(), "deadline", r"no answer within 1.5 s", 3),
    "drips": (drip(0.02), "deadline", r"no answer within 1.5 s", 3),
    "no JSON": (raw(reply_bytes(b"oops")), "malformed", "not a JSON object", 2),
    "truncated JSON": (
        raw(reply_bytes(json.dumps(completion("x")).encode()[:60])),
        "malformed",
        "not a JSON object",
        2,
    ),
    "no UTF-8": (raw(reply_bytes(b'{"choices": "\xff\xfe"}')), "malformed", "(a JSON object|no message)", 2),
    "deep JSON": (raw(reply_bytes(b"[" * 100_000)), "malformed", "not a JSON object", 2),
    "list": (raw(reply_bytes([1])), "malformed", "not a JSON object", 2),
    "no choices": (raw(reply_bytes({"choices": []})), "malformed", "no message", 2),
    "null message": (raw(reply_bytes({"choices": [None]})), "malformed", "no message", 2),
    "null content": (raw(reply_bytes(completion(None))), "malformed", "no text", 2),
    "empty content": (says(""), "malformed", "no text", 2),
    "bad content": (says("Sure! Here it is."), "malformed", "no JSON of the schema", 2),
    "cut off": (says(finish_reason="length"), "malformed", "cut off; raise max_tokens", 2),
    "wrong item": (says(good_answer("eeeee")), "inconsistent", "about another text", 2),
}


@pytest.mark.parametrize("name", with_slow(LASTING))
def test_openai_judge_fails_only_the_item_of_a_lasting_failure(name, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    fault, kind, reason, attempts = LASTING[name]
    with FaultServer({"bb": [fault] * 9}) as server:
        slow = name in ("hangs", "drips")
        judge = make_judge(server, cache=tmp_path, max_retries=2, timeout=1.5 if slow else 60.0)
        results = evaluate(judge, [*ITEMS, "bb"])
        assert kinds(results) == [1, kind, 3, 4, kind]
        assert re.search(reason, results[1].reason)
        assert "report" not in results[1].reason
        assert server.asked == {"a": 1, "bb": attempts, "ccc": 1, "dddd": 1}
        assert judge.usage.failures == {kind: 1}
        assert judge.usage.calls == attempts + 3
    assert cached_answers(tmp_path) == sorted(good_answer(item) for item in ("a", "ccc", "dddd"))


def test_openai_judge_says_that_a_refused_request_had_no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with FaultServer({"bb": [status(401)] * 2}) as server:
        without, named = (evaluate(make_judge(server, **options), ["bb"]) for options in ({}, {"api_key": "key"}))
    assert without[0].reason == "the server answered HTTP 401 (some_code); OPENAI_API_KEY is not set"
    assert named[0].reason == "the server answered HTTP 401 (some_code)"


def test_openai_judge_requests_another_answer_for_a_rejected_one(tmp_path):
    with FaultServer({"bb": [says("nonsense"), says(good_answer("b"))]}) as server:
        judge = make_judge(server, cache=tmp_path, max_reasks=2, seed=10)
        assert evaluate(judge, ["bb"]) == [2]
    assert [request.body["seed"] for request in server.requests] == [10, 11, 12]
    assert [request.body["temperature"] for request in server.requests] == [0.0, 0.5, 0.5]
    assert judge.usage.retries == 2
    assert judge.usage.completion_tokens == 30
    assert cached_answers(tmp_path) == [good_answer("bb")]


def test_openai_judge_does_not_send_a_refused_item(tmp_path):
    class Choosy(LengthTask):
        def refusal(self, item):
            return JudgeFailure("status", "two letters") if len(item) == 2 else None

    with FaultServer() as server:
        judge = make_judge(server, cache=tmp_path)
        assert kinds(evaluate(judge, [*ITEMS, "bb"], Choosy())) == [1, "status", 3, 4, "status"]
        assert "bb" not in server.asked
        assert judge.usage.failures == {"status": 1}


def test_openai_judge_without_reasks():
    with FaultServer({"a": [says("nonsense")]}) as server:
        assert kinds(evaluate(make_judge(server, max_reasks=0), ["a"])) == ["malformed"]


def test_openai_judge_does_not_cache_failures(tmp_path):
    with FaultServer({"a": [status(404)]}) as server:
        judge = make_judge(server, cache=tmp_path)
        assert kinds(evaluate(judge, ["a"])) == ["status"]
        assert evaluate(judge, ["a"]) == [1]


def test_openai_judge_raises_errors_of_the_task():
    class Buggy(LengthTask):
        def parse(self, item, answer):
            raise TypeError("a bug")

    with FaultServer() as server, pytest.raises(TypeError, match="a bug"):
        evaluate(make_judge(server), ITEMS, Buggy())
    assert server.in_flight == 0


def test_openai_judge_pauses_all_calls_for_retry_after():
    early, until = [], []

    async def busy(request, writer):
        until.append(time.monotonic() + 0.4)
        await status(429, Retry_After="0.5")(request, writer)

    async def read_requests(request, writer):
        if until and time.monotonic() < until[0]:
            early.append(request.item)
        await says(delay=0.05)(request, writer)

    items = ["x" * length for length in range(1, 13)]
    with FaultServer({"x": [busy]}, read_requests) as server:
        assert evaluate(make_judge(server, concurrency=2), items) == list(range(1, 13))
    # The one call that was under way beside the refused one.
    assert len(early) <= 1


@pytest.mark.parametrize(
    "otherwise",
    [
        silent(),
        status(500),
        *(
            pytest.param(fault, marks=pytest.mark.slow)
            for fault in (drip(0.02), status(429, Retry_After="3600"), reset())
        ),
    ],
)
def test_openai_judge_ends_at_the_batch_deadline(otherwise, tmp_path):
    items = ["x" * length for length in range(1, 40)]
    with FaultServer({"x": [says()]}, otherwise) as server:
        judge = make_judge(
            server, cache=tmp_path, concurrency=4, batch_deadline=2.0, max_retries=1000, timeout=3600, first_pause=0.1
        )
        results = evaluate(judge, items)
    assert results[0] == 1
    assert kinds(results[1:]) == ["deadline"] * 38
    assert results[1].reason == "the batch was not done within 2 s"
    assert judge.usage.failures == {"deadline": 38}
    assert cached_answers(tmp_path) == [good_answer("x")]


def test_openai_judge_gives_up_on_a_missing_server():
    with FaultServer() as server:
        pass
    judge = make_judge(server, concurrency=4, max_retries=2)
    results = evaluate(judge, ["x" * length for length in range(1000)])
    assert set(kinds(results)) == {"connection"}
    assert len(results) == 1000
    # Four items with three attempts, four more with one, and what was under way beside the last of them.
    assert 4 * 3 + 4 <= judge.usage.calls < 4 * 3 + 4 + 4
    assert "given up" in results[-1].reason
    assert judge.usage.failures == {"connection": 1000}


def test_openai_judge_calls_a_server_again_that_returns():
    with FaultServer() as server:
        pass
    judge = make_judge(server, max_retries=0)
    assert kinds(evaluate(judge, ITEMS)) == ["connection"] * 4
    with FaultServer(port=server.port):
        assert evaluate(judge, ITEMS) == GOOD


def test_openai_judge_with_a_server_that_restarts(tmp_path):
    items = ["x" * length for length in range(1, 31)]
    first = FaultServer(otherwise=says(delay=0.02))
    restarted = []

    def restart():
        while len(first.requests) < 12:
            threading.Event().wait(0.005)
        first.kill()
        threading.Event().wait(0.2)
        restarted.append(FaultServer(port=first.port).__enter__())

    thread = threading.Thread(target=restart)
    with first:
        thread.start()
        judge = make_judge(first, cache=tmp_path, concurrency=3, first_pause=0.1, max_retries=8)
        assert evaluate(judge, items) == list(range(1, 31))
        thread.join()
    (second,) = restarted
    second.kill()
    assert judge.usage.failures == {}
    assert cached_answers(tmp_path) == sorted(map(good_answer, items))
    # Only what was under way at the kill was asked of both.
    assert all(count == 1 for count in second.asked.values())
    assert len(first.asked.keys() & second.asked.keys()) <= 3


def test_openai_judge_reaches_and_keeps_its_concurrency():
    items = ["x" * length for length in range(60)]
    with FaultServer(otherwise=says(delay=0.05)) as server:
        judge = make_judge(server, concurrency=7)

        async def both():
            return await asyncio.gather(
                judge.evaluate(LengthTask(), items[:30]), judge.evaluate(LengthTask(), items[30:])
            )

        first, second = asyncio.run(asyncio.wait_for(both(), GUARD))
        assert first + second == list(range(60))
        assert server.most_in_flight == 7
        # Connections are kept.
        assert server.connections == 7


def test_openai_judge_cancels_the_calls_of_a_cancelled_evaluation(tmp_path):
    with FaultServer({"a": [says()]}, silent()) as server:
        judge = make_judge(server, cache=tmp_path, timeout=3600)

        async def cancelled():
            waiting = asyncio.create_task(judge.evaluate(LengthTask(), ["bb", "ccc"]))
            cancelled = asyncio.create_task(judge.evaluate(LengthTask(), ["a", "bb", "dddd"]))
            while server.in_flight < 3 or not cached_answers(tmp_path):
                await asyncio.sleep(0.01)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            while server.in_flight > 2:
                await asyncio.sleep(0.01)
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        asyncio.run(asyncio.wait_for(cancelled(), GUARD))
        assert judge.usage.failures == {}
    assert cached_answers(tmp_path) == [good_answer("a")]


def test_openai_judge_in_a_running_loop_and_in_threads(tmp_path):
    with FaultServer(otherwise=says(delay=0.02)) as server:
        judge = make_judge(server, cache=tmp_path)

        async def notebook():
            return judge.evaluate_now(LengthTask(), ITEMS)

        assert asyncio.run(notebook()) == GOOD
        results = {}
        items = {name: [name * length for length in range(1, 9)] for name in "xyz"}
        threads = [
            threading.Thread(target=lambda n=name: results.update({n: judge.evaluate_now(LengthTask(), items[n])}))
            for name in items
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD)
        assert results == {name: list(range(1, 9)) for name in items}
        assert judge.usage.calls == 28
    assert len(cached_answers(tmp_path)) == 28


@pytest.mark.slow
def test_openai_judges_of_two_processes_share_a_cache(tmp_path):
    work = """
import sys
from rrg_rewards.judges import OpenAIJudge
from tiny_task import LengthTask
judge = OpenAIJudge("tiny", base_url=sys.argv[1], cache=sys.argv[2], first_pause=0.01)
items = ["x" * n for n in range(1, 31)] + [sys.argv[3] * n for n in range(1, 31)]
assert judge.evaluate_now(LengthTask(), items) == list(range(1, 31)) * 2
"""
    helpers = str(sys.modules["tiny_task"].__file__).rpartition("/")[0]
    with FaultServer(otherwise=says(delay=0.01)) as server:
        command = [sys.executable, "-W", "error::RuntimeWarning", "-c", work, server.url, str(tmp_path)]
        processes = [subprocess.Popen([*command, name], env={"PYTHONPATH": helpers}) for name in "ab"]
        assert [process.wait(timeout=180) for process in processes] == [0, 0]
        items = [name * length for name in "abx" for length in range(1, 31)]
        judge = make_judge(server, cache=tmp_path)
        assert evaluate(judge, items) == list(range(1, 31)) * 3
    assert judge.usage.calls == 0
    assert cached_answers(tmp_path) == sorted(map(good_answer, items))


def test_cache_key_of_openai_judge_contains_what_an_answer_depends_on(tmp_path):
    with FaultServer() as server:
        evaluate(make_judge(server, cache=tmp_path), ["a"])
        same = [{}, {"timeout": 3.0, "concurrency": 2, "max_retries": 0, "max_reasks": 0, "batch_deadline": 9}]
        other = [{"temperature": 0.7}, {"seed": 1}, {"max_tokens": 5}, {"extra_body": {"top_k": 1}}]
        for settings in same:
            evaluate(make_judge(server, cache=tmp_path, **settings), ["a"])
        assert len(server.requests) == 1
        for settings in other:
            evaluate(make_judge(server, cache=tmp_path, **settings), ["a"])
        assert len(server.requests) == 5
        evaluate(make_judge(server, cache=tmp_path), ["a"], LengthTask("Count the letters."))
        evaluate(OpenAIJudge("large", base_url=server.url, cache=tmp_path), ["a"])
        assert len(server.requests) == 7
    assert cached_answers(tmp_path) == [good_answer("a")] * 7


def test_openai_judge_checks_cached_answers(tmp_path):
    with FaultServer() as server:
        judge = make_judge(server, cache=tmp_path)
        assert evaluate(judge, ["a", "bb"]) == [1, 2]
        connection = sqlite3.connect(tmp_path / "answers.db")
        connection.execute("UPDATE answers SET answer = 'planted' WHERE answer = ?", (good_answer("a"),))
        connection.execute("UPDATE answers SET answer = ? WHERE answer = ?", (b"cos", good_answer("bb")))
        connection.commit()
        connection.close()
        task = LengthTask()
        assert evaluate(judge, ["a", "bb"], task) == [1, 2]
        assert server.asked == {"a": 2, "bb": 2}
    assert cached_answers(tmp_path) == sorted(map(good_answer, ["a", "bb"]))


def test_openai_judge_keeps_its_deadline_with_a_locked_cache(tmp_path):
    with FaultServer() as server:
        evaluate(make_judge(server, cache=tmp_path), ["a"])
        other = sqlite3.connect(tmp_path / "answers.db", isolation_level=None)
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        judge = make_judge(server, cache=tmp_path, batch_deadline=2.0)
        with pytest.warns(RuntimeWarning, match="the cache of answers in .* fails"):
            assert evaluate(judge, ITEMS) == GOOD
        assert server.asked == {"a": 2, "bb": 1, "ccc": 1, "dddd": 1}
        other.close()
        assert evaluate(judge, ["a"]) == [1]
        assert judge.usage.cached == 1


def test_openai_judge_pickles_without_key_and_state(monkeypatch, tmp_path):
    with FaultServer() as server:
        judge = make_judge(server, api_key="sk-secret", cache=tmp_path, concurrency=3, api_key_variable="MY_KEY")
        evaluate(judge, ["a"])
        pickled = pickle.dumps(judge)
        assert b"sk-secret" not in pickled
        assert "sk-secret" not in judge.signature + repr(judge.arguments()) + repr(judge)
        assert len(pickled) < 2000
        copy = pickle.loads(pickled)
        assert copy.arguments() == judge.arguments()
        assert copy.signature == judge.signature
        assert copy.usage.calls == 0
        monkeypatch.setenv("MY_KEY", "sk-other")
        assert evaluate(copy, ["a", "bb"]) == [1, 2]
        assert copy.usage.cached == 1
    assert server.requests[-1].headers["authorization"] == "Bearer sk-other"


def test_openai_judge_without_items():
    assert OpenAIJudge("m").evaluate_now(LengthTask(), []) == []


def test_openai_judge_prints_and_logs_no_report(capfd, caplog):
    with FaultServer({"a": [status(500)]}) as server, caplog.at_level("DEBUG"):
        evaluate(make_judge(server), ["a", "report text"])
    assert capfd.readouterr() == ("", "")
    assert "report text" not in caplog.text
    assert asked_item(server.requests[0].body["messages"]) in ("a", "report text")


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_rerun_requests_and_caches_each_run(tmp_path: Path, temperature: float) -> None:
    with FaultServer() as server:
        judge = OpenAIJudge("m", base_url=server.url, temperature=temperature, cache=tmp_path / "cache", seed=3)
        for _ in range(2):
            for run in range(3):
                judge.rerun(run).evaluate_now(LengthTask(), ["a", "b"])
        assert sorted((request.item, request.body["seed"]) for request in server.requests) == [
            (item, seed) for item in "ab" for seed in (3, 1003, 2003)
        ]
        assert (judge.usage.calls, judge.usage.cached) == (6, 6)
        assert judge.rerun(2).usage == judge.usage
        # A judge without runs finds the answers of the first run.
        other = OpenAIJudge("m", base_url=server.url, temperature=temperature, cache=tmp_path / "cache", seed=3)
        other.evaluate_now(LengthTask(), ["a", "b"])
        assert (other.usage.calls, other.usage.cached) == (0, 2)


def test_signatures_of_runs_differ() -> None:
    judge = OpenAIJudge("m", temperature=1.0)
    assert "run" not in judge.signature
    assert "|run:2|" in judge.rerun(2).signature
    assert judge.rerun(0) is judge
