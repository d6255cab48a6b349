"""Measure the answers per second of OpenAIJudge: concurrent, sequential and from the cache.

    python benchmarks/openai_judge.py
    python benchmarks/openai_judge.py --concurrency 32 --rounds 20

The server is another process on the same machine that answers every request after 100 ms. `c` concurrent calls
therefore allow at most `10 c` answers per second; the target is 0.9 of this. The limit of the machine is measured in
the same run with clients that write prepared bytes to sockets and do not parse the answers. The same items are then
evaluated again from the cache; the target is 5,000 per second. An item has 1,500 letters, and the instructions 4,000.
"""

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from timing import machine

from rrg_rewards.judges import JudgeFailure, JudgeTask, OpenAIJudge
from rrg_rewards.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DELAY = 0.1
SHARE_TARGET = 0.9
CACHED_TARGET = 5000
INSTRUCTIONS = "Compare the reports, and answer in JSON. " * 100
FINDING = {"id": "R1", "finding": "small right pleural effusion", "clinical_significance": "not_actionable"}


class Comparison(JudgeTask[str, dict[str, Any]]):
    """A task with requests and answers as large as those of a report comparison."""

    name = "comparison"
    prompt_hash = hashlib.sha256(INSTRUCTIONS.encode()).hexdigest()[:8]
    schema: Mapping[str, Any] = {"type": "object", "properties": {"findings": {"type": "array"}}}

    def messages(self, item: str) -> list[dict[str, str]]:
        """Return the instructions and the reports."""
        return [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": item}]

    def parse(self, item: str, answer: str) -> dict[str, Any]:  # noqa: ARG002
        """Return the findings."""
        result: dict[str, Any] = json.loads(answer)
        return result


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--rounds", type=int, default=80, help="number of items per concurrent call")
    parser.add_argument("--sequential", type=int, default=30, help="number of items that are sent one at a time")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "openai_judge.json")
    return parser.parse_args()


def serve(listener: socket.socket) -> None:
    """Answer every request after a delay."""
    answer = json.dumps({"findings": [FINDING] * 6})
    reply = json.dumps(
        {
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}}],
            "usage": {"prompt_tokens": 1500, "completion_tokens": 200, "total_tokens": 1700},
        }
    ).encode()
    response = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(reply) + reply

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.split(b"content-length:")[1].split(b"\r\n")[0]
                await reader.readexactly(int(length))
                await asyncio.sleep(DELAY)
                writer.write(response)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(connect, sock=listener)
        await server.serve_forever()

    asyncio.run(run())


def answers_per_second(judge: OpenAIJudge, items: list[str]) -> tuple[float, float]:
    """Measure answers per second of one evaluation, and CPU milliseconds per answer.

    Raises:
        RuntimeError: If an item has no answer.
    """
    start, cpu = time.perf_counter(), time.process_time()
    results = judge.evaluate_now(Comparison(), items)
    taken, used = time.perf_counter() - start, time.process_time() - cpu
    failures = [result for result in results if isinstance(result, JudgeFailure)]
    if failures:
        raise RuntimeError(f"{len(failures)} items have no answer; the first: {failures[0]}")
    return len(items) / taken, 1000 * used / len(items)


def bare_answers_per_second(port: int, concurrency: int, count: int) -> float:
    """Measure answers per second of plain sockets, which neither build requests nor parse answers."""
    body = json.dumps({"messages": Comparison().messages("x" * 1500)}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def send(share: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(share):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
        writer.close()

    async def run() -> None:
        await asyncio.gather(*(send(count // concurrency) for _ in range(concurrency)))

    start = time.perf_counter()
    asyncio.run(run())
    return count // concurrency * concurrency / (time.perf_counter() - start)


def measure(base_url: str, concurrency: int, count: int) -> dict[str, Any]:
    """Measure one concurrency: from the server, then from the cache."""
    items = [f"{concurrency}-{number} ".ljust(1500, "x") for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        judge = OpenAIJudge("benchmark", base_url=base_url, concurrency=concurrency, cache=folder)
        served, cpu = answers_per_second(judge, items)
        cached, cached_cpu = answers_per_second(judge, items)
        if (judge.usage.calls, judge.usage.cached) != (count, count):
            raise RuntimeError(f"expected {count} calls and as many cached answers, got {judge.usage}")
    return {
        "items": count,
        "answers_per_second": round(served, 1),
        "share_of_server": round(served * DELAY / concurrency, 3),
        "cpu_ms_per_answer": round(cpu, 2),
        "cached_answers_per_second": round(cached),
        "cached_cpu_ms_per_answer": round(cached_cpu, 3),
    }


def main() -> None:
    """Measure all sides, print their figures and write them."""
    arguments = parse_arguments()
    described = {**machine(), "cores": os.cpu_count(), "openai": version("openai"), "rrg_rewards": __version__}
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    port = listener.getsockname()[1]
    base_url = f"http://127.0.0.1:{port}/v1"
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
    server.start()
    try:
        # The first evaluation includes lazy imports.
        answers_per_second(OpenAIJudge("benchmark", base_url=base_url), ["warm-up"])
        one = OpenAIJudge("benchmark", base_url=base_url, concurrency=1)
        sequential, _ = answers_per_second(
            one, [f"{number} ".ljust(1500, "x") for number in range(arguments.sequential)]
        )
        print(f"{'one at a time':24}{sequential:10.1f} answers/s")
        figures: dict[str, Any] = {"sequential_answers_per_second": round(sequential, 2)}
        for concurrency in arguments.concurrency:
            row = measure(base_url, concurrency, concurrency * arguments.rounds)
            row["bare_sockets_answers_per_second"] = round(bare_answers_per_second(port, concurrency, row["items"]), 1)
            row["ratio_to_sequential"] = round(row["answers_per_second"] / sequential, 1)
            figures[f"concurrency_{concurrency}"] = row
            print(
                f"{concurrency:3} at a time           {row['answers_per_second']:10.1f} answers/s "
                f"({row['share_of_server']:.1%} of the server's, target {SHARE_TARGET:.0%}; bare sockets "
                f"{row['bare_sockets_answers_per_second']:.1f}; "
                f"{row['ratio_to_sequential']} times one at a time); from the cache "
                f"{row['cached_answers_per_second']:,} answers/s (target {CACHED_TARGET:,})"
            )
    finally:
        server.terminate()
        server.join()
    targets = {"share_of_server": SHARE_TARGET, "cached_answers_per_second": CACHED_TARGET}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": described, "server_delay_seconds": DELAY, "targets": targets, "figures": figures}
    arguments.output.write_text(json.dumps(content, indent=2) + "\n")
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
