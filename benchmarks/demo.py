"""Repeat ``rrg-rewards demo`` with several seeds, and time it.

python benchmarks/demo.py [--seeds 5] [--timed 2] [--folder runs/demo_seeds]

The seeds show the change of CRG by GRPO, and CRG with the volumes of other studies beside its value by chance: the same
reports, assigned to the held-out studies at random. The timed runs use seed 0 and should be the only load of the
machine. A part with 0 runs keeps its last results. A finished seed in the folder is read, not run again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from timing import machine

from rrg_rewards import RuleLabeler, __version__
from rrg_rewards.data import read_table, write_json
from rrg_rewards.functional import crg_score

RESULTS = Path(__file__).parent / "results" / "demo.json"
NUM_PERMUTATIONS = 1000


def run_demo(folder: Path, seed: int) -> float:
    """Run the demo in a process of its own, and return its wall time in seconds, imports included."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "rrg_rewards", "demo", "--output", str(folder), "--seed", str(seed)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return round(time.perf_counter() - start, 1)


def chance(folder: Path) -> list[float]:
    """Return the middle 95 % of CRG if the trained policy's reports are assigned to the studies at random."""
    rows = read_table(folder / "grpo" / "heldout_after.jsonl")
    preds = RuleLabeler("ct_rate")(list(rows.column("report")))
    target = torch.tensor(list(rows.column("labels")))
    generator = torch.Generator().manual_seed(0)
    orders = (torch.randperm(len(target), generator=generator) for _ in range(NUM_PERMUTATIONS))
    values = torch.stack([crg_score(preds, target[order]) for order in orders]).double()
    return values.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()


def result_of(folder: Path, seed: int) -> dict[str, Any]:
    """Return the CRG of each stage of a finished demo."""
    evaluation = json.loads((folder / "grpo" / "evaluation.json").read_text(encoding="utf-8"))
    stages = {stage: evaluation[stage]["crg"]["crg"] for stage in ("before", "after", "change", "images_of_others")}
    return {"seed": seed, **stages, "chance": chance(folder)}


def print_table(seeds: list[dict[str, Any]]) -> None:
    """Print a row for each seed."""
    print("seed  before  after  change                   images of others         chance")
    for row in seeds:
        change, others = (
            "{estimate:.3f} ({low:.3f} to {high:.3f})".format(**row[stage]) for stage in ("change", "images_of_others")
        )
        before, after = (f"{row[stage]['estimate']:.3f}" for stage in ("before", "after"))
        low, high = row["chance"]
        print(f"{row['seed']:4}  {before:6}  {after:5}  {change:23}  {others:23}  {low:.3f} to {high:.3f}")


def main() -> None:
    """Run the demo, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    parser.add_argument("--timed", type=int, default=2, help="number of timed runs (default: 2)")
    parser.add_argument("--folder", type=Path, default=Path("runs/demo_seeds"), help="folder of the runs of the seeds")
    arguments = parser.parse_args()
    result = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if arguments.seeds:
        seeds = []
        for seed in range(arguments.seeds):
            folder = arguments.folder / str(seed)
            if not (folder / "grpo" / "evaluation.json").exists():
                run_demo(folder, seed)
            seeds.append(result_of(folder, seed))
        result |= {"version": __version__, "seeds": seeds}
    if arguments.timed:
        with tempfile.TemporaryDirectory() as folder:
            result["machine"] = machine()
            result["seconds"] = [run_demo(Path(folder) / str(run), 0) for run in range(arguments.timed)]
    write_json(result, RESULTS, overwrite=True)
    print_table(result.get("seeds", []))
    print("seconds:", *result.get("seconds", []))


if __name__ == "__main__":
    main()
