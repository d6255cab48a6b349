"""Save a checkpoint when the system ends a training of a learned metric."""

import signal
import threading
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException

__all__ = ["SaveOnTermination"]


class SaveOnTermination(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Save a checkpoint and end the training when a process of the run receives SIGTERM.

    The step is finished first. The processes agree after each step and each validation, because the signal reaches them
    at different times, or only one of them. Lightning's own handler communicates within the handler; with several
    processes, its message may meet one of the training, and then the run hangs.

    Args:
        path: File of the checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.received = False

    def receive(self, *_: Any) -> None:
        """Handle SIGTERM. Further signals change nothing: a launcher and the system may both send one."""
        self.received = True

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Replace Lightning's handler, which it restores itself at the end."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.receive)

    # Without a sanity check.
    on_train_start = on_sanity_check_start

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        """End the training if a process has received the signal.

        Raises:
            SIGTERMException: In all processes.
        """
        received = torch.tensor(int(self.received), device=trainer.strategy.root_device)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(received, op=torch.distributed.ReduceOp.MAX)
        if received:
            raise SIGTERMException

    on_validation_end = on_train_batch_end

    def on_validation_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        """Do the same within a validation, if there is one process. Others may have other numbers of batches."""
        if trainer.world_size == 1:
            self.on_train_batch_end(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:  # noqa: ARG002
        """Save a checkpoint from which the run can be resumed within the epoch."""
        if isinstance(exception, SIGTERMException):
            # Lightning kills the main process if another process ends with an exit code.
            getattr(trainer.strategy.launcher, "procs", []).clear()
            if trainer.state.fn == "fit" and not trainer.sanity_checking:
                trainer.save_checkpoint(self.path)
