"""CT-CHAT in the layout that its own code, a fork of LLaVA, saves: read completely, or refused by name."""

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.initialization import no_init_weights

from rrg_rewards.models.ct_chat import CTChatConfig, CTChatProjector
from rrg_rewards.models.ct_chat_processor import ADDED_TOKENS
from rrg_rewards.models.state_dicts import check_state_dict, read_state_dict, read_state_dicts
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require

__all__ = ["load_llava_checkpoint"]

logger = logging.getLogger(__name__)

_ADAPTER = ("adapter_model.safetensors", "adapter_model.bin")
_PROJECTOR = ("non_lora_trainables.bin", "mm_projector.bin")
_FULL = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json")
# Training wraps the model once or more, and saves the names of the wrappers with it.
_WRAPPERS = re.compile(r"^(?:base_model\.|model\.)*")
# What LLaVA adds to a language model's configuration. All else is kept: what is not known to be unneeded may be needed.
_NOT_OF_THE_LANGUAGE_MODEL = re.compile(
    r"(model_type|architectures|auto_map|transformers_version|(un)?freeze_mm_.*|(tune_|use_)?mm_.*|image_.*|tokenizer_.*)$"
)
_EMBEDDINGS, _HEAD = "embed_tokens.weight", "lm_head.weight"


def load_llava_checkpoint(
    model_class: Any,
    checkpoint: str | Path,
    base_model: str | Path | None,
    pooler_heads: int,
    dtype: str | torch.dtype,
    revision: str | None,
) -> Any:
    """Load the published layout; see ``CTChatForConditionalGeneration.from_llava_checkpoint``."""
    folder = Path(checkpoint)
    if not folder.is_dir():
        raise FileNotFoundError(f"{checkpoint}: no such folder")
    if _kind_of(folder) == "ct_chat":
        raise ValueError(f"{folder} is converted already")
    if base_model is not None:
        check_model_source(base_model)
        if _kind_of(Path(base_model)) == "ct_chat":
            raise ValueError(f"{base_model} is a CT-CHAT; the base is the language model that it was trained from")
    adapter, projector, full = (_only_file(folder, names) for names in (_ADAPTER, _PROJECTOR, _FULL))
    if adapter is None and projector is None and full is None:
        known = ", ".join(_ADAPTER + _PROJECTOR + _FULL)
        raise FileNotFoundError(f"{folder} holds no weights; expected one of {known}")
    partial = adapter or projector
    if full is not None and partial is not None:
        raise ValueError(f"{folder} holds {full.name} beside {partial.name}; move aside what is not meant")
    if isinstance(dtype, str) and dtype != "auto":
        dtype = getattr(torch, dtype)
    if full is not None:
        weights = _by_place(read_state_dicts(full), full)
        base = _empty_base(folder, base_model, weights, dtype, revision)
        _fill(base, weights, full)
    else:
        if base_model is None:
            raise ValueError(f"{folder} holds no whole language model; name the one it was trained from (base_model)")
        base = AutoModelForCausalLM.from_pretrained(base_model, dtype=dtype, revision=revision)
        weights = {} if projector is None else _by_place(read_state_dict(projector), projector)
        _append_tokens(base)
        if adapter is not None:
            beside = _merge_adapter(base, folder, adapter)
            if twice := sorted(beside.keys() & weights.keys()):
                raise ValueError(f"{folder}: both {adapter.name} and {projector} hold {', '.join(twice)}")
            weights |= beside
        _overwrite(base, weights, projector or folder)
    return _assemble(model_class, base, _projector_weights(weights), pooler_heads, projector or full or folder)


def _kind_of(folder: Path) -> Any:
    """The model type that a folder's ``config.json`` names, if it has one."""
    path = folder / "config.json"
    return json.loads(path.read_text(encoding="utf-8")).get("model_type") if path.is_file() else None


def _only_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) > 1:
        raise ValueError(f"{folder} holds {found[1].name} beside {found[0].name}; move aside what is not meant")
    return found[0] if found else None


def _by_place(state: Mapping[str, Tensor], source: Path) -> dict[str, Tensor]:
    """Weights by their names without the wrappers'."""
    weights: dict[str, Tensor] = {}
    for key, tensor in state.items():
        place = _WRAPPERS.sub("", key)
        if place in weights:
            raise ValueError(f"{source}: holds {place} more than once, the second time as {key}")
        weights[place] = tensor
    return weights


