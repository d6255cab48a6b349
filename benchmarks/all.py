"""Run the benchmarks of speed in turn and print one table of their ratios.

    python benchmarks/all.py --quick                        # about ten minutes on two idle cores
    python benchmarks/all.py --quick --before v0.1.0        # the same for an earlier commit, beside the present state
    python benchmarks/all.py --quick --only rule_judge rule_labeler

Each figure is a ratio of two sides that one script measured in one run, so that it can be compared between machines.
With ``--before``, each script of the present state also runs with the package of an earlier commit, directly before it
runs with the present package. A script that does not run there, for example because it uses an option that the earlier
commit does not have, is marked with its last line of output, and so is a script without its data.

The results of the scripts are not written to ``benchmarks/results``; the table is, as ``all.json``.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from timing import machine

from rrg_rewards.version import __version__

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
# Longest time of one script in seconds.
LIMIT = 900


@dataclass(frozen=True)
class Benchmark:
    """A script and the ratios in its result.

    Attributes:
        script: Name of the script.
        ratios: Path of each ratio in the result, with keys and indices separated by ``/``, and what it is a ratio of.
        arguments: Arguments of the script.
        quick: Arguments in place of these with ``--quick``.
        lower: Names of the ratios of which a lower one is better.
    """

    script: str
    ratios: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()


_STARTS = {
    f"figures/{name}/processor_ratio": f"start of {name} / {library}, processor time"
    for library, names in {
        "import torch": ("rrg-rewards label",),
        "import torchmetrics": (
            "rrg-rewards score --metrics crg",
            "rrg-rewards score --metrics crimson",
            "from rrg_rewards.rewards import make_reward",
        ),
    }.items()
    for name in names
}

BENCHMARKS = (
    Benchmark(
        "rule_judge",
        {
            f"figures/{name}/{ratio}": f"CRIMSON by rules / ROUGE-L, pairs per second, {name}, {when}"
            for when, ratio in (("first sight", "ratio_cold"), ("seen before", "ratio_warm"))
            for name in ("CT-RATE", "CTRG", "RadPref")
        },
        quick=("--repeats", "3"),
    ),
    Benchmark(
        "rule_labeler",
        {"figures/cold_time_relative_to_split": "rule labeler / str.split, time, first sight"},
        quick=("--repeats", "3", "--encoder-reports", "2"),
        lower=("figures/cold_time_relative_to_split",),
    ),
    Benchmark(
        "crepe",
        {
            "figures/speedup_auto_processor": "CREPE as published / the metric, processor time",
            "figures/float32_over_bfloat16_processor": "CREPE in float32 / in bfloat16, processor time",
            "figures/auto_over_compiled_processor": "CREPE / compiled, processor time",
        },
        quick=("--quick",),
    ),
    Benchmark(
        "er2score",
        {
            "figures/radpref/speedup_processor": "ER²Score, complete prompts / shared prefixes, processor time",
            "figures/radpref/float32_over_bfloat16_processor": "ER²Score in float32 / in bfloat16, processor time",
        },
        quick=("--quick",),
    ),
    Benchmark(
        "imports",
        _STARTS,
        quick=("--quick",),
        lower=tuple(_STARTS),
    ),
)


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and small inputs")
    parser.add_argument("--before", metavar="COMMIT", help="commit, branch or tag to compare with")
    parser.add_argument(
        "--only", nargs="+", choices=[entry.script for entry in BENCHMARKS], help="scripts to run (default: all)"
    )
    parser.add_argument("--output", type=Path, default=FOLDER / "results" / "all.json", help="file of the table")
    return parser.parse_args()


def unpack(commit: str, folder: Path) -> None:
    """Write the files of a commit to a folder."""
    archive = folder / "commit.tar"
    made = subprocess.run(
        ["git", "archive", "--output", archive, commit], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise SystemExit(f"--before {commit}: {made.stderr.strip()}")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    archive.unlink()


def run_script(entry: Benchmark, arguments: Sequence[str], tree: Path, output: Path) -> dict[str, Any]:
    """Run a script with the package in ``tree``.

    Returns:
        ``seconds``, and the script's ``result`` or, if it did not end well, the ``reason``.
    """
    command = [sys.executable, FOLDER / f"{entry.script}.py", *arguments, "--output", output]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    start = time.perf_counter()
    try:
        ended = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"seconds": LIMIT, "reason": f"stopped after {LIMIT} seconds"}
    taken = {"seconds": round(time.perf_counter() - start, 1)}
    if output.is_file():
        return {**taken, "result": json.loads(output.read_text(encoding="utf-8"))}
    lines = (ended.stderr or ended.stdout).strip().splitlines()
    return {**taken, "reason": lines[-1] if lines else f"exit code {ended.returncode}, no result"}


def value_at(result: Any, path: str) -> float | None:
    """Return the number at a path such as ``figures/0/ratio``, or ``None`` if a part of it is missing.

    Example:
        >>> value_at({"figures": [{"ratio": 2.5}]}, "figures/0/ratio")
        2.5
    """
    for key in path.split("/"):
        try:
            result = result[int(key) if isinstance(result, list) else key]
        except (KeyError, IndexError, TypeError):
            return None
    return None if result is None else float(result)


def rows_of(entry: Benchmark, runs: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return a row of the table for each ratio of a script that ran with each of the packages."""
    for path, name in entry.ratios.items():
        values = {side: value_at(run.get("result"), path) for side, run in runs.items()}
        row: dict[str, Any] = {"script": entry.script, "ratio": name, **values}
        row["better"] = "lower" if path in entry.lower else "higher"
        reasons = {side: run["reason"] for side, run in runs.items() if "reason" in run}
        yield {**row, **({"not_run": reasons} if reasons else {})}


def print_rows(rows: Sequence[Mapping[str, Any]], sides: Sequence[str]) -> None:
    """Print the rows of one script."""
    for row in rows:
        values = "".join(f"{'-' if row[side] is None else format(row[side], '.2f'):>9}" for side in sides)
        mark = " (lower is better)" if row["better"] == "lower" else ""
        print(f"{values}  {row['ratio']}{mark}")
    for side, reason in (rows[0].get("not_run") or {}).items():
        print(f"{'':11}{rows[0]['script']}, {side}: {reason}")


def main() -> None:
    """Run the scripts, print their ratios and write them."""
    arguments = parse_arguments()
    entries = [entry for entry in BENCHMARKS if arguments.only is None or entry.script in arguments.only]
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as temporary:
        trees = {"now": ROOT}
        if arguments.before:
            before = Path(temporary, "before")
            before.mkdir()
            unpack(arguments.before, before)
            trees = {"before": before, **trees}
        print("".join(f"{side:>9}" for side in trees) + "  ratio")
        for entry in entries:
            options = entry.quick if arguments.quick else entry.arguments
            runs = {
                side: run_script(entry, options, tree, Path(temporary, f"{entry.script}_{side}.json"))
                for side, tree in trees.items()
            }
            added = list(rows_of(entry, runs))
            print_rows(added, list(trees))
            rows += added
    described = {**machine(), "cores": os.cpu_count(), "rrg_rewards": __version__}
    table = {"machine": described, "quick": arguments.quick, "before": arguments.before, "rows": rows}
    arguments.output.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
