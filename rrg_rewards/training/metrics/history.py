"""A callback that stores the logged values of each validation."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

__all__ = ["History"]


class History(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Stores the logged values of each validation, and saves them in checkpoints.

    Args:
        report_line: Function that the main process calls with one line after each validation.
        names: Names of the values in the line.

    Example:
        >>> History().rows
        []
    """

    def __init__(self, report_line: Callable[[str], None] | None = None, names: Sequence[str] = ()) -> None:
        self.report_line = report_line
        self.names = tuple(names)
        self.rows: list[dict[str, float | None]] = []

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Store the values of this validation."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if "/" in name}
        row = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step, **metrics}
        self.rows.append({name: value if math.isfinite(value) else None for name, value in row.items()})
        if self.report_line is not None and trainer.is_global_zero:
            self.report_line(_line(self.rows[-1], self.names, trainer.max_epochs))

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned."""
        self.rows = list(state_dict["rows"])


def _line(row: dict[str, float | None], names: Sequence[str], epochs: int | None) -> str:
    shown = [f"{name} {row[name]:.4f}" for name in names if row.get(name) is not None]
    return f"epoch {row['epoch']}{f' of {epochs}' if epochs and epochs > 0 else ''}, {', '.join(shown)}"
