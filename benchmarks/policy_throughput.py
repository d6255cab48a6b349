"""Compare the tokens per second and the memory of GRPO in PolicyModule and in TRL, on the same policy and rows.

python benchmarks/policy_throughput.py --mini runs/mini_ct_chat [--steps 20] [--rounds 3] [--threads 2]
python benchmarks/policy_throughput.py --mini runs/mini_ct_chat --scaling [--minutes 15]
python benchmarks/policy_throughput.py --mini runs/mini_ct_chat --quick
python benchmarks/policy_throughput.py --smollm2 runs/smollm2-135m-instruct --reports runs/ct_rate_impressions.csv

``--mini`` is the output of ``rrg_rewards.recipes.ct_chat.phantom`` and of the recipe ``ct_chat/mini_sft``; a step
generates 128 completions of at most 64 tokens and trains on them. ``--smollm2`` and ``--reports`` are prepared as the
header of the recipe ``smollm2/impression_grpo_crg`` describes; a step has 16 completions of at most 64 tokens, 8 of
each report, in bfloat16 with LoRA.

The sides run in turn, each in a process of its own; a round is one run of each side, and every other round begins with
the other side. The first step of a run is not measured. The memory is the largest resident memory of the process.
Ratios are those of Lightning to TRL in tokens per second, and of TRL to Lightning in memory: above 1, Lightning is
better. ``ratio`` is in processor time, which other work on the machine affects less; ``wall_ratio`` is in wall time.

``--scaling`` measures steps of 64 to 256 completions of 64 to 512 tokens. The model cannot end a completion, so that
all have the maximum length, which the script checks. The times of a size are those of the fastest of its steps. The
results say which sizes did not fit the time limit. ``--quick`` runs one round of 6 steps as without ``--scaling``, and
one size of ``--scaling``, in less than two minutes on an idle machine.
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
from itertools import pairwise
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
from rrg_rewards.training import PolicyModule

RESULTS = Path(__file__).parent / "results"
SIDES = ("trl", "lightning")
# Numbers of completions and of tokens of --scaling, and those of --quick.
SIZES = tuple((completions, tokens) for completions in (64, 128, 256) for tokens in (64, 128, 256, 512))
QUICK_SIZES = ((128, 128),)
# Steps of a size, and those of a run with --quick; the first one is not measured.
SCALING_STEPS = 3
QUICK_STEPS = 6
# Ratios of a size, and the figures of which they are: TRL's to Lightning's.
RATIOS = {"ratio": "processor_seconds_per_step", "wall_ratio": "seconds_per_step", "memory_ratio": "memory_gib"}
HEADER: dict[str, Any] = {
    "completions": "completions",
    "tokens": "tokens",
    **{
        side: {"processor_seconds_per_step": f"{short} cpu s", "seconds_per_step": "wall s", "memory_gib": "GiB"}
        for side, short in (("trl", "TRL"), ("lightning", "own"))
    },
    "ratio": "cpu ratio",
    "wall_ratio": "wall ratio",
    "memory_ratio": "memory",
}
SMOLLM2 = {"rows": 2, "generations": 8, "tokens": 64}


def measured(steps: list[dict[str, float]], completions: int) -> list[dict[str, float]]:
    """Return the tokens and the seconds of each step after the first."""
    return [
        {
            "tokens": round(step["completions/mean_length"] * completions),
            "wall": step["ended"] - before["ended"],
            "processor": step["processor"] - before["processor"],
        }
        for before, step in pairwise(steps)
    ]


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
        "use_cpu": not torch.cuda.is_available(),
        "heldout_rows": 0,
        "max_steps": arguments.steps,
        "save_strategy": "no",
        "resume_from_checkpoint": "none",
        "disable_tqdm": True,
        "seed": arguments.seed,
        "output_dir": output,
    }


def smollm2_module(options: dict[str, Any]) -> tuple[PolicyModule, Any]:
    """Return the module and the training rows of a run of SmolLM2, with the settings of the recipe for TRL."""
    recipe, training, model = grpo.parse(options)
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


def run_side(arguments: Any) -> list[dict[str, float]]:
    """Run one side in this process and return the tokens and the seconds of its steps."""
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
                generator.max_new_tokens, generator.decoding = arguments.tokens, arguments.decoding
                module = PolicyModule(generator, reward, **GRPO, **COMMON, seed=arguments.seed)
                rows = completions // GENERATIONS
                steps = with_lightning(module, data.train, arguments.steps, arguments.seed, rows)
        else:
            completions = SMOLLM2["rows"] * SMOLLM2["generations"]
            chosen = smollm2_options(arguments, output)
            if arguments.side == "trl":
                steps = with_trl(chosen)
            else:
                module, rows = smollm2_module(chosen)
                steps = with_lightning(
                    module, list(rows), arguments.steps, arguments.seed, SMOLLM2["rows"], precision="bf16-mixed"
                )
    found = measured(steps, completions)
    if len(found) != arguments.steps - 1:
        raise SystemExit(f"{arguments.side} logged {len(found) + 1} steps instead of {arguments.steps}")
    if arguments.scaling and any(step["tokens"] != completions * arguments.tokens for step in found):
        generated = [step["tokens"] for step in found]
        raise SystemExit(f"{arguments.side} generated {generated} tokens instead of {completions * arguments.tokens}")
    return found


def measure(side: str, arguments: Any, *more: str, timeout: float | None = None) -> dict[str, Any]:
    """Run one side in a new process and return its steps and its memory in GiB."""
    given = {
        "decoding": arguments.decoding,
        "mini": arguments.mini,
        "smollm2": arguments.smollm2,
        "reports": arguments.reports,
    }
    options = [text for name, value in given.items() if value for text in (f"--{name}", str(value))]
    ended = subprocess.run(
        [sys.executable, __file__, *options, "--side", side, *more],
        env={**os.environ, "OMP_NUM_THREADS": str(arguments.threads)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{side} with {' '.join(more)} failed:\n{ended.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result


def run_cell(arguments: Any, completions: int, tokens: int, index: int, deadline: float) -> dict[str, Any]:
    """Run both sides with steps of one size; a side that does not end before the deadline says so."""
    more = ("--scaling", "--completions", str(completions), "--tokens", str(tokens), "--steps", str(SCALING_STEPS))
    row: dict[str, Any] = {"completions": completions, "tokens": tokens}
    for side in SIDES[:: 1 if index % 2 == 0 else -1]:
        left = deadline - time.monotonic()
        try:
            run = measure(side, arguments, *more, timeout=max(left, 0.0))
        except subprocess.TimeoutExpired:
            row[side] = f"did not end within {left:.0f} s"
        else:
            seconds = {name: min(step[name] for step in run["steps"]) for name in ("wall", "processor")}
            row[side] = {
                "seconds_per_step": round(seconds["wall"], 2),
                "processor_seconds_per_step": round(seconds["processor"], 2),
                "tokens_per_second": round(completions * tokens / seconds["wall"]),
                "memory_gib": round(run["gib"], 2),
            }
    if all(isinstance(row[side], dict) for side in SIDES):
        for ratio, figure in RATIOS.items():
            row[ratio] = round(row["trl"][figure] / row["lightning"][figure], 2)
    return row


def scale(arguments: Any, sizes: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Run both sides with steps of different sizes, the smallest first, until the time is over.

    A size is not begun if it would not end: its time is estimated from the last size that ended, as proportional to the
    number of tokens.
    """
    deadline = time.monotonic() + 60 * arguments.minutes
    rows: list[dict[str, Any]] = []
    per_token = 0.0
    print_row(HEADER)
    for index, (completions, tokens) in enumerate(sorted(sizes, key=lambda size: (size[0] * size[1], size[1]))):
        begun = time.monotonic()
        estimate = per_token * completions * tokens
        if begun + estimate > deadline:
            reason = f"not run: about {estimate:.0f} s, and {max(deadline - begun, 0):.0f} s are left"
            rows.append({"completions": completions, "tokens": tokens, **dict.fromkeys(SIDES, reason)})
        else:
            rows.append(run_cell(arguments, completions, tokens, index, deadline))
            per_token = (time.monotonic() - begun) / (completions * tokens)
        print_row(rows[-1])
    known = {name: [row[name] for row in rows if name in row] for name in RATIOS}
    if not known["ratio"]:
        raise SystemExit(f"no size was measured within {arguments.minutes} minutes")
    figures = {f"lowest_{name}": min(values) for name, values in known.items()}
    figures |= {name: round(statistics.median(values), 3) for name, values in known.items()}
    return {"measured_steps": SCALING_STEPS - 1, "minutes": arguments.minutes, "sizes": rows, "figures": figures}


