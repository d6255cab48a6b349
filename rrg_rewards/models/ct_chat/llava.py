"""Loading of checkpoints of CT-CHAT's published code, a fork of LLaVA; each key must fit the model."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.initialization import no_init_weights

from rrg_rewards.models.ct_chat.config import CTChatConfig
from rrg_rewards.models.ct_chat.processor import ADDED_TOKENS, appended_tokens
from rrg_rewards.models.ct_chat.projector import CTChatProjector
from rrg_rewards.models.state_dicts import check_state_dict, read_state_dict, read_state_dicts
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

logger = logging.getLogger(__name__)

_ADAPTER = ("adapter_model.safetensors", "adapter_model.bin")
_PROJECTOR = ("non_lora_trainables.bin", "mm_projector.bin")
_FULL = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json")
# Prefixes that the wrappers of training add to the names of weights.
_WRAPPERS = re.compile(r"^(?:base_model\.|model\.)*")
# Keys that LLaVA adds to the configuration of a language model.
_NOT_OF_THE_LANGUAGE_MODEL = re.compile(
    r"(model_type|architectures|auto_map|transformers_version|(un)?freeze_mm_.*|(tune_|use_)?mm_.*|image_.*|tokenizer_.*)$"
)
_EMBEDDINGS, _HEAD = "embed_tokens.weight", "lm_head.weight"
# Of a saved tokenizer, at least one exists.
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
_LLAMA3_HEADER = "<|start_header_id|>"
# Seed of random rows, so that a conversion can be repeated.
_SEED = 0

TASK_TOKEN_ROWS = ("mean", "random")
"""Values of the embeddings of the task tokens, if a checkpoint stores none."""


def load_llava_checkpoint(
    model_class: Any,
    checkpoint: str | Path,
    base_model: str | Path | None,
    pooler_heads: int,
    dtype: str | torch.dtype,
    revision: str | None,
    task_tokens: str,
) -> Any:
    """Load a published checkpoint; see ``CTChatForConditionalGeneration.from_llava_checkpoint``."""
    if task_tokens not in TASK_TOKEN_ROWS:
        raise ValueError(unknown_name_message("value of task_tokens", task_tokens, TASK_TOKEN_ROWS))
    folder = Path(checkpoint)
    if not folder.is_dir():
        raise FileNotFoundError(f"{checkpoint}: no such folder")
    if _kind_of(folder) == "ct_chat":
        raise ValueError(f"{folder} is converted already")
    if base_model is not None:
        check_model_source(base_model)
        if _kind_of(Path(base_model)) == "ct_chat":
            raise ValueError(f"{base_model} is a CT-CHAT model; pass the language model that it was trained from")
    adapter, projector, full = (_only_file(folder, names) for names in (_ADAPTER, _PROJECTOR, _FULL))
    if adapter is None and projector is None and full is None:
        known = ", ".join(_ADAPTER + _PROJECTOR + _FULL)
        raise FileNotFoundError(f"{folder} contains no weights; expected one of {known}")
    partial = adapter or projector
    if full is not None and partial is not None:
        raise ValueError(f"{folder} contains {full.name} and {partial.name}; move the unneeded file elsewhere")
    if isinstance(dtype, str) and dtype != "auto":
        dtype = getattr(torch, dtype)
    tokenizer = _tokenizer(folder if full is not None and base_model is None else base_model, revision)
    if full is not None:
        weights = _unwrapped(read_state_dicts(full), full)
        base = _empty_base(folder, base_model, weights, dtype, revision)
        _fill(base, weights, full)
    else:
        if base_model is None:
            raise ValueError(f"{folder} contains no whole language model; pass base_model, which it was trained from")
        base = AutoModelForCausalLM.from_pretrained(base_model, dtype=dtype, revision=revision, trust_remote_code=False)
        _append_tokens(base, ADDED_TOKENS if tokenizer is None else appended_tokens(tokenizer), task_tokens)
        weights = _trained_weights(base, folder, adapter, projector)
        _overwrite(base, weights, projector or folder)
    projected = {key: tensor for key, tensor in weights.items() if key.startswith("mm_projector.")}
    config = _config_of(base, projected, pooler_heads, projector or full or folder)
    config.tokenizer_model_max_length = _saved_config(folder).get("tokenizer_model_max_length")
    config.uses_system_prompt = tokenizer is not None and _LLAMA3_HEADER in tokenizer.get_vocab()
    return _assemble(model_class, config, base, projected, projector or full or folder)


def _trained_weights(base: Any, folder: Path, adapter: Path | None, projector: Path | None) -> dict[str, Tensor]:
    """Merge an adapter into the base model, and return the other weights of the checkpoint by name."""
    weights = {} if projector is None else _unwrapped(read_state_dict(projector), projector)
    if adapter is None:
        return weights
    others = _merge_adapter(base, folder, adapter)
    if twice := sorted(others.keys() & weights.keys()):
        raise ValueError(f"{folder}: both {adapter.name} and {projector} contain {', '.join(twice)}")
    return weights | others


def _saved_config(folder: Path) -> dict[str, Any]:
    """Return the ``config.json`` of a folder; empty if there is none."""
    path = folder / "config.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _kind_of(folder: Path) -> Any:
    return _saved_config(folder).get("model_type")


def _tokenizer(source: str | Path | None, revision: str | None) -> Any:
    """Return the tokenizer of a base model, or ``None`` if its folder contains none."""
    if source is None or (Path(source).is_dir() and not any((Path(source) / name).is_file() for name in _TOKENIZER)):
        return None
    return AutoTokenizer.from_pretrained(source, revision=revision, trust_remote_code=False)


def _only_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) > 1:
        raise ValueError(f"{folder} contains {found[1].name} and {found[0].name}; move the unneeded file elsewhere")
    return found[0] if found else None


def _unwrapped(state: Mapping[str, Tensor], source: Path) -> dict[str, Tensor]:
    """Return weights by their names without the prefixes of wrappers."""
    weights: dict[str, Tensor] = {}
    for key, tensor in state.items():
        name = _WRAPPERS.sub("", key)
        if name in weights:
            raise ValueError(f"{source}: contains {name} more than once, the second time as {key}")
        weights[name] = tensor
    return weights


def _language_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights outside the projector, named as in a causal language model."""
    return {
        key if key == _HEAD else f"model.{key}": tensor
        for key, tensor in weights.items()
        if not key.startswith("mm_projector.")
    }


