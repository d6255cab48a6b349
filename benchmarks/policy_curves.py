"""Compare learning curves on phantom volumes: GRPO in TRL and in PolicyModule, and PolicyModule's other algorithms.

python benchmarks/policy_curves.py --folder runs/mini_ct_chat [--steps 60] [--seeds 2]

The folder contains the output of ``rrg_rewards.recipes.ct_chat.phantom`` and of the recipe ``ct_chat/mini_sft``. From
the same warm start, mini CT-CHAT is trained on CRG with GRPO, with the same number of seeds in TRL and Lightning, and
once with each of RLOO, SCST and PPO. The script also warm-starts a small vision encoder-decoder and trains it with
GRPO. The output contains the training curves, held-out CRG before and after with bootstrap intervals, and the results
of each seed of GRPO.
"""

import argparse
import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from policy_runs import COMMON, GENERATIONS, GRPO, heldout, mini_generator, options, read, with_lightning, with_trl
from policy_vision import collate_volumes, vision_generator, warm_start

from rrg_rewards.data import open_output, read_table, write_json
from rrg_rewards.recipes._evaluate import change
from rrg_rewards.recipes._outputs import versions
from rrg_rewards.training import PolicyModule
from rrg_rewards.utilities.imports import require

RESULTS = Path(__file__).parent / "results"
OTHERS: Mapping[str, dict[str, Any]] = {
    "rloo": {"algorithm": "rloo", "num_generations": GENERATIONS},
    "scst": {"algorithm": "scst", "num_generations": GENERATIONS},
    "ppo": {"algorithm": "ppo", "num_generations": GENERATIONS, "minibatches": 2, "epochs": 2, "value_weight": 0.5},
}
_STATISTICS = ("crg", "precision", "recall", "words")


def trl_run(folder: Path, output: Path, steps: int, seed: int, heldout_rows: int) -> dict[str, Any]:
    """Run the GRPO recipe."""
    rows = with_trl(options(folder, output, max_steps=steps, seed=seed, heldout_rows=heldout_rows))
    found = json.loads((output / "evaluation.json").read_text())
    stages = {stage: _of_interest(found[stage]["crg"]) for stage in ("before", "after", "change")}
    return {"side": "trl", "algorithm": "grpo", "seed": seed, **stages, "rewards": [row["reward"] for row in rows]}


def lightning_run(
    name: str, generator: Any, data: Any, reward: Any, steps: int, seed: int, settings: dict[str, Any], collate: Any
) -> dict[str, Any]:
    """Train with PolicyModule."""
    before = heldout(generator, reward, data.heldout, collate)
    module = PolicyModule(generator, reward, **settings, **COMMON, seed=seed)
    rows = with_lightning(module, data.train, steps, seed, collate=collate)
    after = heldout(generator, reward, data.heldout, collate)
    stages = {
        "before": before.summary()["crg"],
        "after": after.summary()["crg"],
        "change": change(before, after)["crg"],
    }
    return {
        "side": "lightning",
        "algorithm": name,
        "seed": seed,
        **{stage: _of_interest(summary) for stage, summary in stages.items()},
        "rewards": [row["reward"] for row in rows][:: module.steps_per_rollout],
    }


def _of_interest(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {key: round(value, 4) for key, value in summary[name].items()} for name in _STATISTICS if name in summary
    }


def with_abridged(data: Any, folder: Path) -> list[dict[str, Any]]:
    """Return the volume and the abridged report of each training row."""
    table = read_table(str(folder / "train.jsonl"))
    texts = {
        str(folder / image): text for image, text in zip(table.column("image"), table.column("abridged"), strict=True)
    }
    return [{"image": row["image"], "abridged": texts[row["image"]]} for row in data.train]


