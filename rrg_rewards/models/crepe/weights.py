"""Location and content of CREPE's weight files."""

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
# A buffer that older versions of transformers save and newer versions compute.
_DERIVED = ".embeddings.position_ids"


def locate_weights(model: str | Path, revision: str | None = None) -> Path:
    """Return the path of a CREPE model's weight file, or of the index of several files.

    Args:
        model: A folder, or a Hub id, which is downloaded: safetensors if available, else ``pytorch_model.bin``.
        revision: Revision of a Hub id.

    Raises:
        FileNotFoundError: If there is no such folder, or it contains no ``config.json`` or no weights.
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
        raise FileNotFoundError(f"{model} contains no config.json")
    for name in (*_SAFE_FILES, *_PICKLED_FILES):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"{model} contains no weights; expected one of {', '.join((*_SAFE_FILES, *_PICKLED_FILES))}"
    )


def read_crepe_weights(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read the weights of a CREPE model and check their keys and shapes.

    Args:
        path: Result of :func:`locate_weights`.
        expected: State_dict of a model with the same configuration.

    Raises:
        ValueError: If a file contains anything but tensors, the number of categories differs, or keys are missing,
            unexpected or misshapen, naming them.
    """
    state = {key: value for key, value in read_state_dicts(path).items() if not key.endswith(_DERIVED)}
    found, wanted = _categories(state), _categories(expected)
    # If there is no head, the check below reports missing keys.
    if found and found != wanted:
        raise ValueError(
            f"{path} has heads for {found} error categories, but its config.json has {wanted} (num_error_categories)"
        )
    if not any(key.startswith("error_presence.") for key in expected):
        state = {key: value for key, value in state.items() if not key.startswith("error_presence.")}
    check_state_dict(state, expected, path)
    return state


def _categories(state: Mapping[str, Tensor]) -> int:
    return len({match[1] for key in state if (match := _HEAD.match(key))})