def _append_tokens(base: Any, tokens: Sequence[str], task_tokens: str) -> None:
    """Append a row for each token: the mean of the existing rows, or random numbers for the task tokens."""
    rows = base.config.vocab_size
    base.resize_token_embeddings(rows + len(tokens), mean_resizing=False)
    is_random = task_tokens == "random"
    draw = torch.Generator().manual_seed(_SEED)
    tables = [base.get_input_embeddings().weight]
    if base.get_output_embeddings().weight is not tables[0]:
        tables.append(base.get_output_embeddings().weight)
    with torch.no_grad():
        for table in tables:
            table[rows:] = table[:rows].float().mean(0).to(table.dtype)
            if is_random:
                new = table[rows + len(tokens) - len(ADDED_TOKENS[1:]) :]
                new.copy_(torch.randn(new.shape, generator=draw) * base.config.initializer_range)


def _overwrite(base: Any, weights: Mapping[str, Tensor], source: Path) -> None:
    """Replace weights of the base model by those of the checkpoint outside the projector, if any."""
    language = _language_weights(weights)
    if not {f"model.{_EMBEDDINGS}", _HEAD} & language.keys():
        logger.info("%s stores no embeddings of the task tokens", source)
    expected = base.state_dict()
    check_state_dict(language, {key: expected[key] for key in language if key in expected}, source)
    base.load_state_dict(language, strict=False)


