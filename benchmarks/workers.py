"""Measure commands with one and with two worker processes: time, memory of the workers, and bytes of the outputs.

python benchmarks/workers.py --quick
python benchmarks/workers.py --only score label agreement attack --seconds 30 --output benchmarks/results/workers.json

Runs `score`, `label`, `agreement` and `attack` of one synthetic table as commands, with --workers 1 and 2 in turn, and
compares all bytes of their output files. Each sentence gets a number of its own, so that no result of another sentence
is remembered. The table is so long that the work of one process takes `--seconds`. `start` is the same command on 20
rows; `ratio` compares whole commands, and `ratio_of_work` the seconds beyond the start. Memory is the largest
proportional set size (Pss, shared pages divided between their processes) and resident set size (RSS) of a worker.

The machine should be idle. If it is not, `expected_ratio` says what idle cores would give, from processor time: of one
process alone, divided by the start, the remaining time of the main process, and the mean time of a worker. The first
number assumes that the main process never computes while workers do, the second that it always does.

`serve` is loaded by clients in this process, so on a machine with two cores the clients take a part of what the second
worker could use; `processor_ms_per_reward` counts the server alone.
"""

import argparse
import asyncio
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import psutil
from benchmark_data import SHARED
from serve import processor_seconds, serving, single_requests, until_all_listen, until_ready
from timing import machine

from rrg_rewards.data import phantom_studies, write_json

PAIRS = SHARED / "reg2rg_ct_rate" / "pairs.csv"
MIB = 2**20

# Rows, and calls of an attack, of the run that tells how many the aim needs.
ROWS = 500
ATTACK = 24_000


def read_pairs() -> tuple[list[tuple[str, str]], str]:
    """Return predictions with references of a generator, or those of phantom studies, and what they are."""
    if PAIRS.is_file():
        with PAIRS.open(newline="", encoding="utf-8") as file:
            return [(row["prediction"], row["reference"]) for row in csv.DictReader(file)], "reg2rg_ct_rate"
    reports = [study.report for study in phantom_studies(601, seed=0, style="full")]
    return list(pairwise(reports)), "phantom studies"


def fresh(text: str, draw: random.Random) -> str:
    """Return a report whose sentences occur in no other report."""
    return ". ".join(f"{sentence.rstrip('.')}, image {draw.randrange(10**9)}" for sentence in text.split(". ")) + "."


def write_table(path: Path, pairs: list[tuple[str, str]], rows: int) -> None:
    """Write a table of pairs with fresh sentences, some of them unscorable, an age and a rating."""
    draw = random.Random(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["prediction", "reference", "age", "rating"])
        for row in range(rows):
            prediction, reference = (fresh(text, draw) for text in pairs[row % len(pairs)])
            writer.writerow(
                ["" if row % 97 == 5 else prediction, reference, ("", "40", "71")[row % 3], draw.randrange(5)]
            )


@dataclass(frozen=True)
class Tables:
    """Tables of report pairs in a folder, by their number of rows."""

    folder: Path
    pairs: list[tuple[str, str]]

    def __call__(self, rows: int) -> Path:
        """Return the path of a table."""
        path = self.folder / f"{rows}.csv"
        if not path.exists():
            write_table(path, self.pairs, rows)
        return path


def commands() -> dict[str, list[str]]:
    """Return the options of each command without its table, outputs and budget."""
    few = ["--bootstrap", "100", "--permutations", "100"]
    return {
        "score": ["--metrics", "crimson,crg", "--context", "age=age"],
        "label": ["--text-column", "reference"],
        "agreement": ["--metrics", "crimson,rouge", "--human", "rating", *few],
        "attack": ["--reward", "crimson", "--honest-column", "prediction"],
    }


