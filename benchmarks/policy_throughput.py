"""Compare the tokens per second and the memory of GRPO in PolicyModule and in TRL, on the same policy and rows.

python benchmarks/policy_throughput.py --mini runs/mini_ct_chat [--steps 20] [--rounds 3]
python benchmarks/policy_throughput.py --mini runs/mini_ct_chat --scaling [--minutes 15] [--quick]
python benchmarks/policy_throughput.py --smollm2 runs/smollm2-135m-instruct --reports runs/ct_rate_impressions.csv

``--mini`` is the output of ``rrg_rewards.recipes.ct_chat.phantom`` and of the recipe ``ct_chat/mini_sft``; a step
generates 128 completions and trains on them. ``--smollm2`` and ``--reports`` are prepared as the header of the recipe
``smollm2/impression_grpo_crg`` describes; a step has 16 completions of at most 64 tokens, 8 of each report, in bfloat16
with LoRA. The script runs both sides in turn, each in a process of its own; a round is one run of each side. The rate
is the number of completion tokens per second from the end of the first step to the end of the last. The memory is the
largest resident memory of the process.

``--scaling`` measures one step of 64 to 256 completions of 64 to 512 tokens instead. The model cannot end a completion,
so that all have the maximum length. The results say which sizes did not fit the time limit. The ratios are those of TRL
to Lightning, in seconds per step and in memory. ``--quick`` runs the two smallest sizes.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch
from policy_runs import COMMON, GENERATIONS, GRPO, ROWS, TOKENS, mini_generator, options, read, with_lightning, with_trl
from timing import machine

from rrg_rewards.data import write_json
from rrg_rewards.models import CTChatForConditionalGeneration
from rrg_rewards.recipes import grpo, policy
from rrg_rewards.recipes._data import load_recipe_data
from rrg_rewards.recipes._outputs import versions
from rrg_rewards.recipes._parse import command_line
from rrg_rewards.training import PolicyModule

RESULTS = Path(__file__).parent / "results"
SIDES = ("trl", "lightning")
# Numbers of completions and of tokens of --scaling, and those of --quick.
SIZES = tuple((completions, tokens) for completions in (64, 128, 256) for tokens in (64, 128, 256, 512))
QUICK_SIZES = ((64, 64), (64, 128))
# Steps of a size; the first one is not measured.
SCALING_STEPS = 2
SMOLLM2 = {"rows": 2, "generations": 8, "tokens": 64}


def rate(steps: list[dict[str, float]], completions: int) -> float:
    """Return tokens per second after the first step."""
    tokens = sum(step["completions/mean_length"] for step in steps[1:]) * completions
    return tokens / (steps[-1]["ended"] - steps[0]["ended"])


def mini_options(arguments: Any, output: str) -> dict[str, Any]:
    """Return the options of a run of the mini CT-CHAT."""
    more = {
        "heldout_rows": 0,
        "max_steps": arguments.steps,
        "seed": arguments.seed,
        "per_device_train_batch_size": arguments.completions,
        "max_completion_length": arguments.tokens,
    }
    return options(arguments.mini, Path(output), **more)


def never_end() -> None:
    """Make the end-of-sequence token of CT-CHAT improbable, on both sides."""
    forward = CTChatForConditionalGeneration.forward

    @wraps(forward)
    def without_end(self: Any, *inputs: Any, **named: Any) -> Any:
        output = forward(self, *inputs, **named)
        end = torch.arange(output.logits.shape[-1]) == self.config.text_config.eos_token_id
        output.logits = output.logits.masked_fill(end, -1e4)
        return output

    CTChatForConditionalGeneration.forward = without_end


def smollm2_options(arguments: Any, output: str) -> dict[str, Any]:
    """Return the options of a run of SmolLM2."""
    return {
        "config": "smollm2/impression_grpo_crg",
        "model_name_or_path": arguments.smollm2,
        "dataset": arguments.reports,
        "dtype": "bfloat16",
        "bf16": True,
        "max_input_words": 400,
        "per_device_train_batch_size": SMOLLM2["rows"] * SMOLLM2["generations"],
        "num_generations": SMOLLM2["generations"],
        "max_completion_length": SMOLLM2["tokens"],
        "heldout_rows": 0,
        "max_steps": arguments.steps,
        "save_strategy": "no",
        "resume_from_checkpoint": "none",
        "disable_tqdm": True,
        "seed": arguments.seed,
        "output_dir": output,
    }


def smollm2_module(command: list[str]) -> tuple[PolicyModule, Any]:
    """Return the module and the training rows of a run of SmolLM2, with the settings of the recipe for TRL."""
    recipe, training, model = grpo.parse(command)
    (setting,) = recipe.reward_settings()
    reward = setting.make()
    rows = load_recipe_data(recipe, list(reward.columns)).train
    reward.fit(**{column: list(rows[column]) for column in reward.columns})
    settings = SimpleNamespace(
        max_new_tokens=training.max_completion_length, temperature=training.temperature, merge_adapters=False
    )
    return PolicyModule(
        policy.make_generator(recipe, settings, model),
        reward,
        loss={"aggregation": "token_mean"},
        num_generations=training.num_generations,
        learning_rate=training.learning_rate,
        reference_column=recipe.reference_column,
        seed=training.seed,
    ), rows


def run_side(arguments: Any) -> float:
    """Run one side in this process and return its rate."""
    with TemporaryDirectory() as output:
        if arguments.mini is not None:
            completions = arguments.completions
            if arguments.scaling:
                never_end()
            if arguments.side == "trl":
                steps = with_trl(mini_options(arguments, output))
            else:
                data, reward = read(arguments.mini, Path(output), heldout_rows=0)
                generator = mini_generator(arguments.mini)
                generator.max_new_tokens = arguments.tokens
                module = PolicyModule(generator, reward, **GRPO, **COMMON, seed=arguments.seed)
                rows = completions // GENERATIONS
                steps = with_lightning(module, data.train, arguments.steps, arguments.seed, rows)
        else:
            completions = SMOLLM2["rows"] * SMOLLM2["generations"]
            chosen = smollm2_options(arguments, output)
            if arguments.side == "trl":
                steps = with_trl(chosen)
            else:
                module, rows = smollm2_module(command_line(chosen))
                steps = with_lightning(
                    module, list(rows), arguments.steps, arguments.seed, SMOLLM2["rows"], precision="bf16-mixed"
                )
    return rate(steps, completions)


def measure(side: str, seed: int, *more: str, timeout: float | None = None) -> dict[str, float]:
    """Run one side in a new process and return its rate and its memory in GiB."""
    command = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--seed", str(seed), *more]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout).stdout
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return result


def run_cell(completions: int, tokens: int, deadline: float) -> dict[str, Any]:
    """Run both sides with steps of one size; a side that does not end before the deadline says so."""
    more = ("--completions", str(completions), "--tokens", str(tokens), "--steps", str(SCALING_STEPS))
    row: dict[str, Any] = {"completions": completions, "tokens": tokens}
    for side in SIDES:
        left = deadline - time.monotonic()
        try:
            run = measure(side, 0, *more, timeout=max(left, 0.0))
        except subprocess.TimeoutExpired:
            row[side] = f"did not end within {left:.0f} s"
        else:
            row[side] = {
                "seconds_per_step": round(completions * tokens / run["rate"], 2),
                "tokens_per_second": round(run["rate"]),
                "memory_gib": round(run["gib"], 2),
            }
    if all(isinstance(row[side], dict) for side in SIDES):
        for ratio, figure in (("time_ratio", "seconds_per_step"), ("memory_ratio", "memory_gib")):
            row[ratio] = round(row["trl"][figure] / row["lightning"][figure], 2)
    return row


def scale(minutes: float, sizes: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Run both sides with steps of different sizes, the smallest first, until the time is over.

    A size is not begun if it would not end: its time is estimated from the last size that ended, as proportional to the
    number of tokens.
    """
    deadline = time.monotonic() + 60 * minutes
    rows: list[dict[str, Any]] = []
    per_token = 0.0
    for completions, tokens in sorted(sizes, key=lambda size: (size[0] * size[1], size[1])):
        begun = time.monotonic()
        estimate = per_token * completions * tokens
        if begun + estimate > deadline:
            reason = f"not run: about {estimate:.0f} s, and {max(deadline - begun, 0):.0f} s are left"
            rows.append({"completions": completions, "tokens": tokens, **dict.fromkeys(SIDES, reason)})
        else:
            rows.append(run_cell(completions, tokens, deadline))
            per_token = (time.monotonic() - begun) / (completions * tokens)
        print(json.dumps(rows[-1]), flush=True)
    # TRL over Lightning: above 1, Lightning takes less.
    ratios = {name: [row[name] for row in rows if name in row] for name in ("time_ratio", "memory_ratio")}
    return {
        "measured_steps": SCALING_STEPS - 1,
        "minutes": minutes,
        "sizes": rows,
        **{f"lowest_{name}": min(values, default=None) for name, values in ratios.items()},
    }


