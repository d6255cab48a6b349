"""Measure the ways to decode with CT-CHAT on a device, beside the bound of its memory, for gpu.py."""

import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch
from ct_chat_cost import LLAMA, Run, build
from gpu_measures import Size, make_batch, progress, synchronize

from rrg_rewards.training import CausalLMGenerator
from rrg_rewards.training.policy.generators import repeat_rows
from rrg_rewards.training.policy.graphs import GraphDecoder

# No token has this id, so that all completions have the maximum length.
NO_TOKEN = -1


def decode(
    device: torch.device, size: Size, run: Run, adapter: Any, rate: float, tokens: int, seconds: float
) -> dict[str, Any]:
    """Return milliseconds a token of each way, and of reading weights, keys and values at a rate in GB/s.

    A way is begun while less than ``seconds`` have passed. ``start`` are the seconds of the first rollout.
    """
    deadline = time.monotonic() + seconds
    torch.manual_seed(0)
    progress(f"making a model of {size.layers} layers")
    model = build(size.layers, adapter, device=str(device), **size.text).eval()
    rows = run.batch * run.accumulation
    # As in a rollout: groups of 8, or one.
    group = min(8, rows)
    batch = repeat_rows(make_batch(model, size, replace(run, batch=rows // group), device), group)
    ways: dict[str, Callable[[], Callable[[], Any]]] = {
        "graph": lambda: sampler(model, batch, tokens, "graph"),
        "graph, merged adapters": lambda: sampler(model, batch, tokens, "graph", merged=True),
        "eager": lambda: sampler(model, batch, tokens, "eager"),
        "eager, merged adapters": lambda: sampler(model, batch, tokens, "eager", merged=True),
        "generate, static cache": lambda: static(model, batch, tokens),
    }
    if find_spec("vllm"):
        ways["vLLM, text only, no adapters"] = lambda: vllm(size, run.prompt, rows, tokens)
    if device.type == "cuda":
        # Last, because compilation may take the longest.
        ways["graph by torch.compile"] = lambda: sampler(model, batch, tokens, "graph", compiles=True)
    found = {}
    for name, make in ways.items():
        progress(name)
        left = deadline - time.monotonic()
        found[name] = measured(device, make, tokens) if left > 0 else {"not_run": f"{seconds:.0f} s are over"}
        # At once, in case that the script is ended before it writes its file.
        progress(f"{name}: {found[name]}")
    weights = sum(weight.nbytes for weight in model.parameters())
    text = model.config.get_text_config(decoder=True)
    width = 2 * text.num_hidden_layers * text.num_key_value_heads * text.head_dim * next(model.parameters()).itemsize
    read = weights + rows * (run.prompt + tokens / 2) * width
    return {"rows": rows, "prompt": run.prompt, "tokens": tokens, "bound_ms": read / rate / 1e6, "ways": found}


def measured(device: torch.device, make: Callable[[], Callable[[], Any]], tokens: int) -> dict[str, Any]:
    """Return the seconds of the first rollout, and the milliseconds a token and the GB of the second one."""
    try:
        generate, seconds = make(), []
        for _ in range(2):
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            synchronize(device)
            begun = time.perf_counter(), time.process_time()
            generate()
            synchronize(device)
            seconds.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    except Exception as error:  # One way must not end the others.
        return {"not_run": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    (start, _), (wall, processor) = seconds
    gigabytes = torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None
    per_token = {"ms_per_token": 1e3 * wall / tokens, "processor_ms_per_token": 1e3 * processor / tokens}
    return {"start": start, **per_token, "gb": gigabytes}


def sampler(
    model: Any, batch: Any, tokens: int, decoding: Any, *, merged: bool = False, compiles: bool | None = None
) -> Callable[[], Any]:
    """Return a rollout with a generator of the package."""
    tokenizer = SimpleNamespace(pad_token_id=0, eos_token_id=NO_TOKEN)
    generator = CausalLMGenerator(
        model, tokenizer, max_new_tokens=tokens, merge_adapters=merged, decoding=decoding
    ).eval()
    generator.end_token_ids = [NO_TOKEN]
    if compiles is not None:
        generator._decoder = GraphDecoder(model, compiles)
        generator._decided_on = generator._decoder.device
    return lambda: generator.sample(batch)


def static(model: Any, batch: Any, tokens: int) -> Callable[[], Any]:
    """Return a rollout with transformers' own generation and static cache, which it compiles on a GPU."""
    inputs = {name: batch[name] for name in batch}
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": True, "top_k": 0}

    def generate() -> Any:
        with torch.no_grad():
            return model.generate(**inputs, **options, cache_implementation="static", pad_token_id=0, eos_token_id=None)

    return generate


def vllm(size: Size, prompt: int, rows: int, tokens: int) -> Callable[[], Any]:
    """Return a rollout of the language model alone with vLLM, with random weights."""
    from transformers import LlamaConfig
    from vllm import LLM, SamplingParams

    config = LlamaConfig(**{**LLAMA, **size.text, "num_hidden_layers": size.layers}, architectures=["LlamaForCausalLM"])
    with TemporaryDirectory() as folder:
        config.save_pretrained(Path(folder))
        engine = LLM(
            folder, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", gpu_memory_utilization=0.6,
            max_model_len=prompt + tokens + 1,
        )  # fmt: skip
    sampling = SamplingParams(temperature=1.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": [3 + row] * prompt} for row in range(rows)]
    return lambda: engine.generate(prompts, sampling, use_tqdm=False)
