"""What every recipe's training shares: processes that know of each other, resuming, loading, an orderly end."""

import logging
import os
from pathlib import Path
from typing import Any

__all__ = ["check_processes", "checkpoint_to_resume", "finish", "model_init_kwargs"]

logger = logging.getLogger(__name__)


def check_processes(training: Any) -> None:
    """Raise if processes were launched that do not know of each other.

    Raises:
        ValueError: With both numbers, and what to do.
    """
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if training.world_size != launched:
        raise ValueError(
            f"{launched} processes were launched, but each would train alone (world size {training.world_size}); "
            "on CPU set use_cpu: true and launch with torchrun"
        )


def checkpoint_to_resume(training: Any) -> str | None:
    """Checkpoint to resume from: a path, or with ``auto`` or ``true`` the last whole one of ``output_dir``, if any."""
    wanted = training.resume_from_checkpoint
    if str(wanted).lower() in ("none", "false", ""):
        return None
    if str(wanted).lower() not in ("auto", "true"):
        return str(wanted)
    found = _last_whole_checkpoint(Path(training.output_dir), training.world_size)
    logger.info("resuming from %s", found or "nothing: there is no whole checkpoint yet")
    return None if found is None else str(found)


def _last_whole_checkpoint(folder: Path, world_size: int) -> Path | None:
    """The last checkpoint that was written to its end: a run may have been killed while it wrote one."""
    checkpoints = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    for path in sorted(checkpoints, key=lambda path: int(path.name.removeprefix("checkpoint-")), reverse=True):
        # The main process writes its state last, each process the state of its random numbers.
        if (path / "trainer_state.json").is_file() and len(list(path.glob("rng_state*.pth"))) == world_size:
            return path
        logger.warning("%s is not whole, or of another number of processes; looking for one before it", path)
    return None


def model_init_kwargs(training: Any, model: Any) -> dict[str, Any]:
    """How the trainer is to load the model that ``ModelConfig`` describes."""
    return {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(training.model_init_kwargs or {}),
    }


def finish(accelerator: Any) -> None:
    """End trackers and the process group of a trainer to which no reference is left.

    The wrapped model goes first: it keeps the group alive, and where the group dies with it, holding the interpreter's
    lock, gloo's threads can wait for that lock for ever.
    """
    accelerator.free_memory()
    accelerator.end_training()
