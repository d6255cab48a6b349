"""Save a checkpoint when the system ends a run: SLURM and Kubernetes send SIGTERM before they kill a process."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import TrainerCallback

__all__ = ["SaveOnTermination", "saved_on_termination"]

# As a shell reports the end of a process by SIGTERM.
_TERMINATED = 128 + int(signal.SIGTERM)


class SaveOnTermination(TrainerCallback):  # type: ignore[misc]
    """After SIGTERM, save a checkpoint at the end of the step and exit with code 143.

    Add this callback last: the process exits in ``on_save``, in which other callbacks complete the checkpoint. The
    processes of a run agree at each step, because the signal reaches them at different times.
    """

    def __init__(self) -> None:
        self.received = False
        self._ends = False

    def receive(self, *_: Any) -> None:
        """Handle SIGTERM. Further signals change nothing: a launcher and the system may both send one."""
        self.received = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Request a checkpoint if a process has received the signal."""
        self._ends = _any_process(self.received, args.device)
        if self._ends:
            control.should_save = True
            control.should_evaluate = False

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Exit after the requested checkpoint.

        Raises:
            SystemExit: If a process had received the signal at the end of the step.
        """
        if self._ends:
            sys.exit(_TERMINATED)


def _any_process(value: bool, device: torch.device) -> bool:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return value
    flag = torch.tensor(int(value), device=device)
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return bool(flag)


@contextmanager
def saved_on_termination(trainer: Any) -> Iterator[None]:
    """Let SIGTERM end the training inside the block with a checkpoint. Only a main thread can handle signals.

    Args:
        trainer: A ``transformers.Trainer`` with all its other callbacks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    callback = SaveOnTermination()
    trainer.add_callback(callback)
    before = signal.signal(signal.SIGTERM, callback.receive)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
        trainer.remove_callback(callback)
