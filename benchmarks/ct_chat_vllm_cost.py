"""Memory and time of a GRPO step of CT-CHAT 8B that generates with vLLM in the training processes, for ct_chat_plan.py.

All figures are estimates. Every assumption is a constant below, with its source.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from ct_chat_cost import (
    BF16,
    COMPUTE_USE,
    DECODE_USE,
    GPU_BYTES,
    HBM_RATE,
    PEAK_FLOPS,
    VOLUME,
    Run,
    flops,
    kv_bytes,
    memory,
    seconds,
    trained,
)

from rrg_rewards.models import CTChatConfig

# TRL starts the engine with this limit; vLLM reserves memory for a prefill of so many tokens.
BATCHED_TOKENS = 4096
# Assumed: CUDA graphs, and workspaces of the kernels.
GRAPHS = 1e9


@dataclass(frozen=True)
class Engine:
    """The settings of vLLM in a recipe."""

    share: float
    sleep: bool = False


def engine_memory(run: Run, engine: Engine, c: SimpleNamespace) -> dict[str, float]:
    """Return the GB of each part of the engine on a GPU, and the numbers of tokens that its cache holds and needs."""
    volumes = BATCHED_TOKENS // CTChatConfig().num_image_tokens
    parts = {
        # A complete copy, with the adapter merged.
        "weights": BF16 * c.total,
        # One prefill: the activations of a layer, or the projector with as many volumes as fit.
        "activations": max(BATCHED_TOKENS * c.kept_per_token_lora, volumes * 4 * VOLUME[0] * VOLUME[1] * BF16),
        "graphs": GRAPHS,
    }
    cache = engine.share * GPU_BYTES - sum(parts.values())
    return {name: value / 1e9 for name, value in {**parts, "kv_cache": cache}.items()} | {
        "tokens": int(cache // kv_bytes()),
        "tokens_needed": run.at_once * (run.prompt + run.completion),
    }


def memory_with_vllm(run: Run, engine: Engine, c: SimpleNamespace) -> dict[str, float]:
    """Return the GB of a GPU during the update of the engine, generation and training, and the greatest of them."""
    parts, share = memory(run, c), engine.share * GPU_BYTES / 1e9
    always = parts["states"] + parts["deepspeed_buffers"] + parts["features"]
    # TRL merges the adapter in all weights at once; under ZeRO-3 it gathers them for this, whatever the recipe says.
    gathered = BF16 * trained(run, c)[0] * (1 - 1 / run.world) / 1e9 if run.stage == 3 else 0.0
    found = {
        "update": always + share + gathered,
        "generation": always + share,
        "training": parts["training"] + (0.0 if engine.sleep else share),
    }
    return {"engine": share, **found, "peak": max(found.values())}


def seconds_with_vllm(run: Run, c: SimpleNamespace, rewards: dict[str, float]) -> dict[str, Any]:
    """Return the seconds of each phase of a step as ``[fast, slow]``. The update of the engine is not included."""
    phases = {name: value for name, value in seconds(run, c, 0.0, rewards).items() if isinstance(value, list)}
    mean_cache = run.at_once * (run.prompt + run.completion / 2) * kv_bytes()
    tokens = run.accumulation / run.steps_per_generation * run.completion
    # The cache is paged and never copied, and CUDA graphs replay a token's kernels without the host.
    read = tokens * (BF16 * c.total + mean_cache)
    phases["decoding"] = [read / (HBM_RATE * use) for use in DECODE_USE[::-1]]
    # TRL computes the log-probabilities of the samples once more, for the correction by importance sampling.
    work = flops(replace(run, beta=1.0), c)["reference"]
    phases["old"] = [work / (PEAK_FLOPS * use) for use in COMPUTE_USE[::-1]]
    chosen = ("decoding", "prefill", "reference", "old", "training", "exchange")
    step = [sum(phases[name][end] for name in chosen) for end in (0, 1)]
    return {**{name: phases[name] for name in chosen}, "step": step}
