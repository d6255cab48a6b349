"""Measure the share of a GRPO step that a recipe's rewards take.

python benchmarks/reward_share.py --config smollm2/impression_grpo_crg
python benchmarks/reward_share.py --config smollm2/impression_grpo_crg --rewards crimson --output_dir runs/grpo_crimson

The other options are those of the recipe. The script runs the whole recipe, which writes its results to output_dir. The
files without report text (evaluation, history, curve) are copied to benchmarks/results/<name of output_dir>/. The
figures are written to benchmarks/results/<rewards>_reward_share.json. Asynchronous rewards are rejected, because their
time overlaps with other work.
"""

import json
import os
import platform
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from rrg_rewards.data import write_json
from rrg_rewards.recipes._outputs import versions
from rrg_rewards.recipes.grpo import finish, parse, run
from rrg_rewards.rewards import AsyncMetricReward, MetricReward

RESULTS = Path(__file__).parent / "results"
_reward = MetricReward.__call__
seconds: dict[str, list[float]] = defaultdict(list)


def timed(self: MetricReward, *args: Any, **kwargs: Any) -> Any:
    """Call the reward and record its duration."""
    start = time.perf_counter()
    rewards = _reward(self, *args, **kwargs)
    seconds[self.__name__].append(time.perf_counter() - start)
    return rewards


def main() -> None:
    """Run a recipe and time its rewards."""
    recipe, training, model = parse(sys.argv[1:])
    settings = recipe.reward_settings()
    if any(isinstance(setting.make(), AsyncMetricReward) for setting in settings):
        raise SystemExit("the share of an asynchronous reward cannot be measured")
    MetricReward.__call__ = timed  # type: ignore[method-assign]
    finish(run(recipe, training, model).accelerator)
    output = Path(training.output_dir)
    history = json.loads((output / "history.json").read_text(encoding="utf-8"))
    steps = [entry["step_time"] for entry in history if entry.get("step_time")]
    in_rewards = sum(sum(calls) / len(calls) for calls in seconds.values())
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "versions": versions(),
        "rewards": sorted(seconds),
        "model": Path(model.model_name_or_path).name,
        "steps": len(steps),
        "completions_per_step": training.per_device_train_batch_size * training.gradient_accumulation_steps,
        "max_completion_tokens": training.max_completion_length,
        "reward_seconds_per_step": in_rewards,
        "seconds_per_step": sum(steps) / len(steps),
        "reward_share": in_rewards / (sum(steps) / len(steps)),
    }
    target = RESULTS / output.name
    target.mkdir(parents=True, exist_ok=True)
    for path in (output / "evaluation.json", output / "history.json"):
        if path.is_file():
            shutil.copy(path, target / path.name)
    write_json(result, RESULTS / f"{'_'.join(sorted(seconds))}_reward_share.json", overwrite=True)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
