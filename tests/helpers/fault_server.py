"""An OpenAI-compatible server on loopback with scripted faults, request by request.

    with FaultServer({"a": [status(500), reset()]}) as server:
        ...  # the first request about "a" gets a 500, the second a broken connection, all others good answers

A behaviour is a coroutine function of the request and the stream to write to.
"""

import asyncio
import contextlib
import json
import socket
import threading
from collections import Counter
from dataclasses import dataclass

from tiny_task import LengthTask, asked_item, good_answer

from rrg_rewards.judges import JudgeFailure, OpenAIJudge

# Seconds that no evaluation takes unless it hangs.
GUARD = 120
ITEMS = ["a", "bb", "ccc", "dddd"]
GOOD = [1, 2, 3, 4]


@dataclass
class Request:
    """What a client sent."""

    path: str
    headers: dict
    body: dict
    item: str


def reply_bytes(payload, code=200, **headers):
    """A whole HTTP response."""
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    fields = {"Content-Type": "application/json", "Content-Length": len(content), **headers}
    lines = [f"HTTP/1.1 {code} Something", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def completion(text, finish_reason="stop"):
    """The body of a good reply."""
    return {
        "id": "1",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": text}},
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


def says(text=None, delay=0.0, finish_reason="stop"):
    """Answer with a text, the right one by default, after a while."""

    async def behave(request, writer):
        await asyncio.sleep(delay)
        writer.write(reply_bytes(completion(good_answer(request.item) if text is None else text, finish_reason)))

    return behave


def status(code, body=None, **headers):
    """Answer with a status."""
    return raw(reply_bytes(body or {"error": {"message": "no", "code": "some_code"}}, code, **headers))


def raw(content):
    """Write bytes."""

    async def behave(request, writer):
        writer.write(content)

    return behave


def silent():
    """Answer nothing, and keep the connection."""

    async def behave(request, writer):
        await asyncio.sleep(60)

    return behave


def reset(after=None):
    """Break the connection, after some bytes of a good reply."""

    async def behave(request, writer):
        writer.write(reply_bytes(completion(good_answer(request.item)))[: after or 0])
        await writer.drain()
        raise ConnectionResetError

    return behave


def drip(interval):
    """Answer well, a byte at a time."""

    async def behave(request, writer):
        for byte in reply_bytes(completion(good_answer(request.item))):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(interval)

    return behave


class FaultServer:
    """Serves on a free port of 127.0.0.1 from a thread until the block ends.

    Args:
        script: Behaviours of the first, second, ... request of an item; later requests get ``otherwise``.
        otherwise: Behaviour of all other requests.
        port: A port to take again.
        item_of: Returns the item of a conversation.
    """

    def __init__(self, script=None, otherwise=None, port=0, item_of=asked_item):
        self.script = {item: list(behaviours) for item, behaviours in (script or {}).items()}
        self.otherwise = otherwise or says()
        self._item_of = item_of
        self.requests = []
        self.in_flight = self.most_in_flight = 0
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    @property
    def asked(self):
        """Return the number of requests of each item."""
        return Counter(request.item for request in self.requests)

    def __enter__(self):
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *error):
        self.kill()

    def kill(self):
        """End at once, connections and all."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._main.cancel)
            self._thread.join()

    def _run(self, started):
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._serve(started))

    async def _serve(self, started):
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        server = await asyncio.start_server(self._connect, sock=self._socket)
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            server.close()

    async def _connect(self, reader, writer):
        self.connections += 1
        try:
            while (request := await self._read(reader)) is not None:
                self.requests.append(request)
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    behaviours = self.script.get(request.item)
                    behave = behaviours.pop(0) if behaviours else self.otherwise
                    await self._unless_gone(behave(request, writer), reader)
                    await writer.drain()
                finally:
                    self.in_flight -= 1
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            writer.close()

    @staticmethod
    async def _unless_gone(behaviour, reader):
        """Behave until the client hangs up."""
        behaving, gone = asyncio.ensure_future(behaviour), asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([behaving, gone], return_when=asyncio.FIRST_COMPLETED)
            if not behaving.done():
                raise ConnectionResetError
            behaving.result()
        finally:
            behaving.cancel()
            gone.cancel()
            await asyncio.gather(behaving, gone, return_exceptions=True)

    async def _read(self, reader):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        return Request(first.split()[1], headers, body, self._item_of(body["messages"]))


def make_judge(server, **settings):
    """A judge with short pauses."""
    return OpenAIJudge("tiny", base_url=server.url, **{"first_pause": 0.01, "timeout": 60.0, **settings})


def evaluate(judge, items, task=None):
    """Results; fails if the evaluation hangs."""
    return asyncio.run(asyncio.wait_for(judge.evaluate(task or LengthTask(), items), GUARD))


def kinds(results):
    """Kinds of failure, and results as they are."""
    return [result.kind if isinstance(result, JudgeFailure) else result for result in results]
