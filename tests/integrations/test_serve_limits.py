"""A reward server under load, with clients that leave, are slow, or send too much: no wrong reward, bounded memory."""

import asyncio
import contextlib
import json
import pickle
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import GUARD, LengthReward, Served

from rrg_rewards.integrations.serve.run import bind

ONE = {"completions": ["a b"], "reference": ["a"]}


def until(condition):
    """Wait until a condition holds; the time only bounds a failure."""
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def sent(served, content):
    """A connection that has sent some bytes."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=GUARD) as connection:
        connection.sendall(content)
        yield connection


def request_bytes(body, length=None):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST /rewards HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content) if length is None else length}\r\n\r\n"
    return head.encode() + content


def waiting(served):
    return next(
        float(line.split()[1])
        for line in served.get("/metrics")[1].splitlines()
        if line.startswith("rrg_rewards_waiting")
    )


def test_concurrent_single_requests_get_their_own_rewards():
    with Served(max_batch=8, max_wait_ms=1) as served, ThreadPoolExecutor(16) as threads:

        def ask(number):
            words = 1 + number % 40
            reply = served.post("/rewards", {"completions": [" ".join("a" * words)], "reference": ["a"]})[1]
            return reply["rewards"][0] == words - 1

        assert all(threads.map(ask, range(200)))
        assert sum(map(len, served.reward.batches)) == 200
        assert max(map(len, served.reward.batches)) <= 8


def test_a_full_queue_refuses_and_says_when_to_return():
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


def test_more_completions_than_the_queue_can_take():
    with Served(max_batch=1, max_pending=2) as served:
        status, reply, _ = served.post("/rewards", {"completions": ["a"] * 3, "reference": ["a"] * 3})
    assert (status, reply) == (413, {"error": "3 completions are more than the maximum, 2"})


def test_a_deadline():
    with Served(timeout=0.5) as served:
        served.reward.gate.clear()
        # Sent at once, because the body has a deadline too.
        with sent(served, request_bytes(ONE)) as connection:
            reply = connection.recv(1000)
        served.reward.gate.set()
    assert b"504" in reply.split(b"\r\n")[0]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long(chunked):
    with Served(max_request_bytes=100_000) as served:
        content = json.dumps({"completions": ["a" * 200_000], "reference": ["a"]}).encode()
        status, reply, _ = served.call("POST", "/rewards", iter([content]) if chunked else content, {})
        assert (status, reply) == (413, {"error": "the body is longer than 100000 bytes; send fewer completions"})
        assert served.post("/rewards", ONE)[1]["rewards"] == [1.0]


def test_compressed_bodies_are_refused():
    with Served() as served:
        assert served.post("/rewards", b"x", Content_Encoding="gzip")[0] == 415


def test_bodies_of_all_requests_are_bounded():
    long = {"completions": ["a" * 60_000], "reference": ["a"]}
    with Served(max_request_bytes=100_000, max_total_bytes=100_000) as served:
        with sent(served, request_bytes(b"x" * 60_000, length=70_000)):
            until(lambda: served.post("/rewards", long)[0] == 429)
            assert served.post("/rewards", ONE)[1]["rewards"] == [1.0]
        until(lambda: served.post("/rewards", long)[0] == 200)


def test_a_slow_client_delays_nobody():
    with Served(timeout=0.5) as served, sent(served, request_bytes(b'{"comp', length=100)) as connection:
        assert served.get("/health")[0] == 200
        assert b"408" in connection.recv(1000).split(b"\r\n")[0]


def test_completions_of_clients_that_left_are_not_scored():
    with Served(max_batch=1) as served, ThreadPoolExecutor(1) as threads:
        served.reward.gate.clear()
        running = threads.submit(served.post, "/rewards", ONE)
        assert served.reward.entered.acquire(timeout=GUARD)
        with sent(served, request_bytes({"completions": ["gone"] * 3, "reference": ["a"] * 3})):
            until(lambda: waiting(served) == 3)
        until(lambda: waiting(served) == 0)
        served.reward.gate.set()
        assert running.result()[1]["rewards"] == [1.0]
        assert served.post("/rewards", ONE)[1]["rewards"] == [1.0]
        assert served.reward.batches == [["a b"], ["a b"]]
        assert 'rrg_rewards_requests_total{path="/rewards",status="499"} 1.0' in served.get("/metrics")[1]


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00" * 100, b"POST /rewards\r\n\r\n", b"\r\n" * 10, b""])
def test_connections_that_are_not_http(garbage):
    with Served() as served:
        with sent(served, garbage):
            pass
        assert served.post("/rewards", ONE)[1]["rewards"] == [1.0]


def test_reports_of_a_megabyte():
    words = 500_000
    with Served() as served:
        completions = [" ".join("a" * (words + row)) for row in range(3)]
        reply = served.post("/rewards", {"completions": completions, "reference": ["a"] * 3})[1]
    assert reply["rewards"] == [words - 1.0, float(words), words + 1.0]


def test_running_requests_are_finished_before_the_end():
    with Served() as served, ThreadPoolExecutor(1) as threads:
        served.reward.gate.clear()
        running = threads.submit(served.post, "/rewards", ONE)
        assert served.reward.entered.acquire(timeout=GUARD)
        served.stop()
        until(lambda: _refuses(served.port))
        assert not running.done()
        served.reward.gate.set()
        assert running.result()[1]["rewards"] == [1.0]


def _refuses(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=GUARD).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("others", [1, 2])
def test_two_servers_cannot_share_an_address(num_workers, others):
    with bind("127.0.0.1", 0, None, num_workers) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", port, None, others)
        if num_workers > 1:
            with pickle.loads(pickle.dumps(listener)) as copy:
                copy.listen()
                assert copy.getsockname() == listener.getsockname()


def test_batches_of_an_asynchronous_reward_overlap():
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
