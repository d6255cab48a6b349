"""Arguments and callbacks of training with Lightning."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrg_rewards.recipes._arguments import option
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.processes import gather_objects, num_processes

# First, so that the error for a missing package names the extra that installs it.
require("lightning.pytorch", extra="train")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

__all__ = ["HeldoutReports", "History", "PolicyTraining", "StepProgress", "checkpoints_of", "last_checkpoint"]

logger = logging.getLogger(__name__)

_CHECKPOINTS = "checkpoints"


@dataclass
class PolicyTraining:
    """Arguments of ``PolicyModule``, of its generator and of Lightning's trainer."""

    output_dir: str = option(dataclasses.MISSING, "Folder of the results.")
    algorithm: str = option("grpo", "grpo, dr_grpo, rloo, scst or ppo.")
    loss_aggregation: str | None = option("token_mean", "Aggregation of the loss over tokens (default: as in DAPO).")
    batch_size: int = option(4, "Number of prompts of a rollout, in each process.")
    num_generations: int = option(8, "Number of completions for each prompt.")
    minibatches: int = option(1, "Number of minibatches, and so of steps, of each pass over a rollout.")
    epochs: int = option(1, "Number of passes over a rollout.")
    beta: float = option(0.0, "Weight of the divergence from the initial policy.")
    max_new_tokens: int = option(256, "Maximum length of a completion in tokens.")
    temperature: float = option(1.0, "Sampling temperature.")
    merge_adapters: bool = option(False, "Merge adapters into the weights during generation.")
    max_steps: int = option(100, "Number of optimiser steps.")
    learning_rate: float = option(1e-6, "Highest learning rate.")
    schedule: str = option("constant", "Learning rate schedule: linear, cosine or constant.")
    warmup_ratio: float = option(0.0, "Fraction of the steps in which the learning rate rises.")
    max_grad_norm: float = option(1.0, "Norm to which gradients are clipped.")
    precision: str = option("32-true", "Lightning's precision, such as bf16-mixed.")
    use_cpu: bool = option(False, "Train on CPU even if there is a GPU.")
    devices: int = option(1, "Number of processes, each with its device.")
    strategy: str = option("auto", "Lightning's strategy, such as ddp.")
    save_steps: int = option(25, "Save a checkpoint every N steps; 0 for none.")
    resume: bool = option(True, "Continue from the last checkpoint in output_dir.")
    seed: int = option(0, "Seed of the rows' order, of sampling and of new adapters.")

    # Keys of TRL's arguments that the parser reads.
    deepspeed = None

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return num_processes()

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments by name."""
        return dataclasses.asdict(self)


def checkpoints_of(training: PolicyTraining) -> ModelCheckpoint:
    """Return the callback that keeps the last checkpoint of a run."""
    return ModelCheckpoint(
        Path(training.output_dir) / _CHECKPOINTS, filename="{step}", every_n_train_steps=training.save_steps
    )


def last_checkpoint(training: PolicyTraining) -> Path | None:
    """Return the checkpoint with the most steps, or ``None`` if there is none or the run must not be resumed."""
    found = (Path(training.output_dir) / _CHECKPOINTS).glob("step=*.ckpt") if training.resume else ()
    return max(found, key=lambda path: int(path.stem.partition("=")[2].partition("-")[0]), default=None)


class History(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Records the logged values of each optimiser step, in the format of the Trainer of transformers.

    Args:
        logging_steps: Every so many steps, the mean reward since the last message is logged as text, for runs whose
            output is a file.
    """

    def __init__(self, logging_steps: int = 10) -> None:
        self.logging_steps = logging_steps
        self.rows: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Record the values of the step."""
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.rows.append({"step": trainer.global_step, **values})
        if trainer.global_step % self.logging_steps == 0:
            last = self.rows[-self.logging_steps :]
            mean = {name: sum(row[name] for row in last) / len(last) for name in ("reward", "completions/mean_length")}
            logger.info(
                "step %d of %d: reward %.3f, mean length %.1f tokens",
                trainer.global_step,
                trainer.max_steps,
                mean["reward"],
                mean["completions/mean_length"],
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the recorded values."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the recorded values."""
        self.rows = list(state_dict["rows"])


class StepProgress(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Reports the progress of the training.

    Args:
        advance: Function of the steps completed since its last call, and of the steps added to the total.
    """

    def __init__(self, advance: Callable[[int, int], None]) -> None:
        self.advance = advance

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Report the number of steps."""
        self.advance(0, trainer.max_steps - trainer.global_step)

    def on_train_batch_end(self, *_: Any) -> None:
        """Report a step."""
        self.advance(1, 0)


class HeldoutReports(Callback):  # type: ignore[misc]  # Lightning is an optional dependency
    """Collects the reports of a validation, ordered by the column ``row``."""

    def __init__(self) -> None:
        self.found: dict[int, str] = {}

    @property
    def reports(self) -> list[str]:
        """The reports of the last validation."""
        return [self.found[row] for row in sorted(self.found)]

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Forget earlier reports."""
        self.found = {}

    def on_validation_batch_end(
        self,
        trainer: Trainer,  # noqa: ARG002
        pl_module: LightningModule,  # noqa: ARG002
        outputs: Mapping[str, Any],
        batch: Mapping[str, Sequence[Any]],
        *_: Any,
    ) -> None:
        """Record the reports of a batch."""
        self.found.update(zip(batch["row"], outputs["prediction"], strict=True))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Exchange reports with the other processes."""
        for part in gather_objects(self.found):
            self.found.update(part)
