"""Compare GRPO with and without edits towards the reference (EditGRPO) on phantom volumes, over several seeds.

python benchmarks/edit_grpo.py --folder runs/mini_ct_chat [--steps 40] [--seeds 3]

The folder contains the output of ``rrg_rewards.recipes.ct_chat.phantom`` and of the recipe ``ct_chat/mini_sft``. From
the same warm start, mini CT-CHAT is trained on CRG by ``PolicyModule`` with Dr. GRPO, with and without edits. The
rollouts of both sides have equally many completions. The output has held-out CRG and CRIMSON before and after, with
bootstrap intervals of each change, and the mean over seeds.
"""

import argparse
import json
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from policy_runs import COMMON, GENERATIONS, heldout, mini_generator, read, with_lightning

from rrg_rewards.data import write_json
from rrg_rewards.recipes._evaluate import change
from rrg_rewards.recipes._outputs import versions
from rrg_rewards.rewards import make_reward
from rrg_rewards.training import EditSettings, PolicyModule

RESULTS = Path(__file__).parent / "results"
SIDES: dict[str, EditSettings | None] = {"plain": None, "edits": EditSettings(share=0.5, most=1)}
METRICS = {"crg": ("crg", "precision", "recall", "words"), "crimson": ("score",)}


def run(folder: Path, data: Any, rewards: dict[str, Any], side: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one policy, and evaluate it on the held-out rows before and after."""
    generator = mini_generator(folder)
    before = {name: heldout(generator, reward, data.heldout) for name, reward in rewards.items()}
    options = {"algorithm": "dr_grpo", "num_generations": GENERATIONS, "edits": SIDES[side], **COMMON}
    module = PolicyModule(generator, rewards["crg"], **options, seed=seed)
    rows = with_lightning(module, data.train, steps, seed)
    after = {name: heldout(generator, reward, data.heldout) for name, reward in rewards.items()}
    kept: dict[str, Any] = {"side": side, "seed": seed}
    for name, statistics_of in METRICS.items():
        stages = {
            "before": before[name].summary()[name],
            "after": after[name].summary()[name],
            "change": change(before[name], after[name])[name],
        }
        for stage, summary in stages.items():
            for statistic in statistics_of:
                values = {key: round(value, 4) for key, value in summary[statistic].items()}
                kept.setdefault(stage, {})[f"{name}/{statistic}"] = values
    logged = [name for name in rows[0] if name == "reward" or name.startswith("edits/")]
    kept["log"] = {name: [round(row[name], 4) for row in rows if name in row] for name in logged}
    kept["seconds"] = round(rows[-1]["ended"] - rows[0]["ended"], 1)
    return kept


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return, by side, the changes of all seeds with their mean."""
    found: dict[str, Any] = {}
    for side in SIDES:
        own = [one for one in runs if one["side"] == side]
        names = own[0]["change"]
        changes = {name: [one["change"][name]["estimate"] for one in own] for name in names}
        means = {name: round(statistics.fmean(values), 4) for name, values in changes.items()}
        found[side] = {name: {"seeds": changes[name], "mean": means[name]} for name in names}
    return found


def main() -> None:
    """Run all seeds of both sides in turn, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the mini CT-CHAT's run")
    parser.add_argument("--steps", type=int, default=40, help="rollouts of a run (default: 40)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each side (default: 3)")
    parser.add_argument("--heldout-rows", type=int, default=300, help="studies to evaluate on (default: 300)")
    parser.add_argument("--output", type=Path, default=RESULTS / "edit_grpo.json", help="file to write")
    arguments = parser.parse_args()
    runs: list[dict[str, Any]] = []
    with TemporaryDirectory() as name:
        data, crg = read(arguments.folder, Path(name), heldout_rows=arguments.heldout_rows)
    crimson = make_reward("crimson", judge="rules", reference_column="impression")
    for seed in range(arguments.seeds):
        for side in SIDES:
            runs.append(run(arguments.folder, data, {"crg": crg, "crimson": crimson}, side, seed, arguments.steps))
            print(json.dumps({key: runs[-1][key] for key in ("side", "seed", "change", "seconds")}), flush=True)
    results = {"steps": arguments.steps, "summary": summary(runs), "runs": runs, "versions": versions()}
    write_json(results, arguments.output, overwrite=True)
    print(json.dumps(results["summary"], indent=1))


if __name__ == "__main__":
    main()
