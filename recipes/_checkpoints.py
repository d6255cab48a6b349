"""Checkpoints of trainers of transformers: complete ones are told from others, and foreign ones are refused."""

import errno
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from safetensors import SafetensorError
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from rrg_rewards.utilities.checkpoints import CheckpointError, check_optimizer_state, unwritten_message

logger = logging.getLogger(__name__)

# A file in the folder of a checkpoint until all processes and callbacks have written to it.
_UNFINISHED = "unfinished"
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE}
# How safetensors says it.
_OS_ERROR = re.compile(r"os error (\d+)")


class WholeCheckpoints:
    """Mixin for trainers of transformers that marks checkpoints until they are complete, and checks resumed ones.

    :func:`finished_checkpoints` removes the mark. Earlier checkpoints are deleted (``save_total_limit``) only then.
    """

    def _save_checkpoint(self: Any, model: Any, trial: Any) -> None:
        if self.args.should_save:
            folder = _folder(self)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _UNFINISHED).touch()
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
        finally:
            self.args.save_total_limit = limit

    def _load_from_checkpoint(self: Any, resume_from_checkpoint: Any, model: Any = None) -> None:
        try:
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        except RuntimeError as error:
            raise CheckpointError(
                f"the weights of {resume_from_checkpoint} do not fit the model: {_few_lines(error)}. Resume from a "
                "checkpoint of the same model and adapter, or set another output_dir to start again"
            ) from error

    def _load_optimizer_and_scheduler(self: Any, checkpoint: Any) -> None:
        file = None if checkpoint is None else Path(checkpoint) / "optimizer.pt"
        # DeepSpeed and FSDP have files and checks of their own.
        if file is not None and file.is_file() and not (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            try:
                saved = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            except (RuntimeError, OSError, ValueError) as error:
                raise CheckpointError(f"{file} cannot be read: {_few_lines(error)}") from error
            check_optimizer_state(saved, self.optimizer.param_groups, str(file))
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]


def _folder(trainer: Any) -> Path:
    """Return the folder of the checkpoint of the current step."""
    return Path(trainer.args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"


def _few_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]) + (f" ({len(lines) - 3} more lines)" if len(lines) > 3 else "")


class _FinishCheckpoint(TrainerCallback):  # type: ignore[misc]
    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Remove the mark when all processes have written their parts, and then delete old checkpoints."""
        self.trainer.accelerator.wait_for_everyone()
        if args.should_save:
            (_folder(self.trainer) / _UNFINISHED).unlink(missing_ok=True)
            if args.save_total_limit:
                _delete_former(Path(args.output_dir), args.save_total_limit, state.best_model_checkpoint)


def _delete_former(folder: Path, limit: int, best: str | None) -> None:
    """Delete the earliest checkpoints beyond a number, but neither the last nor the best one."""
    paths = _checkpoints(folder)
    kept = {paths[0], *([] if best is None else [Path(best)])}
    surplus = max(len(paths) - max(limit, len(kept)), 0)
    for path in [path for path in reversed(paths) if path not in kept][:surplus]:
        rmtree(path, ignore_errors=True)


def _is_of_disk(error: Exception, folder: Path) -> bool:
    """Whether a file of a folder could not be written. Torch and safetensors have no errors of their own for it."""
    if isinstance(error, OSError):
        if error.filename is None:
            return error.errno in _DISK_ERRORS
        return folder.resolve() in Path(os.fsdecode(error.filename)).resolve().parents
    if isinstance(error, SafetensorError):
        number = _OS_ERROR.search(str(error))
        return number is not None and int(number[1]) in _DISK_ERRORS
    return isinstance(error, RuntimeError) and ("inline_container.cc" in str(error) or "StreamWriter" in str(error))


@contextmanager
def finished_checkpoints(trainer: Any) -> Iterator[None]:
    """Finish the checkpoints of a training inside the block. If one cannot be written, remove it and say what remains.

    After another error, the checkpoint of the step keeps its mark, and a later run passes it over.

    Args:
        trainer: A trainer with :class:`WholeCheckpoints` and all callbacks that write to checkpoints.

    Raises:
        CheckpointError: If a checkpoint cannot be written, for example because the disk is full.
    """
    callback = _FinishCheckpoint(trainer)
    trainer.add_callback(callback)
    try:
        yield
    except Exception as error:
        folder = _folder(trainer)
        if not (trainer.args.should_save and (folder / _UNFINISHED).exists() and _is_of_disk(error, folder)):
            raise
        rmtree(folder, ignore_errors=True)
        former = next((path for path, _ in _whole_checkpoints(folder.parent)), None)
        remains = "There is no earlier one" if former is None else f"The last complete one is {former}"
        advice = "make room (save_total_limit limits the checkpoints), then resume_from_checkpoint: auto"
        raise CheckpointError(unwritten_message(folder, error, f"{remains}; {advice}")) from error
    finally:
        trainer.remove_callback(callback)


def checkpoint_to_resume(training: Any) -> str | None:
    """Return the checkpoint to resume from, or ``None`` to start a new run.

    ``resume_from_checkpoint`` is a path, or ``auto`` or ``true`` for the last complete checkpoint in ``output_dir``.

    Raises:
        CheckpointError: If the named checkpoint is incomplete.
        ValueError: If the complete checkpoints were written by a different number of processes.
    """
    wanted = training.resume_from_checkpoint
    if str(wanted).lower() in ("none", "false", ""):
        return None
    if str(wanted).lower() not in ("auto", "true"):
        if (Path(wanted) / _UNFINISHED).exists():
            raise CheckpointError(f"resume_from_checkpoint: {wanted} is incomplete; name an earlier one, or set auto")
        return str(wanted)
    # Only the main process searches, because processes may see different files on a shared file system.
    complete: list[Any] = [_whole_checkpoints(Path(training.output_dir))] if training.process_index == 0 else [None]
    broadcast_object_list(complete)
    usable = [path for path, processes in complete[0] if processes == training.world_size]
    if complete[0] and not usable:
        path, processes = complete[0][0]
        raise ValueError(
            f"{path} was written by {processes} processes and cannot be resumed with {training.world_size}; launch "
            f"{processes} processes, or set another output_dir"
        )
    logger.info("resuming from %s", usable[0] if usable else "nothing: there is no complete checkpoint yet")
    return usable[0] if usable else None


def _whole_checkpoints(folder: Path) -> list[tuple[str, int]]:
    """Return the path and number of processes of each complete checkpoint, most recent first.

    A checkpoint is incomplete if the run was killed while writing it. Those without a mark, of other trainers, are
    incomplete without the file that the main process writes last.
    """
    whole = []
    for path in _checkpoints(folder):
        processes = len(list(path.glob("rng_state*.pth")))
        if processes and _is_json(path / "trainer_state.json") and not (path / _UNFINISHED).exists():
            whole.append((str(path), processes))
        else:
            logger.warning("%s is incomplete; looking for an earlier one", path)
    return whole


def _checkpoints(folder: Path) -> list[Path]:
    """Return the folders of checkpoints, the one with most steps first."""
    steps = {path: path.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-") for path in folder.glob("checkpoint-*")}
    return sorted((path for path, step in steps.items() if step.isdecimal()), key=lambda path: -int(steps[path]))


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False
