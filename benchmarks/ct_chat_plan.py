"""Estimate GPU memory and time of a GRPO step of CT-CHAT 8B on 1 to 32 GPUs.

    python benchmarks/ct_chat_plan.py
    python benchmarks/ct_chat_plan.py --json

Every figure is an estimate unless it is marked as measured; nothing was run on a GPU. ct_chat_cost.py counts parameters
and activations, and contains all assumptions. Settings come from the recipes, and defaults from the installed DeepSpeed
and TRL. The time that a GPU waits for its host at each decoded token was measured by gpu.py, and the time of rewards by
rule_labeler.py. GB are 10^9 bytes.
"""

import argparse
import itertools
import json
import os
import re
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import peft
import torch
import yaml
from rich.console import Console
from rich.table import Table
from trl import get_peft_config

from rrg_rewards.models import CTChatConfig
from rrg_rewards.recipes import recipe_path
from rrg_rewards.recipes._outputs import versions
from rrg_rewards.recipes.ct_chat.phantom import mini_processor
from rrg_rewards.recipes.grpo import parse

# Before the import of DeepSpeed, which otherwise reports on standard output that there is no GPU.
os.environ.setdefault("DS_ACCELERATOR", "cpu")
# Needed if this file is imported from another folder.
sys.path.insert(0, str(Path(__file__).parent))

import deepspeed
from ct_chat_cost import (
    COMPUTE_USE,
    DECODE_USE,
    GPU_BYTES,
    MARGIN,
    Run,
    count,
    estimated_states,
    memory,
    model_states,
    radbert,
    seconds,
)
from ct_chat_vllm_cost import Engine, engine_memory, memory_with_vllm, seconds_with_vllm

RESULTS = Path(__file__).parent / "results"
HARDWARE = ((1, 1), (4, 1), (8, 1), (8, 4))
# Launcher's configuration and recipe.
METHODS = {
    "DDP": ("ddp", "report_grpo_crg"),
    "ZeRO-2": ("zero2", "report_grpo_crg"),
    "ZeRO-3": ("zero3", "report_grpo_crg_zero3"),
}
# The recipes with vLLM.
VLLM = {"ZeRO-2": "report_grpo_crg_vllm", "ZeRO-3": "report_grpo_crg_vllm_zero3"}


def settings(method: str, gpus: int, machines: int, full: bool) -> tuple[Run, Any]:
    """Return the settings of a method's recipe, and its adapter's configuration."""
    launcher, name = METHODS[method]
    recipe, training, model = parse(["--config", f"ct_chat/{name}", "--use_cpu", "true"])
    launch = yaml.safe_load(recipe_path(f"accelerate_configs/{launcher}").read_text(encoding="utf-8"))
    message = {"role": "user", "content": f"<image>\n{recipe.prompt_template}"}
    prompt = mini_processor().apply_chat_template([message], add_generation_prompt=True)
    # An estimate: one token per word, sign, line end and special token, plus the volume's tokens.
    words = len(re.findall(r"<\|?\w+\|?>|\w+|[^\w\s]|\n+", prompt)) - 1
    return Run(
        stage=launch.get("deepspeed_config", {}).get("zero_stage", 0),
        gpus=gpus,
        machines=machines,
        full=full,
        batch=training.per_device_train_batch_size,
        accumulation=training.gradient_accumulation_steps,
        steps_per_generation=training.steps_per_generation,
        prompt=words + CTChatConfig().num_image_tokens,
        completion=training.max_completion_length,
        beta=training.beta,
        gather=training.ds3_gather_for_generation,
        rank=model.lora_r,
    ), get_peft_config(model)


def plan_vllm(c: Any, rates: dict[str, float]) -> list[dict[str, Any]]:
    """Return memory and time of the recipes with vLLM, without and with its sleep mode."""
    rows = []
    for (gpus, machines), method, sleep in itertools.product(HARDWARE, VLLM, (False, True)):
        run, _ = settings(method, gpus, machines, full=False)
        training = parse(["--config", f"ct_chat/{VLLM[method]}", "--use_cpu", "true"])[1]
        engine = Engine(training.vllm_gpu_memory_utilization, sleep)
        parts = memory_with_vllm(run, engine, c)
        fits = parts["peak"] * 1e9 <= GPU_BYTES * (1 - MARGIN)
        name = {"method": method, "gpus": run.world, "sleep": sleep, "fits": fits, "memory": parts}
        rows.append(name | {"engine": engine_memory(run, engine, c), "seconds": seconds_with_vllm(run, c, rates)})
    return rows


