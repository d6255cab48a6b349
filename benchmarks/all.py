"""Run the benchmarks of speed in turn and print one table of their ratios.

    OMP_NUM_THREADS=1 python benchmarks/all.py --quick      # less than ten minutes on two idle cores
    python benchmarks/all.py --quick --mini runs/mini_ct_chat
    python benchmarks/all.py --quick --before v0.1.0        # the same for an earlier commit, beside the present state
    python benchmarks/all.py --quick --only rule_judge rule_labeler

Each figure is a ratio of two sides that one script measured in one run, so that it can be compared between machines.
With ``--before``, each script of the present state also runs with the package of an earlier commit, directly before it
runs with the present package. A script that does not run there, for example because it uses an option that the earlier
commit does not have, is marked with the reason, and so is a script without its data, its model or an extra package.

``--mini`` is the folder of the mini CT-CHAT, as in ``policy_throughput.py``. Judges run without a server: only the
tokens of their prompts are counted. The results of the scripts are not written to ``benchmarks/results``; the table is,
as ``all.json``.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmark_data import RESULTS
from timing import machine

from rrg_rewards.data import write_json
from rrg_rewards.version import __version__

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
# Longest time of one script in seconds, also with --quick.
LIMIT, QUICK_LIMIT = 900, 240
# Seconds in which a script may end by itself after its time.
END_SECONDS = 10
# Replaced in arguments by the folder of --mini.
MINI = "{mini}"


@dataclass(frozen=True)
class Benchmark:
    """A script and the ratios in its result.

    Attributes:
        script: Name of the script.
        ratios: Path of each ratio in the result, with keys and indices separated by ``/``, and what it is a ratio of.
        arguments: Arguments of the script; ``{mini}`` is the folder of the mini CT-CHAT.
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

_WORKERS = {
    f"figures/{number}/{ratio}": f"{command}, one worker / two, {measured}"
    for number, command in enumerate(("score", "label", "agreement", "attack"))
    for ratio, measured in (("ratio", "time"), ("ratio_of_work", "time beyond the start"))
} | {"figures/4/ratio": "serve, two workers / one, rewards per second"}

_SIZES = "figures/{command}/thousands_of_pairs/20/{figure}"
_GROWTH = {
    _SIZES.format(command="score_crimson", figure="exponent_of_work"): "score, CRIMSON, exponent of processor time",
    _SIZES.format(command="compare", figure="exponent_of_work"): "compare, CRG, exponent of processor time",
    _SIZES.format(command="score_crg", figure="memory_ratio"): "score, CRG, peak memory, 20,000 pairs / 20",
    _SIZES.format(command="score_crimson", figure="memory_ratio"): "score, CRIMSON, peak memory, 20,000 pairs / 20",
}

