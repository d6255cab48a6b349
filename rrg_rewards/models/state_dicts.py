"""Location of weight files, reading without executing pickled code, and checks of their keys and shapes."""

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.utilities.checks import check_model_source
from rrg_rewards.utilities.imports import require

_NAMED_KEYS = 5
_SAFE_FILES = ("model.safetensors", "model.safetensors.index.json")
_PICKLED_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def locate_weights(model: str | Path, revision: str | None = None, **hub: Any) -> Path:
    """Return the path of a saved model's weight file, or of the index of several files.

    Args:
        model: A folder, or a Hub id, which is downloaded: safetensors if available, else ``pytorch_model.bin``.
        revision: Revision of a Hub id.
        hub: Further arguments of ``huggingface_hub.snapshot_download``.

    Raises:
        FileNotFoundError: If there is no such folder, or it contains no ``config.json`` or no weights.
    """
    check_model_source(model, "model")
    folder = Path(model)
    if not folder.is_dir():
        download = partial(require("huggingface_hub", extra="models").snapshot_download, str(model), revision=revision)
        patterns = ["*.json", "*.txt"]
        folder = Path(download(allow_patterns=[*patterns, "*.safetensors"], **hub))
        if not any((folder / name).is_file() for name in _SAFE_FILES):
            folder = Path(download(allow_patterns=[*patterns, "*.bin"], **hub))
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{model} contains no config.json")
    for name in (*_SAFE_FILES, *_PICKLED_FILES):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"{model} contains no weights; expected one of {', '.join((*_SAFE_FILES, *_PICKLED_FILES))}"
    )


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read a state_dict from safetensors, or from a file of ``torch.save`` with ``weights_only=True``.

    Raises:
        ValueError: If the file is corrupt, or contains anything but named tensors.
    """
    try:
        if path.suffix == ".safetensors":
            state: object = require("safetensors.torch", extra="models").load_file(path)
        else:
            # Files in torch's older format cannot be memory-mapped.
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        raise ValueError(f"{path}: not a readable weight file: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path}: must hold tensors by name, and nothing else")
    return state


def read_state_dicts(path: Path) -> dict[str, Tensor]:
    """Read a state_dict from a weight file, or from all files that an index lists.

    Raises:
        ValueError: If a file is corrupt, or the files do not contain the tensors that the index lists.
    """
    if path.suffix != ".json":
        return read_state_dict(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not isinstance(content.get("weight_map"), dict):
        raise ValueError(f"{path}: is no index of weight files; it has no 'weight_map'")
    listed: dict[str, str] = content["weight_map"]
    state: dict[str, Tensor] = {}
    for name in sorted(set(listed.values())):
        if Path(name).name != name:
            raise ValueError(f"{path}: lists {name!r}, which is no file beside it")
        state |= read_state_dict(path.parent / name)
    if state.keys() != listed.keys():
        raise ValueError(f"{path}: the files do not hold what it lists ({_named(state.keys() ^ listed.keys())})")
    return state


def check_state_dict(state: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: Path) -> None:
    """Raise unless two state_dicts have the same keys and shapes.

    Raises:
        ValueError: If keys are missing, unexpected or misshapen, naming them.

    Example:
        >>> import torch
        >>> check_state_dict({"a": torch.zeros(2)}, {"a": torch.zeros(3), "b": torch.zeros(1)}, Path("model.bin"))
        Traceback (most recent call last):
        ...
        ValueError: model.bin does not fit the model (missing: b; misshapen: a (2,), not (3,))
    """
    problems = {
        "missing": expected.keys() - state.keys(),
        "unexpected": state.keys() - expected.keys(),
        "misshapen": {
            f"{key} {tuple(state[key].shape)}, not {tuple(expected[key].shape)}"
            for key in expected.keys() & state.keys()
            if state[key].shape != expected[key].shape
        },
    }
    found = "; ".join(f"{kind}: {_named(keys)}" for kind, keys in problems.items() if keys)
    if found:
        raise ValueError(f"{source} does not fit the model ({found})")


def weights_hash(weights: Path | Sequence[Path] | Mapping[str, Tensor]) -> str:
    """Return the first digits of the SHA-256 of weights.

    Args:
        weights: A weight file, an index of weight files, several files in order, or a state_dict, whose values are
            hashed.

    Example:
        >>> import torch
        >>> weights_hash({"a": torch.zeros(2)})
        'af5570f5'
    """
    digest = hashlib.sha256()
    if isinstance(weights, Mapping):
        for key in sorted(weights):
            digest.update(weights[key].detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    else:
        for path in _listed(weights) if isinstance(weights, Path) else weights:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()[:8]


def _listed(path: Path) -> list[Path]:
    """Return the files that an index lists, or the file itself if it is not an index."""
    if path.suffix != ".json":
        return [path]
    listed = json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()
    return [path.parent / name for name in sorted(set(listed))]


def _named(keys: set[str]) -> str:
    more = f" and {len(keys) - _NAMED_KEYS} more" if len(keys) > _NAMED_KEYS else ""
    return ", ".join(sorted(keys)[:_NAMED_KEYS]) + more