def reward_rates() -> dict[str, float]:
    """Return the measured reports per second of rewards on one CPU core."""
    figures = json.loads((RESULTS / "rule_labeler.json").read_text(encoding="utf-8"))["figures"]
    encoder = figures["encoder_reports_per_second"]
    return {"rules_per_second": figures["rules_cold_reports_per_second"], "radbert_per_second": encoder}


def host_seconds(run: Run) -> float:
    """Return the seconds per decoded token of transformers' `generate` on one H100, which waited for its host."""
    generation = json.loads((RESULTS / "gpu.json").read_text(encoding="utf-8"))["phases"]["generation"]
    return float(generation["seconds"]) / run.completion


def levers(run: Run) -> dict[str, Run]:
    """Return runs that differ from the recipe in one change each."""
    twice = 2 * run.accumulation
    fewer, more = run.batch // 4, run.accumulation * 4
    return {
        "as the recipe has it": run,
        "batch / 4, accumulation x 4": replace(run, batch=fewer, accumulation=more, steps_per_generation=more),
        "the same, steps_per_generation kept": replace(run, batch=fewer, accumulation=more),
        "steps_per_generation 1": replace(run, steps_per_generation=1),
        "accumulation and steps_per_generation x 2": replace(run, accumulation=twice, steps_per_generation=twice),
        "gradient_checkpointing false": replace(run, checkpointing=False),
        "ZeRO-3": replace(run, stage=3),
        "ZeRO-3, ds3_gather_for_generation false": replace(run, stage=3, gather=False),
        "max_completion_length / 2": replace(run, completion=run.completion // 2),
        "lora_r / 4": replace(run, rank=run.rank // 4),
        "base in 4 bits": replace(run, four_bit=True),
        "optimizer in host memory": replace(run, offload=True),
        "beta 0": replace(run, beta=0.0),
    }


def same_step(run: Run, gpus: int, machines: int) -> Run:
    """Return a run with as many completions per step on other hardware, and no larger generation batches."""
    accumulation = run.accumulation * run.world // (gpus * machines)
    once = min(accumulation, run.steps_per_generation)
    return replace(run, gpus=gpus, machines=machines, accumulation=accumulation, steps_per_generation=once)


def rounded(value: Any) -> Any:
    """Return a nested structure with numbers rounded to six decimal places."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry) for entry in value]
    return round(value, 6) if isinstance(value, float) else value


def plan() -> dict[str, Any]:
    """Return everything that is printed and written."""
    recipe, adapter = settings("ZeRO-2", 8, 1, full=False)
    c, host, rates = count(adapter), host_seconds(recipe), reward_rates()

    def row(name: dict[str, Any], run: Run) -> dict[str, Any]:
        parts = memory(run, c)
        fits = parts["peak"] * 1e9 <= GPU_BYTES * (1 - MARGIN)
        completions = {"completions_per_gpu": run.batch * run.accumulation, "at_once": run.at_once}
        return name | completions | {"memory": parts, "fits": fits, "seconds": seconds(run, c, host, rates)}

    rows, estimators = [], []
    for full, (gpus, machines), method in itertools.product((False, True), HARDWARE, METHODS):
        run, _ = settings(method, gpus, machines, full)
        name = {"method": method, "gpus": run.world, "full": full}
        rows.append(row(name, run))
        if run.stage:
            both = {"own": model_states(replace(run, beta=0.0), c), "deepspeed": estimated_states(run, c)}
            estimators.append(name | {key: value / 1e9 for key, value in both.items()})
    same = [same_step(recipe, *hardware) for hardware in HARDWARE]
    result = {
        "versions": versions() | {"deepspeed": deepspeed.__version__, "peft": peft.__version__},
        "measured_before": {"decoding_seconds_per_token": host, **rates},
        "assumptions": {"margin": MARGIN, "compute_use": COMPUTE_USE, "decode_use": DECODE_USE},
        "recipe": asdict(recipe),
        "counts": vars(c),
        "plan": rows,
        "same_step": [row({"gpus": run.world, "accumulation": run.accumulation}, run) for run in same],
        "vllm": plan_vllm(c, rates),
        "states_by_deepspeed": estimators,
        "radbert": radbert(recipe.batch * recipe.accumulation, rates),
        "changes": [
            row({"change": name}, run) | ({"seconds": None} if run.four_bit or run.offload else {})
            for name, run in levers(recipe).items()
        ],
    }
    return rounded(result)  # type: ignore[no-any-return]


def between(pair: list[float], digits: int = 0) -> str:
    """Format an interval."""
    return " to ".join(f"{value:.{digits}f}" for value in pair)


def show(title: str, rows: list[dict[str, str]]) -> None:
    """Print a table."""
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*row.values())
    Console(width=150).print(table)


def report(result: dict[str, Any]) -> None:
    """Print the plan."""
    for full, what in ((False, "LoRA and projector"), (True, "full fine-tuning")):
        chosen = {f"{r['method']}, GPUs: {r['gpus']}": r for r in result["plan"] if r["full"] is full}
        show(f"{what}: GB a GPU (estimates)", [{"": name} | in_gb(row) for name, row in chosen.items()])
        show(f"{what}: seconds of a step (estimates)", [{"": name} | in_seconds(row) for name, row in chosen.items()])
    same = [
        {"GPUs": str(row["gpus"]), "accumulation": str(row["accumulation"]), "at once": str(row["at_once"])}
        | {"GB": f"{row['memory']['peak']:.1f}"}
        | in_seconds(row)
        for row in result["same_step"]
    ]
    show("LoRA, ZeRO-2, the same number of completions a step (estimates)", same)
    vllm = [
        {"vLLM": f"{row['method']}, GPUs: {row['gpus']}", "sleep mode": "yes" if row["sleep"] else "no"}
        | {part: f"{value:.1f}" for part, value in row["memory"].items()}
        | {"fits": "yes" if row["fits"] else "no", "cache, tokens": f"{row['engine']['tokens']:,}"}
        | {part: between(row["seconds"][part], 1) for part in ("decoding", "old", "step")}
        for row in result["vllm"]
    ]
    show("LoRA with vLLM: GB a GPU, and seconds of a step (estimates)", vllm)
    states = [
        {key: f"{value:.1f}" if isinstance(value, float) else str(value) for key, value in row.items()}
        for row in result["states_by_deepspeed"]
    ]
    show("Model states, GB a GPU, without a reference model: own arithmetic, DeepSpeed's estimator", states)
    changes = [
        {"LoRA, ZeRO-2, 8 GPUs": row["change"]}
        | {part: f"{row['memory'][part]:.1f}" for part in ("states", "generation", "training", "peak")}
        | {"s a completion": per_completion(row)}
        for row in result["changes"]
    ]
    show("One change at a time (estimates)", changes)
    encoder = result["radbert"]
    times = {"one CPU core, measured": f"{encoder['one_cpu_core']:.1f}", "GPU, estimate": between(encoder["gpu"], 3)}
    show("RadBERT on a process' completions of a step: seconds", [times | {"GB": f"{encoder['gb']:.1f}"}])


def per_completion(row: dict[str, Any]) -> str:
    """Format the seconds of a step per completion on each GPU."""
    if row["seconds"] is None:
        return "not planned"
    return between([end / row["completions_per_gpu"] for end in row["seconds"]["step"]], 2)


def in_gb(row: dict[str, Any]) -> dict[str, str]:
    """Format a row's memory."""
    parts = ("states", "kv_cache", "gathered", "checkpoints", "layer", "generation", "training", "peak")
    return {part: f"{row['memory'][part]:.1f}" for part in parts} | {"fits": "yes" if row["fits"] else "no"}


def in_seconds(row: dict[str, Any]) -> dict[str, str]:
    """Format a row's time."""
    phases = ("decoding", "prefill", "reference", "training", "exchange", "step")
    times = {phase: between(row["seconds"][phase], 1) for phase in phases}
    share = between([100 * end for end in row["seconds"]["reward_share"]], 3)
    return times | {"reward": f"{row['seconds']['reward']:.4f}", "its share, %": share}


def main() -> None:
    """Plan, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--output", type=Path, default=RESULTS / "ct_chat_plan.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    result = plan()
    text = json.dumps(result, indent=2)
    arguments.output.write_text(text + "\n", encoding="utf-8")
    if arguments.json:
        print(text)
    else:
        report(result)


if __name__ == "__main__":
    main()