def run(command: str, options: list[str], table: Path, workers: int) -> dict[str, Any]:
    """Run a command; return its time, the memory of its workers in MiB, and the bytes of its files."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "summary.json", Path(folder) / "rows.csv"][: 1 if command == "attack" else 2]
        named = [f"--{option}={path}" for option, path in zip(("json", "output"), files, strict=False)]
        arguments = [sys.executable, "-m", "rrg_rewards", command, str(table), *options, *named, "--quiet"]
        began, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
        process = subprocess.Popen([*arguments, "--workers", str(workers)], stdout=subprocess.DEVNULL)
        pss = rss = 0
        own: dict[int, float] = {}
        while process.poll() is None:
            time.sleep(0.25)
            for pid, used, times in usage(process.pid):
                pss, rss, own[pid] = max(pss, used.pss), max(rss, used.rss), times.user + times.system
        seconds, after = time.perf_counter() - began, getrusage(RUSAGE_CHILDREN)
        if process.returncode:
            raise SystemExit(f"{command} ended with {process.returncode}")
        content = [path.read_bytes() for path in files]
    # Workers are children of the process that forks them, for which the command does not wait.
    main = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    memory = {"pss_mib": round(pss / MIB), "rss_mib": round(rss / MIB)}
    return {"seconds": seconds, "main": main, "workers": [*own.values()], **memory, "content": content}


def usage(pid: int) -> list[tuple[int, Any, Any]]:
    """Return the id, memory and processor time of the workers of a process."""
    used = []
    try:
        for one in psutil.Process(pid).children(recursive=True):
            if one.ppid() != pid and "forkserver" in " ".join(one.cmdline()):
                used.append((one.pid, one.memory_full_info(), one.cpu_times()))
    except psutil.Error:
        pass  # The process has ended meanwhile.
    return used


def compare(command: str, options: list[str], tables: Tables, aim: float) -> dict[str, Any]:
    """Return the figures of a command with one and two workers.

    Args:
        command: The command.
        options: Its options.
        tables: Makes tables by their number of rows.
        aim: Seconds of processor time of one process, without its start.
    """
    # An attack has no table so small that it does nothing: one family with few calls.
    short = ["--families", "labels", "--budget", "500"] if command == "attack" else []
    begun = [run(command, [*options, *short], tables(20), workers) for workers in (1, 2)]
    start = [each["seconds"] for each in begun]
    tried = ["--budget", str(ATTACK)] if command == "attack" else []
    size = ATTACK if command == "attack" else ROWS
    work = run(command, [*options, *tried], tables(ROWS), 1)["main"] - begun[0]["main"]
    size = max(size, int(size * aim / max(work, 0.1)))
    chosen = ["--budget", str(size)] if command == "attack" else []
    table = tables(ROWS if command == "attack" else size)
    one, two = (run(command, [*options, *chosen], table, workers) for workers in (1, 2))
    seconds = [one["seconds"], two["seconds"]]
    begin, rest = begun[1]["main"], max(two["main"] - begun[1]["main"], 0)
    computed = sum(two["workers"])
    slowest, fastest = begin + rest + computed / 2, begin + max(rest, (rest + computed) / 2)
    return {
        "command": command,
        "budget" if command == "attack" else "rows": size,
        "seconds": [round(each, 2) for each in seconds],
        "start_seconds": [round(each, 2) for each in start],
        "ratio": round(seconds[0] / seconds[1], 2),
        "ratio_of_work": round((seconds[0] - start[0]) / (seconds[1] - start[1]), 2),
        "processor_seconds": {
            "one": round(one["main"], 2),
            "main": round(two["main"], 2),
            "workers": [round(each, 2) for each in two["workers"]],
        },
        "expected_ratio": [round(one["main"] / slowest, 2), round(one["main"] / fastest, 2)],
        "worker_pss_mib": two["pss_mib"],
        "worker_rss_mib": two["rss_mib"],
        "equal_bytes": one["content"] == two["content"],
    }


def serve(pairs: list[tuple[str, str]], requests: int, clients: int) -> dict[str, Any]:
    """Return the rewards per second of a server with one and two workers, for texts that it has not seen."""
    draw = random.Random(1)
    texts = [[fresh(text, draw) for text in pairs[row % len(pairs)]] for row in range(requests + 2 * clients)]
    completions, references = (list(column) for column in zip(*texts, strict=True))
    rates, processor, rewards = [], [], []
    for workers in (1, 2):
        with serving("crimson", workers) as (process, url):
            until_all_listen(process, workers)
            asyncio.run(until_ready(url))
            # The first requests read word lists.
            asyncio.run(single_requests(url, completions[requests:], references[requests:], clients))
            before = processor_seconds(process)
            found, _, seconds = asyncio.run(
                single_requests(url, completions[:requests], references[:requests], clients)
            )
            processor.append(round(1000 * (processor_seconds(process) - before) / requests, 2))
        rates.append(round(requests / seconds, 1))
        rewards.append(found)
    return {
        "command": "serve",
        "rewards_per_second": rates,
        "processor_ms_per_reward": processor,
        "ratio": round(rates[1] / rates[0], 2),
        "equal_rewards": rewards[0] == rewards[1],
    }


def main() -> None:
    """Measure all commands, print their figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="processor time of each command without its start")
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=["score", "label", "agreement", "attack", "serve"])
    parser.add_argument("--quick", action="store_true", help="a small table, in less than two minutes on idle cores")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "workers.json")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seconds, arguments.requests = 5, 1_000
    pairs, source = read_pairs()
    figures: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for command, options in commands().items():
            if arguments.only is None or command in arguments.only:
                figures.append(compare(command, options, Tables(Path(folder), pairs), arguments.seconds))
                print(json.dumps(figures[-1]), flush=True)
    if arguments.only is None or "serve" in arguments.only:
        figures.append(serve(pairs, arguments.requests, arguments.clients))
        print(json.dumps(figures[-1]), flush=True)
    described = {**machine(), "cores": os.cpu_count()}
    size = {"seconds": arguments.seconds, "requests": arguments.requests, "reports": source}
    write_json({"machine": described, **size, "figures": figures}, arguments.output, overwrite=True)
    if not all(figure.get("equal_bytes", figure.get("equal_rewards")) for figure in figures):
        raise SystemExit("the outputs differ")


if __name__ == "__main__":
    main()
