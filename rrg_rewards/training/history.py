"""What a run has logged, validation by validation."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

__all__ = ["History"]


class History(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Keeps what was logged at each validation, and tells it; a resumed run goes on with what it had.

    Args:
        tell: Takes one line after each validation on the main process; default: nobody.
        told: Names of what the line tells.

    Example:
        >>> History().rows
        []
    """

    def __init__(self, tell: Callable[[str], None] | None = None, told: Sequence[str] = ()) -> None:
        self.tell = tell
        self.told = tuple(told)
        self.rows: list[dict[str, float | None]] = []

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Keep what this validation logged."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if "/" in name}
        row = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step, **metrics}
        self.rows.append({name: value if math.isfinite(value) else None for name, value in row.items()})
        if self.tell is not None and trainer.is_global_zero:
            self.tell(_in_words(self.rows[-1], self.told, trainer.max_epochs))

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.rows = list(state_dict["rows"])


def _in_words(row: dict[str, float | None], told: Sequence[str], epochs: int | None) -> str:
    shown = [f"{name} {row[name]:.4f}" for name in told if row.get(name) is not None]
    return f"epoch {row['epoch']}{f' of {epochs}' if epochs and epochs > 0 else ''}, {', '.join(shown)}"