def print_row(row: dict[str, Any]) -> None:
    """Print a row of the table of sizes."""
    cells = [row["completions"], row["tokens"]]
    for side in SIDES:
        values = row[side]
        names = ("processor_seconds_per_step", "seconds_per_step", "memory_gib")
        cells += [values[name] for name in names] if isinstance(values, dict) else [values]
    print("".join(f"{cell:>12}" for cell in [*cells, *(row[name] for name in RATIOS if name in row)]), flush=True)


def compare(arguments: Any) -> dict[str, Any]:
    """Run both sides in turn, with completions that may end."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for seed in range(arguments.rounds):
        for side in SIDES[:: 1 if seed % 2 == 0 else -1]:
            run = measure(side, arguments, "--steps", str(arguments.steps), "--seed", str(seed))
            tokens = sum(step["tokens"] for step in run["steps"])
            per_second = {name: tokens / sum(step[name] for step in run["steps"]) for name in ("wall", "processor")}
            runs[side].append({**per_second, "tokens": tokens, "gib": run["gib"]})
            print(f"round {seed}, {side}: {runs[side][-1]}", flush=True)
    ratios = {
        name: [own[name] / other[name] for own, other in zip(runs["lightning"], runs["trl"], strict=True)]
        for name in ("processor", "wall")
    }
    memory = {side: max(run["gib"] for run in runs[side]) for side in SIDES}
    return {
        "steps": arguments.steps,
        "tokens": {side: [run["tokens"] for run in runs[side]] for side in SIDES},
        "tokens_per_second": {side: [round(run["wall"], 1) for run in runs[side]] for side in SIDES},
        "tokens_per_processor_second": {side: [round(run["processor"], 1) for run in runs[side]] for side in SIDES},
        "memory_gib": {side: round(memory[side], 2) for side in SIDES},
        "ratios": [round(ratio, 3) for ratio in ratios["processor"]],
        "wall_ratios": [round(ratio, 3) for ratio in ratios["wall"]],
        "figures": {
            "ratio": round(statistics.median(ratios["processor"]), 3),
            "wall_ratio": round(statistics.median(ratios["wall"]), 3),
            "memory_ratio": round(memory["trl"] / memory["lightning"], 3),
        },
    }


def run_quick(arguments: Any) -> dict[str, Any]:
    """Run one round of few steps, and one size with completions of the maximum length."""
    arguments.steps, arguments.rounds = QUICK_STEPS, 1
    ending, full = compare(arguments), scale(arguments, QUICK_SIZES)
    figures = {**ending["figures"], **{f"full_length_{name}": full["figures"][name] for name in RATIOS}}
    return {"ending": ending, "full_length": full, "figures": figures}


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mini", type=Path, help="folder of the mini CT-CHAT's run")
    parser.add_argument("--smollm2", type=Path, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--reports", type=Path, help="CSV file of findings, impressions and labels, for SmolLM2")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run (default: 20)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side (default: 3)")
    parser.add_argument("--threads", type=int, default=1, help="threads of a run (default: 1)")
    parser.add_argument("--output", type=Path, help="file to write (default: in results)")
    parser.add_argument("--scaling", action="store_true", help="measure steps of different sizes, with --mini")
    parser.add_argument("--minutes", type=float, default=15, help="time limit of --scaling (default: 15)")
    parser.add_argument("--quick", action="store_true", help="few steps, and one size of --scaling, with --mini")
    parser.add_argument("--completions", type=int, default=ROWS * GENERATIONS, help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, default=TOKENS, help=argparse.SUPPRESS)
    parser.add_argument("--decoding", default="auto", help="auto, eager or graph, of PolicyModule with --mini")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if (arguments.mini is None) == (arguments.smollm2 is None) or (arguments.smollm2 and not arguments.reports):
        parser.error("give either --mini, or --smollm2 and --reports")
    if (arguments.scaling or arguments.quick) and arguments.mini is None:
        parser.error("--scaling and --quick need --mini")
    if arguments.mini is not None and not (arguments.mini / "sft").is_dir():
        parser.error(f"{arguments.mini} has no folder 'sft'; the first lines of this script say how to make it")
    return arguments


def main() -> None:
    """Run both sides in turn and write the results."""
    arguments = parse_arguments()
    if arguments.side:
        steps = run_side(arguments)
        print(json.dumps({"steps": steps, "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))
        return
    if arguments.quick:
        kind, found = "_quick", run_quick(arguments)
    elif arguments.scaling:
        kind, found = "_scaling", scale(arguments, SIZES)
    else:
        kind, found = "", compare(arguments)
    result = {
        "machine": {**machine(), "cores": os.cpu_count(), "threads": arguments.threads},
        "versions": versions(),
        **found,
    }
    name = ("mini" if arguments.mini else "smollm2") + kind + ("_graph" if arguments.decoding == "graph" else "")
    write_json(result, arguments.output or RESULTS / f"policy_throughput_{name}.json", overwrite=True)
    print(json.dumps({"machine": result["machine"], "figures": result["figures"]}, indent=2))


if __name__ == "__main__":
    main()