def _merge_adapter(base: Any, folder: Path, file: Path) -> dict[str, Tensor]:
    """Merge a LoRA adapter into the base model and return the other weights of its file, by name."""
    peft = require("peft", extra="models")
    state = read_state_dict(file)
    rest = {key: tensor for key, tensor in state.items() if ".lora_" not in key}
    lora = {key: tensor for key, tensor in state.items() if key not in rest}
    config = peft.PeftConfig.from_pretrained(str(folder))
    # The adapter records the path that the base model had during training.
    config.base_model_name_or_path = base.config._name_or_path
    adapted = peft.get_peft_model(base, config)
    expected = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    check_state_dict(lora, {key: tensor for key, tensor in expected.items() if ".lora_" in key}, file)
    peft.set_peft_model_state_dict(adapted, lora)
    adapted.merge_and_unload(safe_merge=True)
    return _unwrapped(rest, file)


def _empty_base(
    folder: Path, base_model: str | Path | None, weights: Mapping[str, Tensor], dtype: str | torch.dtype, revision: Any
) -> Any:
    """Return a language model with the architecture of the checkpoint and uninitialised weights."""
    config = _text_config(folder) or (
        base_model and AutoConfig.from_pretrained(base_model, revision=revision, trust_remote_code=False)
    )
    if not config:
        raise FileNotFoundError(f"{folder} contains no config.json; copy it there, or pass base_model")
    if _EMBEDDINGS in weights:
        config.vocab_size = len(weights[_EMBEDDINGS])
    own = next((tensor.dtype for tensor in weights.values() if tensor.is_floating_point()), torch.float32)
    with no_init_weights():
        base = AutoModelForCausalLM.from_config(
            config, dtype=own if dtype == "auto" else dtype, trust_remote_code=False
        )
    if (folder / "generation_config.json").is_file():
        # The generation configuration defines the tokens that end an answer.
        base.generation_config = GenerationConfig.from_pretrained(folder)
    return base


def _text_config(folder: Path) -> Any:
    """Return the configuration of the language model in ``config.json``, whose model type may be LLaVA's."""
    content = _saved_config(folder)
    if not content:
        return None
    model_type = content.get("model_type", "llama").removeprefix("llava_")
    model_type = "llama" if model_type == "llava" else model_type
    return AutoConfig.for_model(
        model_type, **{key: value for key, value in content.items() if not _NOT_OF_THE_LANGUAGE_MODEL.match(key)}
    )


def _fill(base: Any, weights: Mapping[str, Tensor], source: Path) -> None:
    language = _language_weights(weights)
    expected = base.state_dict()
    if base.config.tie_word_embeddings and _HEAD not in language:
        expected.pop(_HEAD)
    check_state_dict(language, expected, source)
    # Assign the memory-mapped tensors, so that an 8B model is in memory only once.
    base.load_state_dict({key: value.to(base.dtype) for key, value in language.items()}, strict=False, assign=True)
    base.tie_weights()


def _assemble(model_class: Any, config: CTChatConfig, base: Any, weights: dict[str, Tensor], source: Path) -> Any:
    projector: nn.Module = CTChatProjector(config).to(base.dtype)
    check_state_dict(weights, {f"mm_projector.{key}": tensor for key, tensor in projector.state_dict().items()}, source)
    projector.load_state_dict({key.removeprefix("mm_projector."): tensor for key, tensor in weights.items()})
    # Build the model on the meta device and insert the base model's modules, so that an 8B model is in memory only
    # once.
    with torch.device("meta"), no_init_weights():
        model = model_class(config)
    model.model.mm_projector = projector
    model.model.language_model = base.base_model
    model.lm_head = base.get_output_embeddings()
    model.generation_config = base.generation_config
    return model.eval()


def _config_of(base: Any, weights: Mapping[str, Tensor], pooler_heads: int, source: Path) -> CTChatConfig:
    sizing = {"mm_projector.attn_pool.query": 2, "mm_projector.attn_pool.ln_k.weight": 1}
    for key, axes in sizing.items():
        if key not in weights:
            raise ValueError(f"{source} does not fit the model (missing: {key})")
        if weights[key].ndim != axes:
            raise ValueError(f"{source} does not fit the model (misshapen: {key}, must have {axes} axes)")
    query, norm = (weights[key] for key in sizing)
    return CTChatConfig(
        text_config=base.config,
        num_image_tokens=len(query),
        feature_size=len(norm),
        pooler_size=query.shape[1],
        pooler_heads=pooler_heads,
        dtype=base.dtype,
    )