def draw(path: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Plot the reward over rollouts: both sides of GRPO on the left, the other runs on the right."""
    figure = require("matplotlib.figure", extra="plot").Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    colours = {"trl": "tab:orange", "lightning": "tab:blue"}
    for run in runs:
        smooth = _smooth(run["rewards"])
        label = f"{run['algorithm']}, {run['side']}, seed {run['seed']}"
        if run["algorithm"] == "grpo":
            left.plot(smooth, color=colours[run["side"]], alpha=0.7, label=label)
        else:
            right.plot(smooth, label=f"{run['algorithm']}, seed {run['seed']}")
    for axes, title in ((left, "GRPO, mini CT-CHAT"), (right, "PolicyModule, others")):
        axes.set(xlabel="rollout", ylabel="mean CRG reward (mean of 5)", title=title)
        axes.legend(fontsize="small")
    with open_output(path, overwrite=True) as file:
        figure.savefig(file, format="png", dpi=150)


def _smooth(values: Sequence[float], width: int = 5) -> list[float]:
    return [statistics.fmean(values[max(place - width + 1, 0) : place + 1]) for place in range(len(values))]


def agreement(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare GRPO on both sides: held-out CRG after training, and the reward of the last tenth of the run."""
    found: dict[str, Any] = {}
    for side in ("trl", "lightning"):
        own = [run for run in runs if run["algorithm"] == "grpo" and run["side"] == side]
        last = [statistics.fmean(run["rewards"][-max(len(run["rewards"]) // 10, 1) :]) for run in own]
        found[side] = {
            "heldout_crg": [run["after"]["crg"]["estimate"] for run in own],
            "last_rewards": [round(value, 4) for value in last],
        }
    means = {side: statistics.fmean(values["heldout_crg"]) for side, values in found.items()}
    return {**found, "difference_of_heldout_crg": round(means["lightning"] - means["trl"], 4)}


def main() -> None:
    """Run everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the mini CT-CHAT's run")
    parser.add_argument("--steps", type=int, default=60, help="rollouts of a run (default: 60)")
    parser.add_argument("--seeds", type=int, default=2, help="GRPO runs of each side (default: 2)")
    parser.add_argument("--warm-steps", type=int, default=800, help="steps of the encoder-decoder (default: 800)")
    parser.add_argument("--heldout-rows", type=int, default=300, help="studies to evaluate on (default: 300)")
    parser.add_argument("--output", type=Path, default=RESULTS / "policy_curves", help="folder to write")
    arguments = parser.parse_args()
    folder, steps = arguments.folder, arguments.steps
    runs: list[dict[str, Any]] = []

    def note(run: dict[str, Any]) -> None:
        runs.append(run)
        crg = {stage: run[stage]["crg"] for stage in ("before", "after", "change")}
        print(json.dumps({"algorithm": run["algorithm"], "side": run["side"], "seed": run["seed"], **crg}), flush=True)

    with TemporaryDirectory() as name:
        data, reward = read(folder, Path(name), heldout_rows=arguments.heldout_rows)
        for seed in range(arguments.seeds):
            note(trl_run(folder, Path(name) / str(seed), steps, seed, arguments.heldout_rows))
            generator = mini_generator(folder)
            note(lightning_run("grpo", generator, data, reward, steps, seed, GRPO, generator.collate))
        for algorithm, settings in OTHERS.items():
            generator = mini_generator(folder)
            note(lightning_run(algorithm, generator, data, reward, steps, 0, settings, generator.collate))
        vision = vision_generator()
        losses = warm_start(vision, with_abridged(data, folder), arguments.warm_steps)
        print(json.dumps({"warm_start_losses": losses[:: max(len(losses) // 10, 1)]}), flush=True)
        note(lightning_run("grpo, encoder-decoder", vision, data, reward, steps, 0, GRPO, collate_volumes))
    result = {
        "machine": platform.processor() or platform.machine(),
        "versions": versions(),
        "rollouts": steps,
        "agreement": agreement(runs),
        "runs": [{**run, "rewards": [round(value, 4) for value in run["rewards"]]} for run in runs],
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_json(result, arguments.output / "curves.json", overwrite=True)
    draw(arguments.output / "curves.png", runs)
    print(json.dumps(result["agreement"], indent=2))


if __name__ == "__main__":
    main()
