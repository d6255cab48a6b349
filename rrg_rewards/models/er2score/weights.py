"""Loading of ER²Score's weights: backbones, LoRA adapters, heads, and the folders that contain them."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rrg_rewards.models.state_dicts import check_state_dict, read_state_dict
from rrg_rewards.schemas import ScoringSystem
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require

# First, so that the error for a missing package names the extra that installs it.
require("transformers", extra="models")

from transformers import AutoConfig, AutoModel, BitsAndBytesConfig  # noqa: E402
from transformers.models.auto.modeling_auto import (  # noqa: E402
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

HEAD = "head.safetensors"
ADAPTER = "adapter"
BACKBONE = "backbone"
_ADAPTER_WEIGHTS = "adapter_model.safetensors"
# Patterns of the files of a saved model, including its subfolders. None of the files is pickled.
_FILES = ["*.json", "*.txt", "*.jinja", "*.model", "*.safetensors"]
# Fields that must be equal in the backbones with which an adapter was trained and is used.
_SHAPE = ("model_type", "hidden_size", "vocab_size", "num_attention_heads", "intermediate_size")


def locate_model(model: str | Path, revision: str | None = None, **hub: Any) -> Path:
    """Return the folder of a saved ER²Score model; one on the Hub is downloaded with the options of ``hub``.

    Raises:
        FileNotFoundError: If there is no such folder, or it contains no configuration or no heads.
    """
    check_model_source(model, "model")
    folder = Path(model)
    if not folder.is_dir():
        download = require("huggingface_hub", extra="models").snapshot_download
        folder = Path(download(str(model), revision=revision, allow_patterns=_FILES, **hub))
    for name in ("config.json", HEAD):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{model} contains no {name}, so it is not an ER2Score model; to start training from a plain language "
                "model use ER2ScoreModel.from_backbone"
            )
    return folder


def weight_files(folder: Path, adapted: bool) -> list[Path]:
    """Return the files of the trained weights, sorted: heads, and adapter or backbone.

    Raises:
        FileNotFoundError: If there are only heads.
    """
    trained = sorted((folder / (ADAPTER if adapted else BACKBONE)).glob("*.safetensors"))
    if not trained:
        raise FileNotFoundError(f"{folder} contains no weights in {ADAPTER if adapted else BACKBONE}/")
    return [folder / HEAD, *trained]


def absolute_source(source: str | Path) -> str:
    """Return the absolute path of a folder, which is valid in any working directory, or a Hub id unchanged.

    Example:
        >>> absolute_source("owner/model")
        'owner/model'
    """
    return str(Path(source).resolve() if Path(source).is_dir() else source)


def backbone_source(
    folder: Path, noted: str | None, revision: str | None, given: str | Path | None
) -> tuple[str, str | None]:
    """Return source and revision of an adapter's backbone, as given or else as recorded in the model's folder.

    Raises:
        FileNotFoundError: If the recorded folder does not exist.
        ValueError: If no source is given or recorded.
    """
    if given is not None:
        return absolute_source(given), None
    if noted is None:
        raise ValueError(f"{folder} does not record the backbone of its adapter; pass it as backbone=")
    if Path(noted).is_absolute() and not Path(noted).is_dir():
        raise FileNotFoundError(
            f"{folder} is an adapter on the backbone {noted}, which does not exist; pass its new location as backbone="
        )
    return noted, revision


def read_backbone_config(
    backbone: str | Path, revision: str | None = None, num_layers: int | None = None, **hub: Any
) -> Any:
    """Read the configuration of a causal language model, optionally cut to its first ``num_layers`` layers.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the model is not a decoder, or has fewer layers.
    """
    check_model_source(backbone, "backbone")
    config = AutoConfig.from_pretrained(backbone, revision=revision, trust_remote_code=False, **hub)
    kind = config.model_type
    # In an encoder, the states of the reference depend on the candidate, so prefixes could not be shared.
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise ValueError(
            f"{backbone} is of type {kind}, which is not a decoder; ER2Score needs a causal language model"
        )
    if num_layers is not None:
        if num_layers > config.num_hidden_layers:
            raise ValueError(f"num_layers is {num_layers}, but {backbone} has {config.num_hidden_layers} layers")
        config.num_hidden_layers = num_layers
        # The attention type of each layer, in families with several types.
        if getattr(config, "layer_types", None) is not None:
            config.layer_types = list(config.layer_types[:num_layers])
    return config


def load_backbone(
    backbone: str | Path,
    config: Any,
    revision: str | None,
    dtype: torch.dtype,
    quantization: str | None = None,
    **hub: Any,
) -> nn.Module:
    """Load a backbone with all its weights, except those of layers that the configuration omits.

    Raises:
        FileNotFoundError: If there is no such folder.
        ModuleNotFoundError: If quantisation is requested and bitsandbytes is not installed.
        ValueError: If weights are missing, or the shape of the backbone differs from the configuration.
    """
    found = read_backbone_config(backbone, revision, **hub)
    pairs = {key: (getattr(found, key, None), getattr(config, key, None)) for key in _SHAPE}
    other = [f"{key} {first}, not {second}" for key, (first, second) in pairs.items() if first != second]
    if found.num_hidden_layers < config.num_hidden_layers:
        other.append(f"{found.num_hidden_layers} layers, not {config.num_hidden_layers}")
    if other:
        raise ValueError(f"{backbone} is not the backbone that the model was trained on: it has {'; '.join(other)}")
    options = {} if quantization is None else {"quantization_config": _four_bits(dtype)}
    with _without_report():
        model, info = AutoModel.from_pretrained(
            backbone,
            config=config,
            revision=revision,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            **options,
            **hub,
            trust_remote_code=False,
        )
    if missing := sorted(info["missing_keys"]):
        raise ValueError(f"{backbone} lacks weights: {', '.join(missing[:5])}")
    return model  # type: ignore[no-any-return]


@contextmanager
def _without_report() -> Iterator[None]:
    """Suppress transformers' warning about unused weights: the language model's head and omitted layers."""
    logger = logging.getLogger("transformers.modeling_utils")
    # A filter instead of a log level, because the level determines whether transformers reports other plans.
    logger.addFilter(_is_error)
    try:
        yield
    finally:
        logger.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _four_bits(dtype: torch.dtype) -> Any:
    """Return the configuration of QLoRA: 4-bit NormalFloat with double quantisation."""
    try:
        require("bitsandbytes", extra="qlora")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}; 4-bit quantisation needs it; use quantization=None to load the backbone unquantised",
            name=error.name,
        ) from error
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def add_adapter(backbone: nn.Module, lora: Mapping[str, Any]) -> Any:
    """Return the frozen backbone with a new, trainable LoRA adapter.

    Raises:
        ValueError: If a field is unknown to PEFT, or names no module of the backbone.
    """
    peft = require("peft", extra="models")
    try:
        config = peft.LoraConfig(**lora)
    except TypeError as error:
        raise ValueError(f"lora must contain fields of peft.LoraConfig: {error}") from error
    return peft.get_peft_model(backbone, config)


def load_adapter(adapted: Any, folder: Path) -> None:
    """Load the weights of an adapter in PEFT's layout.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is corrupt or does not fit the model, naming keys.
    """
    peft = require("peft", extra="models")
    file = folder / _ADAPTER_WEIGHTS
    state = read_state_dict(file)
    check_state_dict(state, peft.get_peft_model_state_dict(adapted, save_embedding_layers=False), file)
    peft.set_peft_model_state_dict(adapted, state)


def load_head(head: nn.Module, folder: Path, system: ScoringSystem) -> None:
    """Load the weights of the linear layer that computes the rewards.

    Raises:
        ValueError: If the file is corrupt, or does not fit the scoring system or the width of the backbone.
    """
    file = folder / HEAD
    state = read_state_dict(file)
    if "weight" in state and len(state["weight"]) != len(system.criteria):
        raise ValueError(
            f"{file} has heads for {len(state['weight'])} criteria, but the scoring system {system.name!r} of its "
            f"config.json has {len(system.criteria)}"
        )
    check_state_dict(state, head.state_dict(), file)
    head.load_state_dict(state)
