"""Measure how a judge counts errors: the share of valid answers, and the agreement with known counts.

    python benchmarks/judge_counts.py --judge "{name: openai, model: m, base_url: 'http://127.0.0.1:8000/v1'}"
    python benchmarks/judge_counts.py --judge local:/models/SmolLM2-135M-Instruct --pairs 4

The pairs are phantom chest-CT studies with injected errors, whose counts are exact. `rrg-rewards count` requests the
counts and writes them; the script reads its output. Kendall's tau and the mean absolute error are those of the total
over pairs with a valid answer.
"""

import argparse
import json
import math
import tempfile
from pathlib import Path

import torch
from agreement import RESULTS

from rrg_rewards.cli.main import main as run_command
from rrg_rewards.data import Table, read_error_records, write_table
from rrg_rewards.functional.correlation import kendall_tau
from rrg_rewards.training import PhantomErrors
from rrg_rewards.version import __version__


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", required=True, help="judge as of rrg-rewards count")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--output", type=Path, default=RESULTS / "judge_counts.json")
    return parser.parse_args()


def main() -> None:
    """Count, compare, print and write."""
    arguments = parse_arguments()
    records = PhantomErrors(arguments.pairs, style="compact", section="findings").read()
    true = {(record.reference, record.candidate): record.total for record in records}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        columns = {"reference": [r.reference for r in records], "prediction": [r.candidate for r in records]}
        write_table(Table(columns), folder / "pairs.csv")
        output, summary = folder / "counts.jsonl", folder / "summary.json"
        # The exit code is 1 if no answer is valid, which is a result.
        options = {"--output": output, "--judge": arguments.judge, "--json": summary}
        run_command(["count", str(folder / "pairs.csv"), *(str(part) for pair in options.items() for part in pair)])
        counted = read_error_records(output) if output.stat().st_size else []
        found = json.loads(summary.read_text(encoding="utf-8"))
    predicted = torch.tensor([record.total for record in counted], dtype=torch.float64)
    target = torch.tensor([true[record.reference, record.candidate] for record in counted], dtype=torch.float64)
    tau = float(kendall_tau(predicted, target)) if len(counted) > 1 else math.nan
    mae = float((predicted - target).abs().mean())
    result = {
        "version": __version__,
        **{
            key: found[key] for key in ("judge", "prompt_hash", "pairs", "written", "failures", "reasons", "categories")
        },
        "usage": found["usage"],
        "valid": found["written"] / found["pairs"],
        "kendall_tau": None if math.isnan(tau) else tau,
        "mae": None if math.isnan(mae) else mae,
        "mean_true": float(torch.tensor(list(true.values())).mean()),
    }
    print(json.dumps(result, indent=2))
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
