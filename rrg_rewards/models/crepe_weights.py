"""CREPE's weight files: where they are, and what is in them."""

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from rrg_rewards.models.state_dicts import check_state_dict, read_state_dicts
from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require

__all__ = ["locate_weights", "read_crepe_weights"]

_SAFE_FILES = ("model.safetensors", "model.safetensors.index.json")
_PICKLED_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_HEAD = re.compile(r"error_regressors\.(\d+)\.")
# A buffer in checkpoints of older transformers; newer versions compute it.
_DERIVED = ".embeddings.position_ids"


def locate_weights(model: str | Path, revision: str | None = None) -> Path:
    """The weight file of a CREPE model, or the index of several, beside its configuration and tokenizer.

    Args:
        model: A folder, or a Hub id, which is downloaded: safetensors where there are, else ``pytorch_model.bin``.
        revision: Revision of a Hub id.

    Raises:
        FileNotFoundError: If there is no such folder, or it holds no ``config.json`` or no weights.
    """
    check_model_source(model)
    folder = Path(model)
    if not folder.is_dir():
        hub = require("huggingface_hub", extra="models")
        patterns = ["*.json", "*.txt"]
        folder = Path(hub.snapshot_download(str(model), revision=revision, allow_patterns=[*patterns, "*.safetensors"]))
        if not any((folder / name).is_file() for name in _SAFE_FILES):
            folder = Path(hub.snapshot_download(str(model), revision=revision, allow_patterns=[*patterns, "*.bin"]))
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{model} holds no config.json")
    for name in (*_SAFE_FILES, *_PICKLED_FILES):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{model} holds no weights; expected one of {', '.join((*_SAFE_FILES, *_PICKLED_FILES))}")


def read_crepe_weights(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read a CREPE model's weights, and check them against the model's.

    Args:
        path: What :func:`locate_weights` found.
        expected: State_dict of the model that its configuration describes.

    Raises:
        ValueError: If a file holds anything but tensors, there are heads of another number of categories, or keys are
            missing, unexpected or misshapen, naming them.
    """
    state = {key: value for key, value in read_state_dicts(path).items() if not key.endswith(_DERIVED)}
    found, wanted = _categories(state), _categories(expected)
    # None at all is a matter of missing keys.
    if found and found != wanted:
        raise ValueError(
            f"{path} has heads for {found} error categories, but its config.json says {wanted} (num_error_categories)"
        )
    if not any(key.startswith("error_presence.") for key in expected):
        state = {key: value for key, value in state.items() if not key.startswith("error_presence.")}
    check_state_dict(state, expected, path)
    return state


def _categories(state: Mapping[str, Tensor]) -> int:
    return len({match[1] for key in state if (match := _HEAD.match(key))})
