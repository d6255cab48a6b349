"""Where ER²Score's weights come from: backbones, LoRA adapters, and the folders that hold them with the heads."""

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

# Before its names are imported: where it is missing, this says which extra installs it.
require("transformers", extra="models")

from transformers import AutoConfig, AutoModel, AutoTokenizer, BitsAndBytesConfig  # noqa: E402
from transformers.models.auto.modeling_auto import (  # noqa: E402
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

__all__ = [
    "ADAPTER",
    "BACKBONE",
    "HEAD",
    "absolute_source",
    "add_adapter",
    "backbone_source",
    "load_adapter",
    "load_backbone",
    "load_head",
    "load_tokenizer",
    "locate_model",
    "read_backbone_config",
    "weight_files",
]

HEAD = "head.safetensors"
ADAPTER = "adapter"
BACKBONE = "backbone"
_ADAPTER_WEIGHTS = "adapter_model.safetensors"
# All that a saved model consists of, in subfolders too; nothing that would have to be unpickled.
_FILES = ["*.json", "*.txt", "*.jinja", "*.model", "*.safetensors"]
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
# What must agree between the backbone that an adapter was trained on and the one it is put on.
_SHAPE = ("model_type", "hidden_size", "vocab_size", "num_attention_heads", "intermediate_size")


def locate_model(model: str | Path, revision: str | None = None) -> Path:
    """The folder of a saved ER²Score model; one on the Hub is downloaded.

    Raises:
        FileNotFoundError: If there is no such folder, or it holds no configuration or no heads.
    """
    check_model_source(model)
    folder = Path(model)
    if not folder.is_dir():
        hub = require("huggingface_hub", extra="models")
        folder = Path(hub.snapshot_download(str(model), revision=revision, allow_patterns=_FILES))
    for name in ("config.json", HEAD):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{model} holds no {name}, so it is no ER2Score model; to start training from a plain language model "
                "use ER2ScoreModel.from_backbone"
            )
    return folder


def weight_files(folder: Path, adapted: bool) -> list[Path]:
    """Files with the weights that were trained, sorted: the heads', and the adapter's or the whole backbone's.

    Raises:
        FileNotFoundError: If there are heads alone.
    """
    trained = sorted((folder / (ADAPTER if adapted else BACKBONE)).glob("*.safetensors"))
    if not trained:
        raise FileNotFoundError(f"{folder} holds no weights in {ADAPTER if adapted else BACKBONE}/")
    return [folder / HEAD, *trained]


def absolute_source(source: str | Path) -> str:
    """A folder by its absolute path, for a run may be loaded elsewhere than it was started; a Hub id as it is.

    Example:
        >>> absolute_source("owner/model")
        'owner/model'
    """
    return str(Path(source).resolve() if Path(source).is_dir() else source)


def backbone_source(
    folder: Path, noted: str | None, revision: str | None, given: str | Path | None
) -> tuple[str, str | None]:
    """Where the weights under an adapter are, and of which revision: where the model's folder notes it, or as given.

    Raises:
        FileNotFoundError: If the folder that is noted is not there.
        ValueError: If none is noted.
    """
    if given is not None:
        return absolute_source(given), None
    if noted is None:
        raise ValueError(f"{folder} does not say which backbone its adapter is for; say it: backbone=")
    if Path(noted).is_absolute() and not Path(noted).is_dir():
        raise FileNotFoundError(
            f"{folder} is an adapter on the backbone {noted}, which is not there; say where it is: backbone="
        )
    return noted, revision


