"""Measure how time and peak memory of commands grow with the number of report pairs.

    python benchmarks/growth.py --quick
    python benchmarks/growth.py --sizes 1 10 100 --limit 120
    nice -n 19 python benchmarks/growth.py --sizes 1 100 1000 --commands score_crg,score_html --limit 600 --add

Each cell is a process of its own that runs the real command line with one thread: its wall-clock seconds, the seconds
of the processor, and the peak of its resident memory. Sizes are in thousands of pairs; `start` is the same command on
20 pairs. A size that would take more than ``--limit`` seconds of the processor, as predicted from the size before, is
not run, and nor are larger ones. A command that exceeds the limit nevertheless is stopped. The table names the largest
size that ended.

The exponents are the slopes of the processor time and of the peak memory between two sizes on logarithmic axes; the
table shows those of the two largest sizes that ended. `work` is the processor time beyond that of `start`, so that its
exponent is near 1 if the time of a pair is constant; it is left out where the smaller size takes less than half of the
start's time. `bytes/pair` is the further peak memory for each further pair between these two sizes, and `memory_ratio`
the peak over that of `start`. Processor time and memory depend little on other work on the machine; wall-clock seconds
do, and the load average is stated for each command.

Tables are written as streams to a temporary folder and removed at the end. The reports are made of the sentences of
CT-RATE's pairs in the shared folder, or of phantom studies if there are none: the sentences of a report are recombined,
and their numbers are drawn. Equal seeds give equal tables. No two reports are equal, but sentences without a number
repeat, and the finding engine remembers these: times per pair are below those of new sentences. A table of 1,000
thousand pairs takes about 4 GB.
"""

import argparse
import csv
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmark_data import RESULTS, SHARED, write_results
from timing import machine

from rrg_rewards.data import phantom_studies
from rrg_rewards.version import __version__

PAIRS = SHARED / "reg2rg_ct_rate" / "pairs.csv"
SIZES = (1, 10, 100, 1000)
QUICK = (5, 20)
QUICK_COMMANDS = "score_crg,score_crimson,compare"
START_PAIRS = 20
# Work below this part of the start's processor time is not distinguished from the noise of the start.
LEAST_WORK = 0.5
_NUMBER = re.compile(r"\d+")

# Options by command. {table}, {output}, {page} and {summary} are paths of the temporary folder.
COMMANDS = {
    "score_crg": "score {table} --metrics crg --output {output}",
    "score_crimson": "score {table} --metrics crimson --bootstrap 0 --output {output}",
    "score_ct_finebench": "score {table} --metrics ct_finebench --bootstrap 0 --output {output}",
    "score_html": "score {table} --metrics crg --bootstrap 0 --html {page} --with-text",
    "label": "label {table} --text-column reference --schema ct_rate --output {output}",
    "compare": "compare {table} --prediction-column prediction --prediction-column other --metrics crg --output "
    "{output}",
    "compare_scores": "compare {table} --prediction-column a --prediction-column b --scores {{column}}_score",
    "agreement": "agreement {table} --scores a_score,b_score --human rating",
    "attack": "attack {table} --reward crg --honest-column prediction --budget 40000 --json {summary}",
}

Cell = dict[str, Any]
# Sentences of the reference and of the prediction of each pair.
Pairs = list[tuple[list[str], list[str]]]


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="thousands of pairs (default: 1 to 1000)")
    parser.add_argument("--commands", help=f"separated by commas (default: all): {', '.join(COMMANDS)}")
    parser.add_argument("--limit", type=float, default=30, help="processor seconds of a command (default: 30)")
    parser.add_argument(
        "--quick", action="store_true", help=f"the sizes {QUICK} of {QUICK_COMMANDS}; writes only to --output"
    )
    parser.add_argument("--add", action="store_true", help="keep the other commands' figures in the file of --output")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="file of the figures; default: benchmarks/results/growth.json")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes = QUICK
    chosen = arguments.commands or (QUICK_COMMANDS if arguments.quick else ",".join(COMMANDS))
    arguments.commands = chosen.split(",")
    if unknown := [name for name in arguments.commands if name not in COMMANDS]:
        parser.error(f"argument --commands: unknown {unknown[0]!r}; known: {', '.join(COMMANDS)}")
    return arguments


def read_pairs() -> tuple[str, Pairs]:
    """Return the source of the pairs, and the sentences of the reference and the prediction of each."""
    if PAIRS.is_file():
        with PAIRS.open(newline="", encoding="utf-8") as file:
            texts = [(row["reference"], row["prediction"]) for row in csv.DictReader(file)]
        source = "CT-RATE"
    else:
        reports = [study.report for study in phantom_studies(400, seed=0, style="full")]
        texts, source = list(zip(reports[::2], reports[1::2], strict=True)), "phantom studies"
    return source, [(_sentences(reference), _sentences(prediction)) for reference, prediction in texts]


