"""A reward server under load and attack: limits, time and connections."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import GUARD, Served, request_bytes, sent, until, waiting

from rrg_rewards.integrations.serve import app

ONE = {"completions": ["a b"], "reference": ["a"]}
HALF = b"POST /rewards HTTP/1.1\r\nHost: local"
BEGUN = {"nothing": b"", "headers": HALF, "body": request_bytes(b'{"comp', length=100)}


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


@pytest.mark.parametrize("begun", BEGUN.values(), ids=BEGUN)
def test_app_delays_nobody_for_a_slow_client(begun):
    with Served(timeout=0.5) as served, sent(served, begun) as connection:
        assert served.get("/health")[0] == 200
        assert b"408" in connection.recv(1000).split(b"\r\n")[0]
        assert connection.recv(1000) == b""


def test_app_times_every_request_of_a_connection():
    with (
        Served(timeout=0.5) as served,
        sent(served, request_bytes(ONE) + HALF) as connection,
        connection.makefile("rb") as replies,
    ):
        # Until the server closes the connection.
        text = replies.read()
    assert text.count(b"HTTP/1.1") == text.count(b"HTTP/1.1 200 ") == 1


def test_app_refuses_requests_if_there_are_too_many_connections():
    with Served(max_connections=1, timeout=1) as served, sent(served, HALF):
        until(lambda: served.server.server_state.connections)
        assert served.post("/rewards", ONE)[0] == 503
        # The first connection is closed when its time is over.
        until(lambda: served.post("/rewards", ONE)[0] == 200)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        # Before each of them is checked.
        ({"completions": [3] * 5, "reference": []}, "5 completions"),
        ({"completions": ["a b", "a b c"], "reference": ["a", "a " * 20]}, "completion 1 and its"),
        (b'{"completions": [' + b"[]," * 40_000 + b"[]]}", "the body has more than"),
        (b'{"completions": [' + b'"",' * 40_000 + b'""]}', "the body has more than"),
        (json.dumps({"completions": ['[{,"\\'] * 5 + ["a" * 70_000], "reference": []}).encode(), "6 completions"),
    ],
)
def test_app_refuses_too_many_values_and_characters(body, error):
    with Served(max_batch=4, max_pending=4, max_characters=40) as served:
        status, reply, _ = served.post("/rewards", body)
        assert (status, reply["error"][: len(error)]) == (413, error)
        assert served.reward.batches == []


def test_app_parses_long_bodies_beside_other_requests(monkeypatch):
    begun, go, parse = threading.Event(), threading.Event(), app._json_object

    def slowly(body):
        begun.set()
        assert go.wait(GUARD)
        return parse(body)

    with Served() as served, ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(app, "_json_object", slowly)
        long = threads.submit(served.post, "/rewards", {"completions": ["a " * 50_000], "reference": ["a"]})
        assert begun.wait(GUARD)
        assert served.get("/health")[0] == 200
        go.set()
        assert long.result()[1]["rewards"] == [49_999.0]


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ({"Origin": "https://page.example"}, 403, "requests of web pages"),
        ({"Origin": "null"}, 403, "requests of web pages"),
        ({"Host": "rebound.example:8787"}, 403, "the header Host"),
        ({"Host": "127.0.0.1.rebound.example"}, 403, "the header Host"),
        ({"Content_Type": "text/plain"}, 415, "the body must be JSON"),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415, "the body must be JSON"),
        ({"Content_Type": ""}, 415, "the body must be JSON"),
    ],
)
def test_app_refuses_what_a_web_page_can_send(server, headers, status, error):
    server.reward.batches.clear()
    got, reply, _ = server.post("/rewards", ONE, **headers)
    assert (got, reply["error"][: len(error)]) == (status, error)
    assert server.reward.batches == []


def test_app_takes_any_name_of_a_server_with_a_token():
    with Served(token="s3cret") as served:
        headers = {"Authorization": "Bearer s3cret", "Host": "rewards.example"}
        assert served.post("/rewards", ONE, **headers)[1]["rewards"] == [1.0]
        assert served.post("/rewards", ONE, Origin="https://page.example", **headers)[0] == 403


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
    with Served(max_characters=2_000_000) as served:
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
