"""Load and faults of a reward server: its latency beside a bare application, and what becomes of broken requests.

python benchmarks/faults/reward_server.py
python benchmarks/faults/reward_server.py --rounds 20 --output figures.json

Starts `rrg-rewards serve` and a bare Starlette application that computes the same number, both with uvicorn and h11,
and measures them in turn, round by round, so that other work on the machine delays both. The wait for a batch is 0.
Then it sends the server faults and counts the replies. The clients run in this process, on the same machine; all
addresses are of this machine. Prints a table and writes the figures to --output.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from benchmark_data import write_results  # noqa: E402
from timing import machine  # noqa: E402

HOST = "127.0.0.1"
TIMEOUT = 5
GOOD = {"completions": ["The heart is enlarged. No effusion."]}
COMMANDS = {
    "served": ["rrg_rewards", "serve", "--reward", "faulty_reward:FaultyReward", "--max-wait-ms", "0", "--port"],
    "bare": ["uvicorn", "faulty_reward:bare", "--no-access-log", "--http", "h11", "--log-level", "warning", "--port"],
}


@contextlib.contextmanager
def started(name: str, *options: str) -> Iterator[tuple[psutil.Process, int]]:
    """Start a side, and yield its process and port when it answers."""
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    process = subprocess.Popen([sys.executable, "-m", *COMMANDS[name], str(port), *options], env=environment)
    try:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                asyncio.run(send(port, 1))
                break
            if process.poll() is not None:
                raise SystemExit(f"{name} did not start")
            time.sleep(0.1)
        yield psutil.Process(process.pid), port
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def request(body: Any, **headers: str) -> bytes:
    """Return the bytes of a request for rewards."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    told = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(content)), **given}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"POST /rewards HTTP/1.1\r\n{lines}\r\n".encode() + content


async def send(port: int, count: int, content: bytes = request(GOOD)) -> tuple[list[int], list[float]]:
    """Send requests one after the other on a connection; return the statuses and the seconds."""
    reader, writer = await asyncio.open_connection(HOST, port)
    statuses, seconds = [], []
    for _ in range(count):
        began = time.perf_counter()
        writer.write(content)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if length := re.search(rb"content-length: (\d+)", head):
            await reader.readexactly(int(length[1]))
        seconds.append(time.perf_counter() - began)
        statuses.append(int(head.split()[1]))
    writer.close()
    return statuses, seconds


async def load(port: int, clients: int, count: int) -> list[float]:
    """Return the seconds of good requests of concurrent clients.

    Raises:
        SystemExit: If a reply is no reward.
    """
    replies = await asyncio.gather(*(send(port, count) for _ in range(clients)))
    if wrong := Counter(status for statuses, _ in replies for status in statuses if status != 200):
        raise SystemExit(f"wrong replies under load: {dict(wrong)}")
    return [one for _, seconds in replies for one in seconds]


def latencies(rounds: int) -> list[dict[str, Any]]:
    """Measure both sides in turn, and return their quantiles and ratios."""
    figures = []
    with started("served") as served, started("bare") as bare:
        sides = {"served": served, "bare": bare}
        for clients, count in ((1, 50), (32, 5)):
            seconds: dict[str, list[float]] = {name: [] for name in sides}
            processor = dict.fromkeys(sides, 0.0)
            for _, port in sides.values():
                asyncio.run(load(port, clients, count))
            for _ in range(rounds):
                for name, (process, port) in sides.items():
                    before = sum(process.cpu_times()[:2])
                    seconds[name] += asyncio.run(load(port, clients, count))
                    processor[name] += sum(process.cpu_times()[:2]) - before
            own, other = (statistics.quantiles(seconds[name], n=100) for name in sides)
            figures.append(
                {
                    "clients": clients,
                    "requests": len(seconds["served"]),
                    **{f"{name}_p50_ms": 1000 * cuts[49] for name, cuts in (("served", own), ("bare", other))},
                    **{f"{name}_p99_ms": 1000 * cuts[98] for name, cuts in (("served", own), ("bare", other))},
                    **{f"{name}_processor_ms": 1000 * processor[name] / len(seconds[name]) for name in sides},
                    "p50_ratio": own[49] / other[49],
                    "p99_ratio": own[98] / other[98],
                }
            )
    return figures


def health(port: int) -> int:
    """Return the status of ``/health``."""
    with socket.create_connection((HOST, port)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return int(connection.makefile("rb").readline().split()[1])


async def among(port: int, bad: bytes, count: int) -> tuple[Counter[int], Counter[int]]:
    """Send bad and good requests at the same time; return the statuses of each."""
    replies = await asyncio.gather(*(send(port, 1, one) for one in [bad, request(GOOD)] * count))
    return Counter(one[0][0] for one in replies[::2]), Counter(one[0][0] for one in replies[1::2])


def faults() -> list[dict[str, Any]]:
    """Send faults to a server, and return the statuses of the bad requests and of the good ones beside them."""
    rows = []

    def note(fault: str, bad: Counter[int], good: Counter[int]) -> None:
        rows.append({"fault": fault, "bad": dict(bad), "good": dict(good), "health": health(port)})

    lists = b'{"completions": [' + b"[]," * 4_600_000 + b"[]]}"
    kinds = {
        "the reward raises SystemExit": (request({"completions": ["exit"]}), 100),
        "14 MB of empty lists": (request(lists), 5),
        "a completion of 1 MB": (request({"completions": ["a " * 500_000]}), 10),
        "header Origin": (request(GOOD, Origin="https://page.example"), 50),
        "header Host of another name": (request(GOOD, Host="page.example"), 50),
        "Content-Type text/plain": (request(GOOD, Content_Type="text/plain"), 50),
        "JSON that breaks off": (request(b'{"completions": ["a"'), 50),
    }
    with started("served", "--timeout", str(TIMEOUT)) as (_, port):
        for fault, (content, count) in kinds.items():
            note(fault, *asyncio.run(among(port, content, count)))
        with contextlib.ExitStack() as stack:
            for _ in range(600):
                half = stack.enter_context(socket.create_connection((HOST, port)))
                with contextlib.suppress(OSError):
                    half.sendall(b"POST /rewards HTTP/1.1\r\nHost: local")
            note("600 half-open connections", Counter(), Counter(asyncio.run(send(port, 100))[0]))
        for _ in range(100):
            with socket.create_connection((HOST, port)) as leaving:
                leaving.sendall(request(GOOD))
        note("100 clients leave before the reply", Counter(), Counter(asyncio.run(send(port, 100))[0]))
        hung = Counter(asyncio.run(send(port, 1, request({"completions": ["hang"]})))[0])
        note("the reward never returns", hung, Counter(asyncio.run(send(port, 100))[0]))
    return rows


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of 50 and 160 requests to each side")
    parser.add_argument("--quick", action="store_true", help="2 rounds; writes only to --output")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/reward_server_faults.json")
    arguments = parser.parse_args()
    load_figures = latencies(2 if arguments.quick else arguments.rounds)
    for one in load_figures:
        print(", ".join(f"{name} {value:.4g}" for name, value in one.items()), flush=True)
    fault_figures = faults()
    for one in fault_figures:
        print(f"{one['fault']:36} bad {one['bad']!s:14} good {one['good']!s:22} /health {one['health']}")
    figures = {"machine": machine(), "load": load_figures, "faults": fault_figures}
    write_results(figures, arguments, "reward_server_faults")


if __name__ == "__main__":
    main()
