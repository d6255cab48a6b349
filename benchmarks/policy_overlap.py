"""Measure a step of PolicyModule with rewards in the background, for a judge and for rules.

python benchmarks/policy_overlap.py --mini runs/mini_ct_chat [--steps 6] [--rounds 3] [--latency 0.2]

``--mini`` is as in ``policy_throughput.py``. The judge is a local HTTP server that answers after ``--latency`` seconds.
The rules are those of the recipe (CRG) with CRIMSON by rules. Each round runs the settings of ``overlap_rewards`` in
turn, and the time of a step is the median after the first two, in which a process starts.
"""

import argparse
import json
import os
import statistics
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import torch
from policy_runs import COMMON, GRPO, mini_generator, read, with_lightning

from rrg_rewards.data import write_json
from rrg_rewards.recipes._outputs import versions
from rrg_rewards.rewards import make_reward
from rrg_rewards.training import PolicyModule

RESULTS = Path(__file__).parent / "results"
NOT_MEASURED = 2


class Judge:
    """A reward that asks a server for one number per report."""

    __name__ = "judge"

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, completions: list[Any], **_: Any) -> list[float]:
        """Return the numbers."""
        texts = [completion[0]["content"] for completion in completions]
        request = urllib.request.Request(self.url, json.dumps(texts).encode())
        with urllib.request.urlopen(request) as answer:
            numbers: list[float] = json.load(answer)
        return numbers


def start_server(latency: float) -> ThreadingHTTPServer:
    """Start a server that answers with the number of words of each report."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(latency)
            body = json.dumps([float(len(text.split())) for text in texts]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def step_time(folder: Path, rows: Any, rewards: Any, overlap: Any, steps: int) -> tuple[float, float]:
    """Return the median time of a step and the last mean reward."""
    module = PolicyModule(mini_generator(folder), rewards, overlap_rewards=overlap, **GRPO, **COMMON)
    told = with_lightning(module, rows, steps, 0)
    ended = [step["ended"] for step in told[NOT_MEASURED - 1 :]]
    return statistics.median(b - a for a, b in pairwise(ended)), told[-1]["reward"]


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mini", type=Path, required=True, help="folder of the mini CT-CHAT's run")
    parser.add_argument("--steps", type=int, default=6, help="steps of a run (default: 6)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each setting (default: 3)")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of an answer (default: 0.2)")
    parser.add_argument("--output", type=Path, default=RESULTS / "policy_overlap.json", help="file to write")
    arguments = parser.parse_args()
    server = start_server(arguments.latency)
    with TemporaryDirectory() as output:
        data, crg = read(arguments.mini, Path(output), heldout_rows=0)
    url = f"http://127.0.0.1:{server.server_port}"
    cases: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
        "judge": (lambda: Judge(url), (None, "thread")),
        "rules": (
            lambda: [crg, make_reward("crimson", judge="rules", reference_column="impression")],
            (None, "thread", "process"),
        ),
    }
    result: dict[str, Any] = {}
    load = os.getloadavg()[0]
    for name, (make, settings) in cases.items():
        times: dict[str, list[float]] = {str(overlap): [] for overlap in settings}
        rewards: dict[str, float] = {}
        for _ in range(arguments.rounds):
            for overlap in settings:
                seconds, rewards[str(overlap)] = step_time(arguments.mini, data.train, make(), overlap, arguments.steps)
                times[str(overlap)].append(round(seconds, 3))
                print(name, overlap, times[str(overlap)][-1], flush=True)
        if len(set(rewards.values())) > 1:
            raise RuntimeError(f"the settings give different rewards: {rewards}")
        result[name] = {
            "seconds_per_step": times,
            "median": {overlap: statistics.median(values) for overlap, values in times.items()},
        }
    machine = {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": [round(load, 1), round(os.getloadavg()[0], 1)],
    }
    write_json(
        {"machine": machine, "versions": versions(), "latency": arguments.latency, **result},
        arguments.output,
        overwrite=True,
    )


if __name__ == "__main__":
    main()
