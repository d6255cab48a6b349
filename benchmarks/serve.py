"""Measure a reward server: single requests of concurrent clients beside direct calls of the reward.

python benchmarks/serve.py
python benchmarks/serve.py --reward crimson --workers 1 2 --requests 2000

Starts `rrg-rewards serve` on a free port and sends each completion in a request of its own, from --clients connections
that each wait for a reply before the next request. The clients run in this process, on the same machine as the server.
Every reward is compared with that of a direct call for the same completion; a lost or wrong one is counted. The reports
are those of phantom studies, each compared with the report of the next study. The figures are written to --output.
"""

import argparse
import asyncio
import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from benchmark_data import write_results
from timing import machine

from rrg_rewards.data import phantom_studies
from rrg_rewards.rewards import RemoteReward, make_reward

OPTIONS: dict[str, dict[str, Any]] = {"crg": {"prior": 0.2}, "crimson": {}}


@contextlib.contextmanager
def serving(reward: str, workers: int) -> Iterator[tuple[psutil.Process, str]]:
    """Start a server and yield its process and address."""
    settings = [f"--set={name}={value}" for name, value in OPTIONS[reward].items()]
    command = [sys.executable, "-m", "rrg_rewards", "serve", "--reward", reward, *settings]
    command += ["--port", "0", "--workers", str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    address = re.search(r"at (http://\S+)$", line)
    if address is None:
        raise SystemExit(f"the server did not start: {line}{process.stderr.read()}")
    try:
        yield psutil.Process(process.pid), address[1]
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait() != 0:
            raise SystemExit(f"the server ended with {process.returncode}")


def until_all_listen(process: psutil.Process, workers: int) -> None:
    """Wait until all workers accept connections."""
    while True:
        listening = [
            one
            for one in (process, *process.children())
            if any(connection.status == psutil.CONN_LISTEN for connection in one.net_connections("tcp"))
        ]
        if len(listening) >= workers:
            return
        time.sleep(0.1)


class Connection:
    """A connection that writes requests to a socket, which takes less processor time than an HTTP client.

    Args:
        url: Address of the server.
    """

    def __init__(self, url: str) -> None:
        self._host, _, self._port = url.removeprefix("http://").partition(":")

    async def open(self) -> "Connection":
        """Connect to the server."""
        self._reader, self._writer = await asyncio.open_connection(self._host, int(self._port))
        return self

    async def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request, and return the body of the reply.

        Raises:
            SystemExit: If the status of the reply is not 200.
        """
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        reply = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        content = await self._reader.readexactly(int(reply.split(b"content-length:")[1].split(b"\r\n")[0]))
        if b" 200 " not in reply.split(b"\r\n")[0]:
            raise SystemExit(f"the server answered {reply.splitlines()[0]!r}: {content!r}")
        return content

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def until_ready(url: str) -> None:
    """Wait until the server answers."""
    while True:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            connection = await Connection(url).open()
            await connection.request("GET", "/health")
            connection.close()
            return
        await asyncio.sleep(0.1)


async def single_requests(
    url: str, completions: Sequence[str], references: Sequence[str], clients: int
) -> tuple[list[float | None], list[float], float]:
    """Return the reward of each completion, the seconds of each request, and the seconds of all."""
    rewards: list[float | None] = [None] * len(completions)
    seconds = [0.0] * len(completions)
    rows = iter(range(len(completions)))

    async def client() -> None:
        connection = await Connection(url).open()
        for row in rows:
            body = json.dumps({"completions": [completions[row]], "reference": [references[row]]}).encode()
            began = time.perf_counter()
            (rewards[row],) = json.loads(await connection.request("POST", "/rewards", body))["rewards"]
            seconds[row] = time.perf_counter() - began
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return rewards, seconds, time.perf_counter() - began


def processor_seconds(process: psutil.Process) -> float:
    """Return the processor time of a process and its children."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def direct_calls(
    reward: str, completions: Sequence[str], references: Sequence[str]
) -> tuple[list[float | None], dict[str, float]]:
    """Return the rewards of direct calls with one completion each, and figures of the calls."""
    own: Any = make_reward(reward, **OPTIONS[reward])
    wall, processor = time.perf_counter(), time.process_time()
    rewards = [own([one], reference=[other])[0] for one, other in zip(completions, references, strict=True)]
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return rewards, {
        "direct_rewards_per_second": len(rewards) / wall,
        "direct_processor_ms_per_reward": 1000 * processor / len(rewards),
    }


def measure(
    reward: str, workers: int, completions: list[str], references: list[str], clients: int, expected: list[float | None]
) -> dict[str, Any]:
    """Measure a server, and compare its rewards with those of direct calls."""
    with serving(reward, workers) as (process, url):
        until_all_listen(process, workers)
        asyncio.run(until_ready(url))
        before = processor_seconds(process)
        rewards, seconds, total = asyncio.run(single_requests(url, completions, references, clients))
        processor = processor_seconds(process) - before
        began = time.perf_counter()
        batched = asyncio.run(RemoteReward(url)(completions, reference=references))
        in_batches = time.perf_counter() - began
    cuts = statistics.quantiles(seconds, n=100)
    return {
        "workers": workers,
        "clients": clients,
        "requests": len(completions),
        "without_reward": sum(one is None for one in rewards),
        "different_from_direct": sum(one != other for one, other in zip(rewards, expected, strict=True)),
        "different_in_batches": sum(one != other for one, other in zip(batched, expected, strict=True)),
        "p50_ms": 1000 * cuts[49],
        "p99_ms": 1000 * cuts[98],
        "rewards_per_second": len(completions) / total,
        "processor_ms_per_reward": 1000 * processor / len(completions),
        "remote_reward_per_second": len(completions) / in_batches,
    }


def main() -> None:
    """Measure all settings and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reward", nargs="+", choices=sorted(OPTIONS), default=["crg"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="2,000 requests to one worker; writes only to --output")
    parser.add_argument("--output", type=Path, help="file of the figures; default: benchmarks/results/serve.json")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.requests, arguments.workers = 2_000, [1]
    reports = [study.report for study in phantom_studies(arguments.requests + 1, seed=0, style="full")]
    figures = []
    for reward in arguments.reward:
        expected, direct = direct_calls(reward, reports[:-1], reports[1:])
        for workers in arguments.workers:
            figure = measure(reward, workers, reports[:-1], reports[1:], arguments.clients, expected)
            ratios = {
                "rate_over_direct": figure["rewards_per_second"] / direct["direct_rewards_per_second"],
                "direct_processor_over_served": direct["direct_processor_ms_per_reward"]
                / figure["processor_ms_per_reward"],
            }
            figures.append({"reward": reward, **figure, **direct, **ratios})
            print(json.dumps(figures[-1]), flush=True)
    write_results({"machine": machine(), "figures": figures}, arguments, "serve")


if __name__ == "__main__":
    main()
