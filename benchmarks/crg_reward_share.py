"""The CRG reward's share of a GRPO step: seconds in the reward against seconds of the steps, in one run.

python benchmarks/crg_reward_share.py --config smollm2/impression_grpo_crg

Further options are the recipe's. The run is a whole one: its results lie in the recipe's output_dir, and what holds no
report text (evaluation, history, curve) is copied to benchmarks/results/<recipe>/.
"""

import json
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from rrg_rewards.data import write_json
from rrg_rewards.recipes._outputs import versions
from rrg_rewards.recipes.grpo import finish, parse, run
from rrg_rewards.rewards import CRGReward

RESULTS = Path(__file__).parent / "results"
_score = CRGReward.__call__
seconds: list[float] = []


def timed(self: CRGReward, *args: Any, **kwargs: Any) -> Any:
    """Call the reward, and note how long it took."""
    start = time.perf_counter()
    rewards = _score(self, *args, **kwargs)
    seconds.append(time.perf_counter() - start)
    return rewards


def main() -> None:
    """Run a recipe with a stopwatch on its reward."""
    recipe, training, model = parse(sys.argv[1:])
    CRGReward.__call__ = timed
    finish(run(recipe, training, model).accelerator)
    output = Path(training.output_dir)
    history = json.loads((output / "history.json").read_text(encoding="utf-8"))
    steps = [entry["step_time"] for entry in history if entry.get("step_time")]
    completions = training.per_device_train_batch_size * training.gradient_accumulation_steps
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "versions": versions(),
        "model": Path(model.model_name_or_path).name,
        "steps": len(steps),
        "completions_per_step": completions,
        "max_completion_tokens": training.max_completion_length,
        "reward_seconds_per_step": sum(seconds) / len(seconds),
        "seconds_per_step": sum(steps) / len(steps),
        "reward_share": sum(seconds) / len(seconds) / (sum(steps) / len(steps)),
    }
    target = RESULTS / output.name
    target.mkdir(parents=True, exist_ok=True)
    for path in (output / "evaluation.json", output / "history.json", *output.glob("curve_*.png")):
        if path.is_file():
            shutil.copy(path, target / path.name)
    write_json(result, RESULTS / "crg_reward_share.json", overwrite=True)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
