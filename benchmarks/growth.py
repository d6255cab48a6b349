"""Measure how time and peak memory of commands grow with the number of report pairs.

    python benchmarks/growth.py --quick
    python benchmarks/growth.py --sizes 1 10 100 1000 --limit 60
    python benchmarks/growth.py --commands score_crg,compare --sizes 100 --limit 300

Each cell is a process of its own that runs the real command line: its wall-clock seconds, the seconds of the processor,
and the peak of its resident memory. Sizes are in thousands of pairs. A command that does not end within ``--limit``
seconds is stopped, which the table says, and its larger sizes are not started. The exponents are the slopes of the
processor time and of the peak memory between two sizes on logarithmic axes; the table shows those of the two largest
sizes that ended. That of time is near 1 if the time of a pair is constant, and below 1 where the start of the process
counts. Bytes per pair are the further peak memory between the smallest and the largest size.

Tables are written as streams to a temporary folder and removed at the end. The reports are made of the sentences of
CT-RATE's pairs in the shared folder, or of phantom studies if there are none: the sentences of a report are recombined,
and their numbers are drawn. Equal seeds give equal tables. No two reports are equal, but sentences without a number
repeat, and the finding engine remembers these: times per pair are below those of new sentences.
"""

import argparse
import csv
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmark_data import SHARED
from timing import machine

from rrg_rewards.data import phantom_studies
from rrg_rewards.version import __version__

PAIRS = SHARED / "reg2rg_ct_rate" / "pairs.csv"
SIZES = (1, 10, 100, 1000)
QUICK = (1, 10)
_NUMBER = re.compile(r"\d+")

# Options by command. {table}, {output} and {page} are paths of the temporary folder.
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
    "attack": "attack {table} --reward crg --honest-column prediction --budget 20000 --json {summary}",
}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="thousands of pairs (default: 1 to 1000)")
    parser.add_argument("--commands", default=",".join(COMMANDS), help=f"separated by commas: {', '.join(COMMANDS)}")
    parser.add_argument("--limit", type=float, default=30, help="seconds after which a command is stopped")
    parser.add_argument("--quick", action="store_true", help=f"the sizes {QUICK} with a limit of 15 seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "growth.json")
    arguments = parser.parse_args()
    arguments.commands = arguments.commands.split(",")
    if unknown := [name for name in arguments.commands if name not in COMMANDS]:
        parser.error(f"argument --commands: unknown {unknown[0]!r}; known: {', '.join(COMMANDS)}")
    if arguments.quick:
        arguments.sizes, arguments.limit = QUICK, min(arguments.limit, 15)
    return arguments


def read_pairs() -> tuple[str, list[tuple[list[str], list[str]]]]:
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


def make_rows(pairs: list[tuple[list[str], list[str]]], number: int, seed: int) -> Iterator[list[Any]]:
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
code = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([code, used.ru_utime + used.ru_stime, used.ru_maxrss], file)
"""


def measure(options: list[str], limit: float, folder: Path) -> dict[str, Any]:
    """Run a command in a process, and return its seconds and its peak of resident memory, or where it was stopped."""
    used = folder / "used.json"
    command = [sys.executable, "-c", _RUNNER, str(used), sys.executable, "-m", "rrg_rewards", *options, "--quiet"]
    start = time.perf_counter()
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        _, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return {"stopped_after_seconds": limit}
    wall = time.perf_counter() - start
    code, processor, peak = json.loads(used.read_text())
    if code:
        raise SystemExit(f"rrg-rewards {' '.join(options)} failed:\n{errors}")
    # Kilobytes on Linux, bytes on macOS.
    megabytes = peak / (1024 if sys.platform != "darwin" else 1024**2)
    return {"seconds": round(wall, 2), "processor_seconds": round(processor, 2), "peak_mib": round(megabytes)}


def add_exponents(cells: dict[int, dict[str, Any]]) -> None:
    """Add to each size its slopes from the size before, and its further memory for each further pair."""
    ended = [size for size, cell in cells.items() if "seconds" in cell]
    for before, size in pairwise(ended):
        small, large, first = cells[before], cells[size], cells[ended[0]]
        growth = math.log(size / before)
        large["exponent_of_time"] = round(math.log(large["processor_seconds"] / small["processor_seconds"]) / growth, 2)
        large["exponent_of_memory"] = round(math.log(large["peak_mib"] / small["peak_mib"]) / growth, 2)
        pairs = 1000 * (size - ended[0])
        large["bytes_per_pair"] = round((large["peak_mib"] - first["peak_mib"]) * 2**20 / pairs)


def show(name: str, size: int, cell: dict[str, Any]) -> None:
    """Print one line of the table."""
    if "seconds" not in cell:
        print(f"{name:20}{size:>7}k   stopped after {cell['stopped_after_seconds']:g} seconds", flush=True)
        return
    print(f"{name:20}{size:>7}k{cell['seconds']:>10}{cell['processor_seconds']:>11}{cell['peak_mib']:>9}", flush=True)


def main() -> None:
    """Measure all cells, print them and write them."""
    arguments = parse_arguments()
    source, pairs = read_pairs()
    found: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in arguments.commands}
    print(f"pairs of {source}, limit {arguments.limit:g} seconds")
    print(f"{'command':20}{'pairs':>8}{'seconds':>10}{'processor':>11}{'MiB':>9}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths = {name: folder / name for name in ("table.csv", "output.csv", "page.html", "summary.json")}
        values = {name.partition(".")[0]: str(path) for name, path in paths.items()}
        for size in sorted(arguments.sizes):
            running = [name for name, cells in found.items() if all("seconds" in cell for cell in cells.values())]
            if not running:
                break
            write_table(paths["table.csv"], make_rows(pairs, 1000 * size, arguments.seed))
            for name in running:
                options = [part.format(**values) for part in COMMANDS[name].split()]
                cell = found[name][size] = measure([*options, "--overwrite"], arguments.limit, folder)
                show(name, size, cell)
    print(f"\n{'command':20}{'largest that ended':>20}{'time':>7}{'memory':>8}{'bytes/pair':>12}   next size")
    for name, cells in found.items():
        add_exponents(cells)
        ended = [size for size, cell in cells.items() if "seconds" in cell]
        stopped = [size for size, cell in cells.items() if "seconds" not in cell]
        last = cells[ended[-1]] if ended else {}
        figures = [last.get(one, "-") for one in ("exponent_of_time", "exponent_of_memory", "bytes_per_pair")]
        rest = f"{stopped[0]}k stopped after {arguments.limit:g} seconds" if stopped else ""
        largest = f"{ended[-1]}k" if ended else "none"
        print(f"{name:20}{largest:>20}{figures[0]:>7}{figures[1]:>8}{figures[2]:>12}   {rest}")
    result = {
        "version": __version__,
        "machine": machine(),
        "source": source,
        "limit_seconds": arguments.limit,
        "commands": {name: "rrg-rewards " + COMMANDS[name] for name in found},
        "thousands_of_pairs": found,
    }
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