def _sentences(text: str) -> list[str]:
    return [one for one in re.split(r"(?<=\.)\s+", text.strip()) if one]


def make_rows(pairs: Pairs, number: int, seed: int) -> Iterator[list[Any]]:
    """Yield rows: study, reference, two predictions, two scores and a rating."""
    draw = random.Random(seed)

    def report(sentences: list[str], others: list[str]) -> str:
        chosen = [one for one in sentences if draw.random() < 0.8] + draw.sample(others, min(2, len(others)))
        # The number of a report that no other has makes each of its texts new.
        chosen.append(f"Nodule of {draw.randrange(3, 40)} mm, series {draw.randrange(10**9)}.")
        return " ".join(
            _NUMBER.sub(lambda found: str(draw.randrange(1, 10 ** len(found[0][:9]))), one) for one in chosen
        )

    for study in range(number):
        reference, prediction = draw.choice(pairs)
        _, others = draw.choice(pairs)
        rating = draw.randrange(1, 6)
        yield [
            f"study_{study}",
            report(reference, others),
            report(prediction, others),
            report(prediction, others),
            *(round(rating / 5 + draw.gauss(0, spread), 4) for spread in (0.3, 0.4)),
            rating,
        ]


def write_table(path: Path, rows: Iterator[list[Any]]) -> None:
    """Write rows to a CSV file, one at a time."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["study", "reference", "prediction", "other", "a_score", "b_score", "rating"])
        writer.writerows(rows)


# Runs a command as the only child of a process, whose resource usage is then that of the command.
_RUNNER = """
import json, resource, subprocess, sys
limit = int(sys.argv[2])
allow = lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
code = subprocess.run(sys.argv[3:], stdout=subprocess.DEVNULL, preexec_fn=allow).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([code, used.ru_utime + used.ru_stime, used.ru_maxrss], file)
"""


def measure(options: list[str], limit: float, folder: Path) -> Cell:
    """Run a command in a process, and return its seconds and its peak of resident memory, or where it was stopped."""
    used, cpu_limit = folder / "used.json", str(math.ceil(limit))
    command = [sys.executable, "-m", "rrg_rewards", *options, "--quiet"]
    # Threads that wait for one another on a busy machine would take processor time.
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    runner = [sys.executable, "-c", _RUNNER, str(used), cpu_limit, *command]
    start = time.perf_counter()
    with subprocess.Popen(
        runner, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            _, errors = process.communicate()
        except BaseException:
            # Also the command.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    wall = time.perf_counter() - start
    code, processor, peak = json.loads(used.read_text())
    # The signal of the limit may arrive some milliseconds before it.
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and processor >= limit):
        return {"stopped_after_processor_seconds": limit}
    if code:
        raise SystemExit(f"rrg-rewards {' '.join(options)} failed with {code}:\n{errors}")
    # Kilobytes on Linux, bytes on macOS.
    megabytes = peak / (1024 if sys.platform != "darwin" else 1024**2)
    return {"seconds": round(wall, 2), "processor_seconds": round(processor, 2), "peak_mib": round(megabytes)}


def predicted_seconds(start: Mapping[str, Any], cells: Mapping[int, Mapping[str, Any]], size: int) -> float:
    """Predict the processor seconds of a command: those of its start, and further ones as of the largest size.

    Args:
        start: Cell of the start.
        cells: Cells by size, all of which ended.
        size: Size in thousands of pairs.

    Example:
        >>> predicted_seconds({"processor_seconds": 2.0}, {10: {"processor_seconds": 7.0}}, 100)
        52.0
    """
    if not cells:
        return float(start["processor_seconds"])
    largest = max(cells)
    return float(
        start["processor_seconds"] + (cells[largest]["processor_seconds"] - start["processor_seconds"]) * size / largest
    )


def add_growth(start: Cell, cells: dict[int, Cell]) -> None:
    """Add the ratio of memory to each size that ended, and its growth since the size before."""
    ended = {size: cell for size, cell in cells.items() if "seconds" in cell}
    for cell in ended.values():
        cell["memory_ratio"] = round(cell["peak_mib"] / start["peak_mib"], 2)
        cell["work_seconds"] = round(cell["processor_seconds"] - start["processor_seconds"], 2)
    for before, size in pairwise(ended):
        small, large, growth = ended[before], ended[size], math.log(size / before)
        large["exponent_of_time"] = round(math.log(large["processor_seconds"] / small["processor_seconds"]) / growth, 2)
        if small["work_seconds"] >= LEAST_WORK * start["processor_seconds"]:
            large["exponent_of_work"] = round(math.log(large["work_seconds"] / small["work_seconds"]) / growth, 2)
        large["exponent_of_memory"] = round(math.log(large["peak_mib"] / small["peak_mib"]) / growth, 2)
        large["bytes_per_pair"] = round((large["peak_mib"] - small["peak_mib"]) * 2**20 / (1000 * (size - before)))


def not_ended(cell: Mapping[str, Any]) -> str:
    """Say why a size has no figures."""
    if "stopped_after_processor_seconds" in cell:
        return f"stopped after {cell['stopped_after_processor_seconds']:g} seconds"
    return f"not run: about {cell['predicted_processor_seconds']:.0f} seconds"


def show(name: str, size: str, cell: Mapping[str, Any]) -> None:
    """Print one line of the table."""
    figures = f"{cell['seconds']:>10}{cell['processor_seconds']:>11}{cell['peak_mib']:>9}" if "seconds" in cell else ""
    print(f"{name:20}{size:>8}{figures or '   ' + not_ended(cell)}", flush=True)


def measure_all(arguments: argparse.Namespace, pairs: Pairs, folder: Path) -> dict[str, dict[str, Any]]:
    """Measure the commands at all sizes, the smallest first, until a command exceeds the limit."""
    paths = {name: folder / name for name in ("table.csv", "output.csv", "page.html", "summary.json")}
    values = {name.partition(".")[0]: str(path) for name, path in paths.items()}

    def run(name: str) -> Cell:
        options = [part.format(**values) for part in COMMANDS[name].split()]
        return measure([*options, "--overwrite"], arguments.limit, folder)

    write_table(paths["table.csv"], make_rows(pairs, START_PAIRS, arguments.seed))
    starts = {name: run(name) for name in arguments.commands}
    for name, start in starts.items():
        show(name, "start", start)
    found: dict[str, dict[int, Cell]] = {name: {} for name, start in starts.items() if "seconds" in start}
    loads: dict[str, float] = {}
    for size in sorted(arguments.sizes):
        running = []
        for name, cells in found.items():
            if any("seconds" not in cell for cell in cells.values()):
                continue
            predicted = predicted_seconds(starts[name], cells, size)
            if predicted <= arguments.limit:
                running.append(name)
                continue
            cells[size] = {"predicted_processor_seconds": round(predicted)}
            show(name, f"{size}k", cells[size])
        if running:
            write_table(paths["table.csv"], make_rows(pairs, 1000 * size, arguments.seed))
        for name in running:
            found[name][size] = run(name)
            loads[name] = machine()["load_average"]
            show(name, f"{size}k", found[name][size])
    for name, cells in found.items():
        add_growth(starts[name], cells)
    return {
        name: {
            "command": "rrg-rewards " + COMMANDS[name],
            "limit_processor_seconds": arguments.limit,
            "load_average": loads.get(name),
            "largest_size": max((size for size, cell in cells.items() if "seconds" in cell), default=None),
            "start": starts[name],
            # Keys as JSON has them.
            "thousands_of_pairs": {str(size): cell for size, cell in cells.items()},
        }
        for name, cells in found.items()
    }


def show_growth(figures: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the growth between the two largest sizes of each command that ended."""
    columns = f"{'time':>7}{'work':>7}{'memory':>8}{'bytes/pair':>12}"
    print(f"\n{'command':20}{'largest that ended':>20}{columns}   next size")
    for name, figure in figures.items():
        cells, largest = figure["thousands_of_pairs"], figure["largest_size"]
        last = cells.get(str(largest), {})
        shown = [last.get(f"exponent_of_{one}", "-") for one in ("time", "work", "memory")]
        rest = [f"{size}k {not_ended(cell)}" for size, cell in cells.items() if "seconds" not in cell]
        print(
            f"{name:20}{'none' if largest is None else f'{largest}k':>20}{shown[0]:>7}{shown[1]:>7}{shown[2]:>8}"
            f"{last.get('bytes_per_pair', '-'):>12}   {', '.join(rest)}"
        )


def main() -> None:
    """Measure all cells, print them and write them."""
    arguments = parse_arguments()
    # Remove the tables and end the command also if this process is terminated.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    source, pairs = read_pairs()
    print(f"pairs of {source}, limit {arguments.limit:g} seconds of the processor")
    print(f"{'command':20}{'pairs':>8}{'seconds':>10}{'processor':>11}{'MiB':>9}")
    with tempfile.TemporaryDirectory() as temporary:
        figures = measure_all(arguments, pairs, Path(temporary))
    show_growth(figures)
    before = arguments.output or RESULTS / "growth.json"
    if arguments.add and before.is_file():
        figures = {**json.loads(before.read_text(encoding="utf-8"))["figures"], **figures}
    result = {"version": __version__, "machine": machine(), "source": source, "figures": figures}
    write_results(result, arguments, "growth")


if __name__ == "__main__":
    main()