def _projector_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in weights.items() if key.startswith("mm_projector.")}


def _language_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights outside the projector, named as in a causal language model."""
    return {
        key if key == _HEAD else f"model.{key}": tensor
        for key, tensor in weights.items()
        if not key.startswith("mm_projector.")
    }


def _append_tokens(base: Any) -> None:
    """Rows for the added tokens, each the mean of those there were, as LLaVA's own code fills them."""
    rows = base.config.vocab_size
    base.resize_token_embeddings(rows + len(ADDED_TOKENS), mean_resizing=False)
    with torch.no_grad():
        for table in {base.get_input_embeddings().weight, base.get_output_embeddings().weight}:
            table[rows:] = table[:rows].float().mean(0).to(table.dtype)


def _overwrite(base: Any, weights: Mapping[str, Tensor], source: Path) -> None:
    """Weights outside the projector, which the checkpoint may or may not hold, in place of the base's."""
    language = _language_weights(weights)
    if not {f"model.{_EMBEDDINGS}", _HEAD} & language.keys():
        logger.info("%s stores no embeddings; those of the added tokens are the mean of the base's", source)
    expected = base.state_dict()
    check_state_dict(language, {key: expected[key] for key in language if key in expected}, source)
    base.load_state_dict(language, strict=False)


def _merge_adapter(base: Any, folder: Path, file: Path) -> dict[str, Tensor]:
    """Merge a LoRA adapter into the base model; what else the adapter's file holds is returned, by place."""
    peft = require("peft", extra="models")
    state = read_state_dict(file)
    rest = {key: tensor for key, tensor in state.items() if ".lora_" not in key}
    lora = {key: tensor for key, tensor in state.items() if key not in rest}
    config = peft.PeftConfig.from_pretrained(str(folder))
    # Where the base model lay on the machine that trained the adapter says nothing here.
    config.base_model_name_or_path = base.config._name_or_path
    adapted = peft.get_peft_model(base, config)
    expected = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    check_state_dict(lora, {key: tensor for key, tensor in expected.items() if ".lora_" in key}, file)
    peft.set_peft_model_state_dict(adapted, lora)
    adapted.merge_and_unload(safe_merge=True)
    return _by_place(rest, file)


def _empty_base(
    folder: Path, base_model: str | Path | None, weights: Mapping[str, Tensor], dtype: str | torch.dtype, revision: Any
) -> Any:
    """A language model of the checkpoint's shape, whose weights are yet to be read."""
    config = _text_config(folder) or (base_model and AutoConfig.from_pretrained(base_model, revision=revision))
    if not config:
        raise FileNotFoundError(f"{folder} holds no config.json; copy it there, or name the base_model")
    if _EMBEDDINGS in weights:
        config.vocab_size = len(weights[_EMBEDDINGS])
    own = next((tensor.dtype for tensor in weights.values() if tensor.is_floating_point()), torch.float32)
    with no_init_weights():
        base = AutoModelForCausalLM.from_config(config, dtype=own if dtype == "auto" else dtype)
    if (folder / "generation_config.json").is_file():
        # Which tokens end an answer is said there, if anywhere.
        base.generation_config = GenerationConfig.from_pretrained(folder)
    return base


def _text_config(folder: Path) -> Any:
    """The language model's configuration out of ``config.json``, whose model type may be LLaVA's."""
    if not (folder / "config.json").is_file():
        return None
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
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
    # The tensors as they were read, still mapped: an 8B model is held once.
    base.load_state_dict({key: value.to(base.dtype) for key, value in language.items()}, strict=False, assign=True)
    base.tie_weights()


def _assemble(model_class: Any, base: Any, weights: dict[str, Tensor], pooler_heads: int, source: Path) -> Any:
    config = _config_of(base, weights, pooler_heads, source)
    projector: nn.Module = CTChatProjector(config).to(base.dtype)
    check_state_dict(weights, {f"mm_projector.{key}": tensor for key, tensor in projector.state_dict().items()}, source)
    projector.load_state_dict({key.removeprefix("mm_projector."): tensor for key, tensor in weights.items()})
    # Without memory: the base model's modules take the places, so that an 8B model is held once.
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
