"""Progress of a trainer, told to whoever shows it."""

from collections.abc import Callable
from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback

__all__ = ["show_progress"]


class _Steps(TrainerCallback):  # type: ignore[misc]
    def __init__(self, advance: Callable[[int, int], None]) -> None:
        self.advance = advance

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        self.advance(0, state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        self.advance(1, 0)


def show_progress(trainer: Any, advance: Callable[[int, int], None]) -> None:
    """Tell steps to ``advance`` in place of the trainer's own bar and printed logs.

    Args:
        trainer: A ``transformers.Trainer``.
        advance: Takes how many steps were done since the last call, and how many more there are to do.
    """
    trainer.remove_callback(ProgressCallback)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_Steps(advance))
