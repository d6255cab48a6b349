"""Count parameters, bytes and operations of a GRPO step of CT-CHAT 8B, for ct_chat_plan.py.

Parameters and the activations that autograd stores are counted on the real model with PEFT's adapters, on torch's meta
device. Memory and time are estimates. Every assumption is a constant below, with its source.
"""

import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs
from peft import get_peft_model
from transformers import LlamaConfig, RobertaConfig, RobertaModel
from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE
from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

from rrg_rewards.models import CTChatConfig, CTChatForConditionalGeneration
from rrg_rewards.models.ct_chat.processor import ADDED_TOKENS

# Llama-3.1-8B's published config.json.
LLAMA = {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
# Tokens and channels of a volume's features, as CT-CHAT's encoder publishes them.
VOLUME = (24**3, 512)
# One GPU: H100 SXM, NVIDIA's data sheet (bf16 dense; NVLink is 900 GB/s, half of it each way).
GPU_BYTES, HBM_RATE, PEAK_FLOPS, NVLINK_RATE = 80e9, 3.35e12, 989e12, 450e9
# 32-bit arithmetic outside the tensor cores, the same data sheet: RadBERT's weights are 32-bit.
PEAK_FLOPS_32 = 67e12
# DGX H100 data sheet: a 400 Gb/s adapter for each of 8 GPUs.
NETWORK_RATE, GPUS_PER_MACHINE = 50e9, 8
# Assumed: the CUDA context, NCCL's buffers and memory that the allocator cannot use.
MARGIN = 0.10
# Upper end: 43 % of the peak in Llama 3's pre-training (arXiv:2407.21783, table 4). Lower end: assumed, half of it.
COMPUTE_USE = (0.20, 0.43)
# Assumed share of the HBM's rate while decoding. The upper end is the data sheet's rate, without the host's cost.
DECODE_USE = (0.5, 1.0)
# NF4 with a 32-bit scale for each 64 weights (Dettmers et al., arXiv:2305.14314).
NF4_BYTES = 0.5 + 4 / 64
# Bytes per parameter in mixed precision: weight; gradient, 32-bit copy, 32-bit gradient at the step, Adam's moments.
BF16, SHARDED = 2, 2 + 4 + 4 + 8
RADBERT_TOKENS = 512


@dataclass(frozen=True)
class Run:
    """The settings that a plan depends on."""

    stage: int
    gpus: int
    machines: int
    full: bool
    batch: int
    accumulation: int
    steps_per_generation: int
    prompt: int
    completion: int
    beta: float
    gather: bool
    rank: int
    checkpointing: bool = True
    four_bit: bool = False
    offload: bool = False

    @property
    def world(self) -> int:
        """Number of GPUs of all machines."""
        return self.gpus * self.machines

    @property
    def at_once(self) -> int:
        """Number of completions in a generation batch of a GPU."""
        return self.batch * self.steps_per_generation


def build(layers: int, peft_config: Any = None, device: str = "meta", **text: int) -> Any:
    """Build CT-CHAT with Llama-3.1-8B's widths, by default in bf16 and without storage."""
    with torch.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = {**LLAMA, "vocab_size": LLAMA["vocab_size"] + len(ADDED_TOKENS), "num_hidden_layers": layers, **text}
        model = CTChatForConditionalGeneration(CTChatConfig(LlamaConfig(**sizes))).to(torch.bfloat16)
        return model if peft_config is None else get_peft_model(model, peft_config)


def numel(module: Any, trainable: bool = False, name: str = "") -> int:
    """Count the parameters of a module, optionally only trained ones or those with a name."""
    chosen = (p for n, p in module.named_parameters() if name in n and (p.requires_grad or not trainable))
    return sum(parameter.numel() for parameter in chosen)


def kept_per_token(peft_config: Any) -> float:
    """Return the bytes that autograd stores per layer and token, without the attention matrix (attention is fused)."""
    rows, kept = 2, {}
    model = build(1, peft_config).to(torch.bfloat16)
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    language_model = (model if peft_config is None else model.base_model.model).model.language_model

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage()._cdata not in weights:
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    states = torch.zeros(rows, 1, LLAMA["hidden_size"], dtype=torch.bfloat16, device="meta", requires_grad=True)
    places = language_model.rotary_emb(states, torch.zeros(rows, 1, dtype=torch.long, device="meta"))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        language_model.layers[0](states, position_embeddings=places)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / rows


def count(peft_config: Any) -> SimpleNamespace:
    """Count parameters of the real classes, and bytes that autograd keeps per layer and token."""
    model, added = build(LLAMA["num_hidden_layers"]), len(ADDED_TOKENS) * LLAMA["hidden_size"]
    adapted = build(LLAMA["num_hidden_layers"], peft_config)
    blocks = model.model.language_model.layers
    return SimpleNamespace(
        llama=numel(model) - numel(model.model.mm_projector) - 2 * added,
        total=numel(model),
        projector=numel(adapted, trainable=True, name="mm_projector"),
        lora=numel(adapted, trainable=True, name="lora_"),
        lora_rank=peft_config.r,
        lora_bytes_ddp=sum(p.numel() * p.element_size() for n, p in adapted.named_parameters() if "lora_" in n),
        matmul=numel(blocks) - numel(blocks, name="norm"),
        linear=sum(numel(m) for m in blocks.modules() if isinstance(m, torch.nn.Linear)),
        head=numel(model.lm_head),
        largest_module=max(sum(p.numel() for p in m.parameters(recurse=False)) for m in model.modules()),
        kept_per_token_lora=kept_per_token(peft_config),
        kept_per_token_full=kept_per_token(None),
    )


def trained(run: Run, c: SimpleNamespace) -> tuple[int, int]:
    """Count the parameters in memory and those that are trained."""
    lora = c.lora * run.rank // c.lora_rank
    # PEFT keeps the original projector in addition to the trained one.
    return (c.total, c.total) if run.full else (c.total + c.projector + lora, c.projector + lora)


def model_states(run: Run, c: SimpleNamespace) -> float:
    """Return the bytes of model states on a GPU: weights, gradients, optimizer state, reference model."""
    total, learned = trained(run, c)
    saved = (BF16 - NF4_BYTES) * c.linear if run.four_bit else 0.0
    reference = BF16 * c.total if run.full and run.beta else 0.0
    if run.stage == 0:
        # No 32-bit copy: Adam's moments have the parameters' type, 32 bits for PEFT's adapters. DDP's buckets
        # contain the gradients once more.
        own = BF16 * learned if run.full else BF16 * c.projector + c.lora_bytes_ddp * run.rank // c.lora_rank
        return BF16 * (total - learned) + own * (4 + (run.world > 1)) - saved + reference
    shard = 0 if run.offload else SHARDED * learned / run.world
    if run.stage == 2:
        return BF16 * total + shard - saved + reference
    return (BF16 * total + reference) / run.world + shard


def estimated_states(run: Run, c: SimpleNamespace) -> float:
    """Return the bytes of model states by DeepSpeed's estimators: all weights trained, no reference model."""
    hardware = {"num_gpus_per_node": run.gpus, "num_nodes": run.machines, "cpu_offload": run.offload}
    if run.stage == 2:
        return float(estimate_zero2_model_states_mem_needs(c.total, **hardware)[1])
    hardware["cpu_offload_params"] = False
    return float(estimate_zero3_model_states_mem_needs(c.total, c.largest_module, **hardware)[1])


def states(run: Run, c: SimpleNamespace) -> float:
    """Return the bytes of model states with the reference model, by DeepSpeed's estimators if they apply."""
    if not run.full or run.stage == 0:
        return model_states(run, c)
    reference = BF16 * c.total / (run.world if run.stage == 3 else 1) if run.beta else 0.0
    return estimated_states(run, c) + reference


def memory(run: Run, c: SimpleNamespace) -> dict[str, float]:
    """Return the GB per GPU of each part, of generation, of training, and the greater of the two."""
    hidden, layers, tokens = LLAMA["hidden_size"], LLAMA["num_hidden_layers"], run.batch * (run.prompt + run.completion)
    zero = DeepSpeedZeroConfig(stage=run.stage)
    kept = c.kept_per_token_full if run.full else c.kept_per_token_lora
    total, _ = trained(run, c)
    tile = min(run.batch * run.completion, TOKEN_CHUNK_SIZE) * _CHUNKED_LOGPROB_CHUNK_SIZE * BF16
    # Features, their LayerNorm, keys and values.
    pooling = 4 * VOLUME[0] * VOLUME[1] * BF16
    parts = {
        "states": states(run, c),
        "deepspeed_buffers": 0.0 if run.stage == 0 else BF16 * zero.reduce_bucket_size,
        "features": run.at_once * VOLUME[0] * VOLUME[1] * BF16,
        "kv_cache": run.at_once * (run.prompt + run.completion) * kv_bytes(),
        "prefill": max(run.at_once * run.prompt * kept, run.at_once * pooling),
        "gathered": BF16 * total * (1 - 1 / run.world) if run.stage == 3 and run.gather else 0.0,
        "checkpoints": layers * tokens * hidden * BF16 if run.checkpointing else 0.0,
        "layer": tokens * kept * (1 if run.checkpointing else layers),
        "head": tile + run.batch * run.completion * hidden * 4 + (c.head * 4 if run.full else 0),
        "projector": run.batch * pooling,
        "live_parameters": BF16 * min(zero.max_live_parameters, total) if run.stage == 3 else 0.0,
    }
    always = parts["states"] + parts["deepspeed_buffers"] + parts["features"]
    generation = always + parts["kv_cache"] + parts["prefill"] + parts["gathered"]
    training = always + sum(parts[name] for name in ("checkpoints", "layer", "head", "projector", "live_parameters"))
    parts |= {"generation": generation, "training": training, "peak": max(generation, training)}
    return {name: value / 1e9 for name, value in parts.items()}


def kv_bytes() -> int:
    """Return the bytes of the KV cache per token."""
    head_size = LLAMA["hidden_size"] // LLAMA["num_attention_heads"]
    return LLAMA["num_hidden_layers"] * 2 * LLAMA["num_key_value_heads"] * head_size * BF16


def flops(run: Run, c: SimpleNamespace) -> dict[str, float]:
    """Return the floating-point operations of each phase of a step on one GPU."""
    per_step, length = run.batch * run.accumulation, run.prompt + run.completion
    (volume, channels), queries, hidden = VOLUME, CTChatConfig().num_image_tokens, LLAMA["hidden_size"]
    pooling = 4 * volume * channels * (channels + queries) + 2 * queries * hidden * (channels + hidden)
    lora = 0 if run.full else 2 * length * c.lora * run.rank / c.lora_rank
    base, head = 2 * length * c.matmul, 2 * run.completion * c.head
    # The whole attention matrix: with padding in the batch a kernel cannot skip the masked half.
    rest = 4 * LLAMA["num_hidden_layers"] * hidden * length**2 + pooling
    # Forward, recomputed once for checkpoints, and backward: once for inputs and once for trained weights.
    again = 1 if run.checkpointing else 0
    train = base * (2 + again + run.full) + head * (3 + run.full) + (lora + rest) * (3 + again)
    return {
        "prefill": per_step * ((base + lora) * run.prompt / length + pooling),
        "reference": per_step * (base + head + rest) if run.beta else 0.0,
        "training": per_step * train,
    }


def exchange_seconds(run: Run, c: SimpleNamespace) -> float:
    """Return the seconds of a step's communication at data-sheet rates, without overlap with computation."""
    total, learned = trained(run, c)
    sent = 2 * BF16 * learned * run.accumulation
    if run.stage == 3:
        # Weights for forward, recomputing and backward of each part, for the reference, and for generation.
        generation = 1 if run.gather else run.completion
        gathers = run.accumulation * (2 + run.checkpointing + bool(run.beta)) + generation
        sent += BF16 * total * gathers
    within = sent * (1 - 1 / run.world) / NVLINK_RATE
    between = sent * (1 - 1 / run.machines) / (NETWORK_RATE * GPUS_PER_MACHINE)
    return max(within, between)


def seconds(run: Run, c: SimpleNamespace, host: float, rewards: dict[str, float]) -> dict[str, Any]:
    """Return the seconds of each phase of a step as ``[fast, slow]``, and the reward's share of the step."""
    rounds = run.accumulation / run.steps_per_generation
    mean_cache = run.at_once * (run.prompt + run.completion / 2) * kv_bytes()
    tokens, weights = rounds * run.completion, BF16 * (trained(run, c)[0] - c.projector)
    slow, fast = (HBM_RATE * use for use in DECODE_USE)
    # Slow: the cache grows by concatenation and is copied, or the GPU waits for the host, which launches each kernel.
    decoding = [tokens * (weights + mean_cache) / fast, tokens * max((weights + 3 * mean_cache) / slow, host)]
    phases = {
        "decoding": decoding,
        **{name: [work / (PEAK_FLOPS * use) for use in COMPUTE_USE[::-1]] for name, work in flops(run, c).items()},
        "exchange": [0.0, exchange_seconds(run, c)],
    }
    reward = run.batch * run.accumulation / rewards["rules_per_second"]
    step = [sum(phase[end] for phase in phases.values()) + reward for end in (0, 1)]
    return {**phases, "step": step, "reward": reward, "reward_share": [reward / step[1], reward / step[0]]}


def radbert(completions: int, rates: dict[str, float]) -> dict[str, Any]:
    """Return a RadBERT-sized labeler's seconds on one core (measured) and on the GPU (estimated), and its GB."""
    with torch.device("meta"):
        model = RobertaModel(RobertaConfig())
    work = 2 * numel(model.encoder) * RADBERT_TOKENS * completions
    on_gpu = [work / (PEAK_FLOPS_32 * use) for use in COMPUTE_USE[::-1]]
    on_core = completions / rates["radbert_per_second"]
    return {"one_cpu_core": on_core, "gpu": on_gpu, "gb": 4 * numel(model) / 1e9}