def read_backbone_config(backbone: str | Path, revision: str | None = None, num_layers: int | None = None) -> Any:
    """Configuration of a causal language model, cut to its first layers where a number is given.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it is of no decoder, or has fewer layers.
    """
    check_model_source(backbone)
    config = AutoConfig.from_pretrained(backbone, revision=revision)
    kind = config.model_type
    # An encoder's states of a reference change with the candidate, so nothing could be shared.
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise ValueError(f"{backbone} is of type {kind}, which is no decoder; ER2Score needs a causal language model")
    if num_layers is not None:
        if num_layers > config.num_hidden_layers:
            raise ValueError(f"num_layers is {num_layers}, but {backbone} has {config.num_hidden_layers} layers")
        config.num_hidden_layers = num_layers
        # Kinds of attention by layer, where a family mixes them.
        if getattr(config, "layer_types", None) is not None:
            config.layer_types = list(config.layer_types[:num_layers])
    return config


def load_backbone(
    backbone: str | Path, config: Any, revision: str | None, dtype: torch.dtype, quantization: str | None = None
) -> nn.Module:
    """A backbone with its weights, all of which must be there; layers that the configuration leaves out are not read.

    Raises:
        FileNotFoundError: If there is no such folder.
        ModuleNotFoundError: If the weights are to be quantised and bitsandbytes is not installed.
        ValueError: If weights are missing, or the backbone is of another shape than the configuration.
    """
    found = read_backbone_config(backbone, revision)
    other = [f"{key} {_field(found, key)}, not {_field(config, key)}" for key in _SHAPE if _differ(found, config, key)]
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
        )
    if missing := sorted(info["missing_keys"]):
        raise ValueError(f"{backbone} lacks weights: {', '.join(missing[:5])}")
    loaded: nn.Module = model
    return loaded


@contextmanager
def _without_report() -> Iterator[None]:
    """Keep transformers from listing the language model's head and the layers that are left out, as if amiss."""
    logger = logging.getLogger("transformers.modeling_utils")
    # No other level: at that transformers checks plans of tensor parallelism, and complains of them.
    logger.addFilter(_is_error)
    try:
        yield
    finally:
        logger.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _field(config: Any, key: str) -> Any:
    return getattr(config, key, None)


def _differ(first: Any, second: Any, key: str) -> bool:
    return bool(_field(first, key) != _field(second, key))


def _four_bits(dtype: torch.dtype) -> Any:
    """4-bit NormalFloat with doubly quantised constants, as QLoRA has it."""
    try:
        require("bitsandbytes", extra="qlora")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}; it quantises the backbone to 4 bits, which ER2ScoreModel's quantization=None does without",
            name=error.name,
        ) from error
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def add_adapter(backbone: nn.Module, lora: Mapping[str, Any]) -> Any:
    """The backbone under a new LoRA adapter, which is trained while the backbone is frozen.

    Raises:
        ValueError: If a field is none of PEFT's, or names no module of the backbone.
    """
    peft = require("peft", extra="models")
    try:
        config = peft.LoraConfig(**lora)
    except TypeError as error:
        raise ValueError(f"lora must hold fields of peft.LoraConfig: {error}") from error
    return peft.get_peft_model(backbone, config)


def load_adapter(adapted: Any, folder: Path) -> None:
    """Read the weights of an adapter that PEFT wrote.

    Raises:
        FileNotFoundError: If there are none.
        ValueError: If the file is torn, or does not fit, naming keys.
    """
    peft = require("peft", extra="models")
    file = folder / _ADAPTER_WEIGHTS
    state = read_state_dict(file)
    check_state_dict(state, peft.get_peft_model_state_dict(adapted, save_embedding_layers=False), file)
    peft.set_peft_model_state_dict(adapted, state)


def load_head(head: nn.Module, folder: Path, system: ScoringSystem) -> None:
    """Read the weights of the linear layer that gives the rewards.

    Raises:
        ValueError: If the file is torn, or is of another scoring system or width.
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


def load_tokenizer(source: str | Path, revision: str | None = None) -> Any:
    """The tokenizer in a folder or on the Hub; ``None`` where a folder has none."""
    if Path(source).is_dir() and not any((Path(source) / name).is_file() for name in _TOKENIZER_FILES):
        return None
    return AutoTokenizer.from_pretrained(source, revision=revision)