BENCHMARKS = (
    Benchmark(
        "rule_judge",
        {
            f"figures/{name}/{ratio}": f"CRIMSON by rules / ROUGE-L, pairs per second, {name}, {when}"
            for when, ratio in (
                ("first sight", "ratio_cold"),
                ("new sentences of known words", "ratio_known_words"),
                ("seen before", "ratio_warm"),
            )
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
    Benchmark("imports", _STARTS, quick=("--quick",), lower=tuple(_STARTS)),
    Benchmark(
        "ct_finebench",
        {
            f"figures/CT-RATE/{ratio}": f"CT-FineBench by rules / ROUGE-L, pairs per second, {when}"
            for when, ratio in (("first sight", "ratio_cold"), ("seen before", "ratio_warm"))
        },
        quick=("--quick",),
    ),
    Benchmark("workers", _WORKERS, quick=("--quick",)),
    Benchmark(
        "serve",
        {
            "figures/0/rate_over_direct": "reward server, CRG, single requests / direct calls, rewards per second",
            "figures/0/direct_processor_over_served": "direct calls / reward server, CRG, processor time",
        },
        quick=("--quick",),
    ),
    Benchmark(
        "policy_throughput",
        {
            "figures/ratio": "GRPO, PolicyModule / TRL, tokens per second of the processor",
            "figures/wall_ratio": "GRPO, PolicyModule / TRL, tokens per second",
            "figures/memory_ratio": "GRPO, TRL / PolicyModule, memory",
        },
        arguments=("--mini", MINI),
        quick=("--mini", MINI, "--quick"),
    ),
    Benchmark("growth", _GROWTH, arguments=("--sizes", "5", "20", "100"), quick=("--quick",), lower=tuple(_GROWTH)),
    Benchmark(
        "judge_cost",
        {
            f"prompts/sets/CT-RATE/{prompt}/cacheable_share": f"tokens that a prefix cache holds / all, {prompt}"
            for prompt in ("CRIMSON own", "error counts", "CT-FineBench answers")
        },
        quick=("--quick",),
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
    parser.add_argument("--mini", type=Path, default=ROOT / "runs" / "mini_ct_chat", help="folder of the mini CT-CHAT")
    parser.add_argument("--output", type=Path, default=RESULTS / "all.json", help="file of the table")
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


def run_script(script: str, arguments: Sequence[str], tree: Path, output: Path, limit: float) -> dict[str, Any]:
    """Run a script with the package in ``tree``.

    Returns:
        ``seconds``, and the script's ``result`` or, if it did not end well, the ``reason``.
    """
    command = [sys.executable, FOLDER / f"{script}.py", *arguments, "--output", output]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        written, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        end(process)
        return {"seconds": limit, "reason": f"stopped after {limit:g} seconds"}
    taken = {"seconds": round(time.perf_counter() - start, 1)}
    if process.returncode == 0 and output.is_file():
        return {**taken, "result": json.loads(output.read_text(encoding="utf-8"))}
    return {**taken, "reason": reason_of(written, errors, process.returncode)}


def end(process: "subprocess.Popen[str]") -> None:
    """End a script and the processes that it started."""
    # Scripts remove their temporary files and end processes of other groups when they are terminated.
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def reason_of(written: str, errors: str, code: int) -> str:
    r"""Return the line of a script's output that says why it has no result.

    Example:
        >>> reason_of("reports.csv: no such file; phantom reports are used\\nrate 3", "", 0)
        'reports.csv: no such file; phantom reports are used'
        >>> reason_of("", "Traceback\\nImportError: No module named 'psutil'", 1)
        "ImportError: No module named 'psutil'"
    """
    lines = (errors if code else f"{written}\n{errors}").strip().splitlines()
    # Scripts say this of their data, and may go on with other data without writing their figures.
    missing = [line for line in lines if "no such file" in line]
    return (missing or lines[-1:] or [f"exit code {code}, no result"])[0]


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
        missing = "not in the result, because data or a size of it is missing"
        reasons = {side: run.get("reason", missing) for side, run in runs.items() if values[side] is None}
        yield {**row, **({"not_run": reasons} if reasons else {})}


def print_rows(rows: Sequence[Mapping[str, Any]], runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the rows of one script, its seconds, and why figures are missing."""
    for row in rows:
        values = "".join(f"{'-' if row[side] is None else format(row[side], '.2f'):>9}" for side in runs)
        mark = " (lower is better)" if row["better"] == "lower" else ""
        print(f"{values}  {row['ratio']}{mark}")
    for side, run in runs.items():
        missing = dict.fromkeys(row["not_run"][side] for row in rows if side in row.get("not_run", {}))
        reason = f"; not measured: {', '.join(missing)}" if missing else ""
        print(f"{'':11}{rows[0]['script']}, {side}: {run['seconds']:.0f} seconds{reason}", flush=True)


def run_entry(
    entry: Benchmark, arguments: argparse.Namespace, trees: Mapping[str, Path], folder: Path
) -> dict[str, dict[str, Any]]:
    """Run a script with each of the packages."""
    options = entry.quick if arguments.quick else entry.arguments
    if MINI in options and not arguments.mini.is_dir():
        reason = f"{arguments.mini}: no such folder; --mini names that of the recipe ct_chat/mini_sft"
        return {side: {"seconds": 0.0, "reason": reason} for side in trees}
    options = tuple(str(arguments.mini.resolve()) if one == MINI else one for one in options)
    limit = QUICK_LIMIT if arguments.quick else LIMIT
    return {
        side: run_script(entry.script, options, tree, folder / f"{entry.script}_{side}.json", limit)
        for side, tree in trees.items()
    }


def main() -> None:
    """Run the scripts, print their ratios and write them."""
    arguments = parse_arguments()
    entries = [entry for entry in BENCHMARKS if arguments.only is None or entry.script in arguments.only]
    rows: list[dict[str, Any]] = []
    seconds: dict[str, dict[str, float]] = {}
    described = machine()
    with TemporaryDirectory() as temporary:
        trees = {"now": ROOT}
        if arguments.before:
            before = Path(temporary, "before")
            before.mkdir()
            unpack(arguments.before, before)
            trees = {"before": before, **trees}
        print("".join(f"{side:>9}" for side in trees) + "  ratio")
        for entry in entries:
            runs = run_entry(entry, arguments, trees, Path(temporary))
            added = list(rows_of(entry, runs))
            print_rows(added, runs)
            rows += added
            seconds[entry.script] = {side: run["seconds"] for side, run in runs.items()}
    total = round(sum(taken for sides in seconds.values() for taken in sides.values()), 1)
    print(f"{total:.0f} seconds in all")
    table = {
        "machine": described,
        "rrg_rewards": __version__,
        "quick": arguments.quick,
        "before": arguments.before,
        "total_seconds": total,
        "seconds": seconds,
        "rows": rows,
    }
    write_json(table, arguments.output, overwrite=True)
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
