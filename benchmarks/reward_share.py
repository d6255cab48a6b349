"""A reward's share of a GRPO step: seconds in the recipe's rewards against seconds of the steps, in one run.

python benchmarks/reward_share.py --config smollm2/impression_grpo_crg
python benchmarks/reward_share.py --config smollm2/impression_grpo_crg --rewards crimson --output_dir runs/grpo_crimson

Further options are the recipe's. The run is a whole one: its results lie in the recipe's output_dir, and what holds no
report text (evaluation, history, curve) is copied to benchmarks/results/<its name>/; the figures go to
benchmarks/results/<rewards>_reward_share.json. A reward whose judge is waited for is refused: it is awaited beside
others, and has no share of a step.
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
    """Call the reward, and note how long it took."""
    start = time.perf_counter()
    rewards = _reward(self, *args, **kwargs)
    seconds[self.__name__].append(time.perf_counter() - start)
    return rewards


def main() -> None:
    """Run a recipe with a stopwatch on its rewards."""
    recipe, training, model = parse(sys.argv[1:])
    settings = recipe.reward_settings()
    if any(isinstance(setting.make(), AsyncMetricReward) for setting in settings):
        raise SystemExit("a reward whose judge is waited for has no share of a step to measure")
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
    for path in (output / "evaluation.json", output / "history.json", *output.glob("curve_*.png")):
        if path.is_file():
            shutil.copy(path, target / path.name)
    write_json(result, RESULTS / f"{'_'.join(sorted(seconds))}_reward_share.json", overwrite=True)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
