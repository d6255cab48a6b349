"""Measure the rates of a device, and the phases of a GRPO step of CT-CHAT on it, for gpu.py."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from ct_chat_cost import LLAMA, VOLUME, Run, build
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from rrg_rewards.functional.log_probs import token_log_probs

KERNELS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
# Tokens of which the head is computed at once.
TILE = 1024


@dataclass(frozen=True)
class Size:
    """What is measured: the published sizes, or small ones that a CPU runs in seconds."""

    layers: int
    text: dict[str, int]
    volume_tokens: int
    rank: int
    matrix: int
    copied: int
    repeats: int

    @classmethod
    def published(cls, layers: int, rank: int) -> "Size":
        """Llama-3.1-8B's widths and the published volumes, with a number of layers."""
        return cls(layers, {}, VOLUME[0], rank, matrix=8192, copied=2**32, repeats=10)

    @classmethod
    def small(cls) -> "Size":
        """Two narrow layers."""
        text = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
        return cls(2, {**text, "vocab_size": 64}, 27, 4, matrix=256, copied=2**20, repeats=2)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def progress(text: str) -> None:
    """Print what is measured next, because each part takes seconds to minutes."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def timed(device: torch.device, run: Callable[[], Any], repeats: int = 1) -> float:
    """Return the mean seconds of a run, until the device has finished."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    synchronize(device)
    return (time.perf_counter() - start) / repeats


def peak(device: torch.device, run: Callable[[], Any]) -> tuple[float, float | None]:
    """Return the seconds of a run and the most GB that were allocated meanwhile (``None`` on a CPU)."""
    if device.type != "cuda":
        return timed(device, run), None
    torch.cuda.reset_peak_memory_stats(device)
    seconds = timed(device, run)
    return seconds, torch.cuda.max_memory_allocated(device) / 1e9


def rates(device: torch.device, size: Size) -> dict[str, float]:
    """Return the bf16 matrix rate and the rate of a copy, bytes read and written."""
    progress("rates and attention")
    left, right = (torch.randn(size.matrix, size.matrix, device=device, dtype=torch.bfloat16) for _ in range(2))
    source = torch.zeros(size.copied, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    for run in (lambda: left @ right, lambda: target.copy_(source)):
        run()
    return {
        "bf16_tflops": 2 * size.matrix**3 / timed(device, lambda: left @ right, size.repeats) / 1e12,
        "copy_gb_per_second": 2 * size.copied / timed(device, lambda: target.copy_(source), size.repeats) / 1e9,
    }


def attention(device: torch.device, size: Size, run: Run) -> dict[str, dict[str, Any]]:
    """Return each kernel's seconds of causal attention, forward and backward, or why it does not run."""
    text = {**LLAMA, **size.text}
    heads = text["num_attention_heads"]
    shape = (run.batch, heads, run.prompt + run.completion, text["hidden_size"] // heads)
    query, key, value = (torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

    def step() -> None:
        scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()

    found: dict[str, dict[str, Any]] = {}
    for kernel in KERNELS:
        try:
            with sdpa_kernel(kernel):
                step()
                found[kernel.name.lower()] = {"seconds": timed(device, step, size.repeats)}
        except RuntimeError as error:
            found[kernel.name.lower()] = {"not_run": str(error).splitlines()[0]}
    return found


def phases(device: torch.device, size: Size, run: Run, adapter: Any) -> dict[str, tuple[float, float | None]]:
    """Return the seconds and GB of generation, reference and training of a step on one device.

    The model has random weights. Completions have the maximum length, as in the plan.
    """
    progress(f"making a model of {size.layers} layers")
    torch.manual_seed(0)
    model = build(size.layers, adapter, device=str(device), **size.text)
    batch = make_batch(model, size, run, device)
    generation = {name: value.repeat_interleave(run.steps_per_generation, 0) for name, value in batch.items()}
    lengths = {"max_new_tokens": run.completion, "min_new_tokens": run.completion}
    no_end = {"pad_token_id": 0, "eos_token_id": None}
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=1e-5)

    def generate() -> None:
        with torch.no_grad():
            for _ in range(run.accumulation // run.steps_per_generation):
                model.generate(**generation, **lengths, **no_end, do_sample=True)

    completion = torch.randint(_words(model), (run.batch, run.completion), device=device)
    tokens = torch.cat([batch["input_ids"], completion], 1)
    whole = {**batch, "input_ids": tokens, "attention_mask": torch.ones_like(tokens)}

    def reference() -> None:
        with torch.no_grad(), model.disable_adapter():
            for _ in range(run.accumulation):
                _log_probs(model, whole, run.completion)

    def train() -> None:
        for _ in range(run.accumulation):
            _log_probs(model, whole, run.completion).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    model.eval()
    _short(model, batch, no_end)
    progress(f"generating {run.batch * run.accumulation} completions of {run.completion} tokens")
    found = {"generation": peak(device, generate)}
    progress("reference")
    found["reference"] = peak(device, reference)
    progress("training")
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    # The optimizer's state is made at the first step.
    train()
    return {**found, "training": peak(device, train)}


def _words(model: Any) -> int:
    """Return the number of tokens that are not soft tokens."""
    return int(model.config.image_token_id)


def make_batch(model: Any, size: Size, run: Run, device: torch.device) -> dict[str, Tensor]:
    """Return prompts with a volume each."""
    config = model.config
    tokens = torch.randint(_words(model), (run.batch, run.prompt), device=device)
    tokens[:, 4 : 4 + config.num_image_tokens] = config.image_token_id
    shape = (run.batch, size.volume_tokens, config.feature_size)
    volumes = torch.randn(shape, device=device, dtype=torch.bfloat16)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "pixel_values": volumes}


def _short(model: Any, batch: dict[str, Tensor], no_end: dict[str, Any]) -> None:
    """Generate two tokens, so that kernels are loaded before anything is measured."""
    with torch.no_grad():
        model.generate(**batch, max_new_tokens=2, **no_end, do_sample=True)


def _log_probs(model: Any, inputs: dict[str, Tensor], completion: int) -> Tensor:
    """Return log-probabilities of the completions; the head is computed in tiles, as TRL does."""
    base = model.get_base_model()
    rows = max(TILE // completion, 1)
    with torch.autocast(inputs["input_ids"].device.type, torch.bfloat16):
        hidden = base.model(**inputs).last_hidden_state[:, -completion - 1 : -1]
        tokens = inputs["input_ids"][:, -completion:]

        def tile(states: Tensor, chosen: Tensor) -> Tensor:
            return token_log_probs(base.lm_head(states), chosen)

        parts = zip(hidden.split(rows), tokens.split(rows), strict=True)
        return torch.cat([checkpoint(tile, *part, use_reentrant=False) for part in parts])
