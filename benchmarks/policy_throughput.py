"""Compare the tokens per second of GRPO in PolicyModule and in TRL, on the same policy and rows.

python benchmarks/policy_throughput.py --folder runs/mini_ct_chat [--steps 20] [--rounds 3]

The folder contains the output of ``rrg_rewards.recipes.ct_chat.phantom`` and of the recipe ``ct_chat/mini_sft``. The
script runs both sides in turn; a round is one run of each side. A step generates 128 completions and trains on them.
The rate is the number of completion tokens per second from the end of the first step to the end of the last.
"""

import argparse
import json
import os
import platform
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from policy_runs import COMMON, GENERATIONS, GRPO, ROWS, mini_generator, read, with_lightning, with_trl

from rrg_rewards.data import write_json
from rrg_rewards.recipes._outputs import versions
from rrg_rewards.training import PolicyModule

RESULTS = Path(__file__).parent / "results"


def rate(steps: list[dict[str, float]]) -> float:
    """Return tokens per second after the first step."""
    tokens = sum(step["completions/mean_length"] for step in steps[1:]) * ROWS * GENERATIONS
    return tokens / (steps[-1]["ended"] - steps[0]["ended"])


def main() -> None:
    """Run both sides in turn and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the mini CT-CHAT's run")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run (default: 20)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side (default: 3)")
    parser.add_argument("--output", type=Path, default=RESULTS / "policy_throughput.json", help="file to write")
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {"trl": [], "lightning": []}
    with TemporaryDirectory() as name:
        for seed in range(arguments.rounds):
            more = {"heldout_rows": 0, "max_steps": arguments.steps, "seed": seed}
            rates["trl"].append(rate(with_trl(arguments.folder, Path(name) / str(seed), **more)))
            data, reward = read(arguments.folder, Path(name), heldout_rows=0)
            module = PolicyModule(mini_generator(arguments.folder), reward, **GRPO, **COMMON, seed=seed)
            rates["lightning"].append(rate(with_lightning(module, data.train, arguments.steps, seed)))
    ratios = [own / other for own, other in zip(rates["lightning"], rates["trl"], strict=True)]
    result = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "versions": versions(),
        "steps": arguments.steps,
        "completions_per_step": ROWS * GENERATIONS,
        "tokens_per_second": {side: [round(value, 1) for value in values] for side, values in rates.items()},
        "ratios": [round(ratio, 3) for ratio in ratios],
        "lightning_to_trl": round(statistics.median(ratios), 3),
    }
    write_json(result, arguments.output, overwrite=True)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
