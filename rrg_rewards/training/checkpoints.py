"""Checkpoints of Lightning: written completely or not at all, and checked before a run is resumed from them."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor

from rrg_rewards.utilities.checkpoints import CheckpointError, unwritten_message
from rrg_rewards.utilities.files import whole_file


class WholeFileCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]  # Lightning is an optional dependency
    """Writes a checkpoint beside its file and then renames it, so that a killed run leaves the former one.

    Lightning's own writer uses the folder for temporary files. From another file system it copies, and a run that is
    killed then leaves an incomplete file under the name of the checkpoint.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint. Remote paths are left to Lightning.

        Raises:
            CheckpointError: If the file cannot be written, for example because the disk is full.
        """
        if storage_options is not None or "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        # As Lightning does: an error in pickling is then no error of the disk.
        content = io.BytesIO()
        torch.save(checkpoint, content)
        try:
            with whole_file(file) as written:
                written.write(content.getbuffer())
        except OSError as error:
            former = "Earlier checkpoints in its folder are complete; make room, and resume from the last of them"
            raise CheckpointError(unwritten_message(file, error, former)) from error


def is_complete(path: Path) -> bool:
    """Return whether a checkpoint of Lightning, a file or DeepSpeed's folder, was written to its end.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "step=2.ckpt"
        ...     torch.save({}, file)
        ...     whole = is_complete(file)
        ...     _ = file.write_bytes(file.read_bytes()[:-10])
        ...     whole, is_complete(file)
        (True, False)
    """
    # DeepSpeed writes the file last. The table of contents of a file of torch is at its end.
    return (path / "latest").is_file() if path.is_dir() else is_zipfile(path)


def different_weights(own: Mapping[str, Any], saved: Mapping[str, Any], strict: bool = True) -> str:
    """Describe how the weights of a checkpoint differ from those of a module; empty if they fit.

    Args:
        own: The module's ``state_dict``.
        saved: That of the checkpoint.
        strict: Whether the names must be equal.

    Example:
        >>> different_weights({"a": torch.ones(2), "b": torch.ones(1)}, {"a": torch.ones(3)})
        "it lacks 1 of 2 weights ('b'), and 1 has another shape ('a': (3,) and not (2,))"
    """
    missing = [name for name in own if name not in saved] if strict else []
    further = [name for name in saved if name not in own] if strict else []
    shapes = [
        f"{name!r}: {tuple(saved[name].shape)} and not {tuple(value.shape)}"
        for name, value in own.items()
        if isinstance(value, Tensor) and isinstance(saved.get(name), Tensor) and saved[name].shape != value.shape
    ]
    parts = [
        f"it lacks {len(missing)} of {len(own)} weights ({missing[0]!r})" if missing else "",
        f"it has {len(further)} further ones ({further[0]!r})" if further else "",
        f"{len(shapes)} {'has' if len(shapes) == 1 else 'have'} another shape ({shapes[0]})" if shapes else "",
    ]
    return ", and ".join(part for part in parts if part)