def compare(name: str, rounds: int, steps: int) -> dict[str, Any]:
    """Run both sides in turn."""
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for seed in range(rounds):
        for side in SIDES:
            runs[side].append(measure(side, seed))
            print(name, seed, side, runs[side][-1], flush=True)
    ratios = [own["rate"] / other["rate"] for own, other in zip(runs["lightning"], runs["trl"], strict=True)]
    return {
        "steps": steps,
        "tokens_per_second": {side: [round(run["rate"], 1) for run in runs[side]] for side in SIDES},
        "memory_gib": {side: round(max(run["gib"] for run in runs[side]), 2) for side in SIDES},
        "ratios": [round(ratio, 3) for ratio in ratios],
        "lightning_to_trl": round(statistics.median(ratios), 3),
    }


def main() -> None:
    """Run both sides in turn and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mini", type=Path, help="folder of the mini CT-CHAT's run")
    parser.add_argument("--smollm2", type=Path, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--reports", type=Path, help="CSV file of findings, impressions and labels, for SmolLM2")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run (default: 20)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side (default: 3)")
    parser.add_argument("--output", type=Path, help="file to write (default: in results)")
    parser.add_argument("--scaling", action="store_true", help="measure steps of different sizes, with --mini")
    parser.add_argument("--minutes", type=float, default=15, help="time limit of --scaling (default: 15)")
    parser.add_argument("--quick", action="store_true", help="only two sizes of --scaling")
    parser.add_argument("--completions", type=int, default=ROWS * GENERATIONS, help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, default=TOKENS, help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if (arguments.mini is None) == (arguments.smollm2 is None) or (arguments.smollm2 and not arguments.reports):
        parser.error("give either --mini, or --smollm2 and --reports")
    if arguments.scaling and arguments.mini is None:
        parser.error("--scaling needs --mini")
    if arguments.side:
        own = run_side(arguments)
        print(json.dumps({"rate": own, "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))
        return
    name = "mini" if arguments.mini else "smollm2"
    sizes = QUICK_SIZES if arguments.quick else SIZES
    found = scale(arguments.minutes, sizes) if arguments.scaling else compare(name, arguments.rounds, arguments.steps)
    result = {
        "machine": {**machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "versions": versions(),
        **found,
    }
    name += "_scaling" * arguments.scaling
    write_json(result, arguments.output or RESULTS / f"policy_throughput_{name}.json", overwrite=True)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
