"""Batches of a reward server."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import GUARD, RAISED, LengthReward, Served, request_bytes, sent, until, waiting

ONE = {"completions": ["a b"], "reference": ["a"]}


def test_scorer_gives_concurrent_single_requests_their_own_rewards():
    with Served(max_batch=8, max_wait_ms=1) as served, ThreadPoolExecutor(16) as threads:

        def ask(number):
            words = 1 + number % 40
            reply = served.post("/rewards", {"completions": [" ".join("a" * words)], "reference": ["a"]})[1]
            return reply["rewards"][0] == words - 1

        assert all(threads.map(ask, range(200)))
        assert sum(map(len, served.reward.batches)) == 200
        assert max(map(len, served.reward.batches)) <= 8


def test_scorer_refuses_if_the_queue_is_full_and_says_when_to_return():
    with Served(max_batch=1, max_pending=1) as served, ThreadPoolExecutor(2) as threads:
        served.reward.gate.clear()
        running = threads.submit(served.post, "/rewards", ONE)
        assert served.reward.entered.acquire(timeout=GUARD)
        second = threads.submit(served.post, "/rewards", ONE)
        until(lambda: waiting(served) == 1)
        status, reply, headers = served.post("/rewards", ONE)
        assert (status, headers["Retry-After"]) == (429, "1")
        assert "1 items are waiting" in reply["error"]
        assert served.get("/health")[0] == 200
        served.reward.gate.set()
        assert [reply.result()[1]["rewards"] for reply in (running, second)] == [[1.0], [1.0]]


def test_scorer_refuses_more_completions_than_the_queue_can_take():
    with Served(max_batch=1, max_pending=2) as served:
        status, reply, _ = served.post("/rewards", {"completions": ["a"] * 3, "reference": ["a"] * 3})
    assert (status, reply) == (413, {"error": "3 completions are more than the maximum, 2"})


def test_scorer_keeps_a_deadline():
    with Served(timeout=0.5) as served:
        served.reward.gate.clear()
        # Sent at once, because the body has a deadline too.
        with sent(served, request_bytes(ONE)) as connection:
            reply = connection.recv(1000)
        served.reward.gate.set()
    assert b"504" in reply.split(b"\r\n")[0]


def test_scorer_overlaps_batches_of_an_asynchronous_reward():
    class Meeting(LengthReward):
        """Scores a batch once two batches are being scored."""

        num_entered = 0
        met = None

        async def score_async(self, completions, **columns):
            if completions and completions != ["Clear lungs."]:
                self.met = self.met or asyncio.Event()
                self.num_entered += 1
                if self.num_entered == 2:
                    self.met.set()
                await self.met.wait()
            return self.score(completions, **columns)

        async def __call__(self, completions, **columns):
            raise AssertionError("not called")

    with Served(Meeting(), max_batch=1) as served:
        body = {"completions": ["a b", "a b c"], "reference": ["a", "a"]}
        assert served.post("/rewards", body)[1]["rewards"] == [1.0, 2.0]


@pytest.mark.parametrize("bad", RAISED)
def test_scorer_fails_only_the_request_whose_completion_raises_anything(bad):
    with Served(timeout=5.0) as served, ThreadPoolExecutor(3) as threads:
        served.reward.gate.clear()
        running = threads.submit(served.post, "/rewards", ONE)
        assert served.reward.entered.acquire(timeout=GUARD)
        replies = [
            threads.submit(served.post, "/rewards", {"completions": [text], "reference": ["a"]})
            for text in (bad, "a b c")
        ]
        until(lambda: waiting(served) == 2)
        served.reward.gate.set()
        failed, good = [reply.result()[:2] for reply in replies]
        assert running.result()[1]["rewards"] == [1.0]
        assert served.post("/rewards", ONE)[1]["rewards"] == [1.0]
        assert served.get("/health")[:2] == (200, {"status": "ok"})
    assert good[1]["rewards"] == [2.0]
    assert failed[0] == 500
    told = f"the reward failed on completion 0: {RAISED[bad].__name__} in _value (served.py"
    assert failed[1]["error"].startswith(told)


def test_scorer_says_that_a_reward_does_not_return(caplog):
    with Served(timeout=0.3) as served:
        served.reward.gate.clear()
        assert served.post("/rewards", ONE)[0] == 504
        status, reply, _ = served.get("/health")
        assert (status, reply["status"]) == (503, "failed")
        assert reply["reason"].startswith("the reward has not returned from 1 batches within 0.3 s (`timeout`)")
        assert "a batch of 1 completions has no rewards after 0.3 s" in caplog.text
        # At once, without the wait of a batch that cannot begin.
        assert served.post("/rewards", ONE)[:2] == (503, {"error": reply["reason"]})
        served.reward.gate.set()
        until(lambda: served.get("/health")[0] == 200)
        # A loaded machine may need more than the 0.3 s.
        until(lambda: served.post("/rewards", ONE)[1].get("rewards") == [1.0])


@pytest.mark.parametrize("waits", [False, True])
def test_scorer_scores_in_a_thread_of_its_own(waits):
    threads = []

    class Noting(LengthReward):
        def score(self, completions, **columns):
            threads.append(threading.current_thread().name)
            return super().score(completions, **columns)

    class Waiting(Noting):
        async def score_async(self, completions, **columns):
            await asyncio.sleep(0)
            return self.score(completions, **columns)

    with Served(Waiting() if waits else Noting()) as served:
        assert served.post("/rewards", ONE)[1]["rewards"] == [1.0]
    assert set(threads) == {"rrg-rewards-scoring"}


def test_scorer_says_that_its_thread_has_ended(caplog):
    class Leaving(LengthReward):
        """Starts a task that leaves."""

        async def score_async(self, completions, **columns):
            if completions == ["a b"]:
                self.task = asyncio.ensure_future(self.leave())
                await asyncio.sleep(GUARD)
            return self.score(completions, **columns)

        async def leave(self):
            raise SystemExit(3)

        async def __call__(self, completions, **columns):
            raise AssertionError("not called")

    with Served(Leaving()) as served:
        # At once, although the reward waits for longer.
        assert served.post("/rewards", ONE)[0] == 503
        assert isinstance(served.reward.task.exception(), SystemExit)
        status, reply, _ = served.get("/health")
        assert (status, reply["reason"]) == (503, "the thread that scores has ended; restart the server")
        assert "the thread that scores has ended: SystemExit in leave" in caplog.text
        assert served.post("/rewards", ONE)[:2] == (503, {"error": reply["reason"]})
