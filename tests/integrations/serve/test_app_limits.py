"""A reward server under load and attack: limits, time and connections."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import GUARD, Served, request_bytes, sent, until, waiting

ONE = {"completions": ["a b"], "reference": ["a"]}


@pytest.mark.parametrize("chunked", [False, True])
def test_app_refuses_a_body_that_is_too_long(chunked):
    with Served(max_request_bytes=100_000) as served:
        content = json.dumps({"completions": ["a" * 200_000], "reference": ["a"]}).encode()
        status, reply, _ = served.call("POST", "/rewards", iter([content]) if chunked else content, {})
        assert (status, reply) == (413, {"error": "the body is longer than 100000 bytes; send fewer completions"})
        assert served.post("/rewards", ONE)[1]["rewards"] == [1.0]


def test_app_refuses_compressed_bodies():
    with Served() as served:
        assert served.post("/rewards", b"x", Content_Encoding="gzip")[0] == 415


def test_app_bounds_the_bodies_of_all_requests():
    long = {"completions": ["a" * 60_000], "reference": ["a"]}
    with Served(max_request_bytes=100_000, max_total_bytes=100_000) as served:
        with sent(served, request_bytes(b"x" * 60_000, length=70_000)):
            until(lambda: served.post("/rewards", long)[0] == 429)
            assert served.post("/rewards", ONE)[1]["rewards"] == [1.0]
        until(lambda: served.post("/rewards", long)[0] == 200)


def test_app_delays_nobody_for_a_slow_client():
    with Served(timeout=0.5) as served, sent(served, request_bytes(b'{"comp', length=100)) as connection:
        assert served.get("/health")[0] == 200
        assert b"408" in connection.recv(1000).split(b"\r\n")[0]


def test_app_scores_no_completions_of_clients_that_left():
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
def test_app_survives_connections_that_are_not_http(garbage):
    with Served() as served:
        with sent(served, garbage):
            pass
        assert served.post("/rewards", ONE)[1]["rewards"] == [1.0]


def test_app_scores_reports_of_a_megabyte():
    words = 500_000
    with Served() as served:
        completions = [" ".join("a" * (words + row)) for row in range(3)]
        reply = served.post("/rewards", {"completions": completions, "reference": ["a"] * 3})[1]
    assert reply["rewards"] == [words - 1.0, float(words), words + 1.0]


def test_app_finishes_running_requests_before_the_end():
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
