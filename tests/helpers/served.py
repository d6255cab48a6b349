"""A reward server in a thread of the test, on a free port, and a reward whose scores are known."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time

import torch
import uvicorn

from rrg_rewards.integrations.serve.app import make_app
from rrg_rewards.integrations.serve.run import bind, server_config
from rrg_rewards.integrations.serve.settings import ServerOptions
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import Reward

GUARD = 120
RAISED = {
    "a bug": KeyError,
    "an exit": SystemExit,
    "an interrupt": KeyboardInterrupt,
    "a cancellation": asyncio.CancelledError,
}
"""Exceptions that :class:`LengthReward` raises, by the text of the completion."""


class LengthReward(Reward):
    """The number of words of the completion minus that of the reference; unscorable without a reference.

    Waits until ``gate`` is set, and records the batches.
    """

    def __init__(self, *, columns=("reference",)):
        super().__init__("length")
        self._columns = columns
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.batches = []

    signature = "length"

    @property
    def columns(self):
        return self._columns

    def score(self, completions, **columns):
        texts = self.reports(completions)
        if texts:
            self.batches.append(texts)
            self.entered.release()
            assert self.gate.wait(GUARD)
        values = [self._value(*row) for row in zip(texts, columns["reference"], strict=True)]
        value = torch.tensor(values, dtype=torch.float64)
        return Scores(value, {"half": value / 2})

    @staticmethod
    def _value(text, reference):
        if text in RAISED:
            raise RAISED[text]("secret words of the report")
        if isinstance(reference, float):
            raise ValueError("secret words of the report")
        return float("nan") if text is None or reference is None else float(len(text.split()) - len(reference.split()))


class Faults:
    """Replies to the first requests for rewards with faults.

    Args:
        script: For each request a status, headers of a status 429, a body, ``"cut"`` for a reply that breaks off, or
            ``None`` for a good reply.
    """

    def __init__(self, *script):
        self.script = list(script)
        self.num_requests = 0

    def __call__(self, app):
        async def faulty(scope, receive, send):
            fault = None
            if scope["type"] == "http" and scope["path"] == "/rewards":
                self.num_requests += 1
                fault = self.script.pop(0) if self.script else None
            await (app(scope, receive, send) if fault is None else self._reply(fault, send))

        return faulty

    @staticmethod
    async def _reply(fault, send):
        status, headers, body = fault if isinstance(fault, int) else 200, {}, b"{}"
        if isinstance(fault, dict):
            status, headers = 429, fault
        if isinstance(fault, bytes):
            body = fault
        length = 100 if fault == "cut" else len(body)
        raw = [(name.encode(), value.encode()) for name, value in {**headers, "content-length": str(length)}.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body, "more_body": fault == "cut"})


class Served:
    """A server. ``post`` and ``get`` return status, JSON and headers.

    Args:
        reward: The reward.
        faults: Faults of the server.
        options: Further settings.
    """

    def __init__(self, reward=None, faults=None, **options):
        self.reward = LengthReward() if reward is None else reward
        self._faults = faults
        self.options = ServerOptions(self.reward, **{"max_wait_ms": 0.0, **options})

    def __enter__(self):
        self._listener = bind("127.0.0.1", 0, None)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        app = make_app(self.options)
        config = server_config(self.options, lambda: app if self._faults is None else self._faults(app))
        self.server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        for _ in range(GUARD * 100):
            if self.server.started or not self._thread.is_alive():
                break
            self._thread.join(0.01)
        assert self.server.started
        if isinstance(self.reward, LengthReward):
            self.reward.batches.clear()
            while self.reward.entered.acquire(blocking=False):
                pass
        return self

    def __exit__(self, *error):
        self.stop()
        self._thread.join(GUARD)
        assert not self._thread.is_alive()

    def stop(self):
        """Drain and end, without waiting for it."""
        self.server.should_exit = True

    def _run(self):
        with contextlib.closing(self._listener):
            asyncio.run(self.server.serve([self._listener]))

    def get(self, path, **headers):
        return self.call("GET", path, None, headers)

    def post(self, path, body, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call("POST", path, content, headers)

    def call(self, method, path, content, headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(connection):
            connection.request(method, path, content, {"Content-Type": "application/json", **given})
            response = connection.getresponse()
            text = response.read()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(text) if is_json else text.decode(), response.headers


def until(condition):
    """Wait until a condition holds; the time only bounds a failure."""
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def waiting(served):
    """The number of completions that wait for a batch."""
    return next(
        float(line.split()[1])
        for line in served.get("/metrics")[1].splitlines()
        if line.startswith("rrg_rewards_waiting")
    )


@contextlib.contextmanager
def sent(served, content):
    """A connection that has sent some bytes."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=GUARD) as connection:
        connection.sendall(content)
        yield connection


def request_bytes(body, length=None):
    """A request of ``/rewards``, whose header may tell another length."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    length = len(content) if length is None else length
    head = "POST /rewards HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode() + content
