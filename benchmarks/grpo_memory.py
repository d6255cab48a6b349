"""Measure the resident memory of the process during a long GRPO run of mini CT-CHAT.

python benchmarks/grpo_memory.py --folder runs/mini_ct_chat [--steps 200]

The folder contains the output of ``rrg_rewards.recipes.ct_chat.phantom`` and of the recipe ``ct_chat/mini_sft``.
"""

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import psutil
from transformers import TrainerCallback

from rrg_rewards.data import write_json
from rrg_rewards.recipes import grpo
from rrg_rewards.recipes._outputs import versions

RESULTS = Path(__file__).parent / "results"


class Memory(TrainerCallback):
    """Record the resident memory every ``every`` steps."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.megabytes: dict[int, float] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Record the resident memory."""
        if state.global_step % self.every == 0:
            self.megabytes[state.global_step] = round(psutil.Process().memory_info().rss / 2**20, 1)


def main() -> None:
    """Train, and write the resident memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the mini CT-CHAT's run")
    parser.add_argument("--steps", type=int, default=200, help="GRPO steps (default: 200)")
    arguments = parser.parse_args()
    options = {
        "config": "ct_chat/mini_grpo_crg",
        "model_name_or_path": arguments.folder / "sft",
        "dataset": arguments.folder / "train.jsonl",
        "heldout_file": arguments.folder / "heldout.jsonl",
        "output_dir": arguments.folder / "grpo_memory",
        "heldout_rows": 0,
        "max_steps": arguments.steps,
    }
    memory = Memory(every=max(arguments.steps // 8, 1))
    grpo.finish(grpo.run(*grpo.parse(options), callbacks=[memory]).accelerator)
    sizes = list(memory.megabytes.values())
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "versions": versions(),
        "resident_megabytes_by_step": memory.megabytes,
        "last_to_first": round(sizes[-1] / sizes[0], 4),
    }
    write_json(result, RESULTS / "grpo_memory.json", overwrite=True)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
