"""Checkpoints of Lightning that are written completely or not at all."""

from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from rrg_rewards.utilities.files import whole_file


class WholeFileCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]  # Lightning is an optional dependency
    """Writes a checkpoint beside its file and then renames it, so that a killed run leaves the former one.

    Lightning's own writer uses the folder for temporary files. From another file system it copies, and a run that is
    killed then leaves an incomplete file under the name of the checkpoint.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint. Remote paths are left to Lightning."""
        if storage_options is not None or "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with whole_file(Path(path)) as file:
            torch.save(checkpoint, file)


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
