"""What the training of every learned metric shares: optimiser, schedule, random numbers that a resumed run repeats."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

__all__ = ["LearnedMetricModule", "ScheduleName", "learning_rate_factor", "parameter_groups"]

ScheduleName = Literal["linear", "cosine", "constant"]


def learning_rate_factor(step: int, warmup_steps: int, total_steps: int, schedule: ScheduleName) -> float:
    """What the learning rate is multiplied by at a step.

    It rises linearly from 0 to 1 over the warm-up; then it falls to 0 at the last step, along a line or half a cosine,
    or stays.

    Args:
        step: Steps done, from 0.
        warmup_steps: Steps of the warm-up.
        total_steps: Steps of the run.
        schedule: What follows the warm-up.

    Example:
        >>> [learning_rate_factor(step, 2, 6, "linear") for step in range(7)]
        [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < warmup_steps:
        return step / warmup_steps
    if schedule == "constant":
        return 1.0
    done = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    return 1.0 - done if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split what is trained into weights that decay, and biases and norms that do not.

    Example:
        >>> from torch import nn
        >>> groups = parameter_groups(nn.Sequential(nn.Linear(4, 2), nn.LayerNorm(2)), weight_decay=0.1)
        >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
        [(1, 0.1), (3, 0.0)]
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]


class LearnedMetricModule(LightningModule, ABC):  # type: ignore[misc]  # Lightning is an optional dependency
    """Trains a model in Hugging Face form to score report pairs.

    AdamW, with a warm-up and a schedule over all steps of the run. The random numbers of a batch (dropout) depend on
    the seed, its place in the run and the process alone: a run resumed at an epoch's end goes on as if it had never
    stopped.

    Subclasses make the model in :meth:`build_model`, and log what ``monitor`` names.

    Args:
        learning_rate: Highest learning rate of the schedule.
        weight_decay: Decay of weights; biases and norms have none.
        warmup_ratio: Share of the steps over which the learning rate rises.
        schedule: ``linear`` or ``cosine``, which fall to 0 at the last step, or ``constant``.
        seed: Seed of new weights and of dropout.

    Raises:
        ValueError: If a number is out of range.
    """

    def __init__(
        self, learning_rate: float, weight_decay: float, warmup_ratio: float, schedule: ScheduleName, seed: int
    ) -> None:
        super().__init__()
        if learning_rate <= 0 or weight_decay < 0:
            raise ValueError(
                f"learning_rate must be positive and weight_decay not negative, got {learning_rate} and {weight_decay}"
            )
        if not 0 <= warmup_ratio < 1:
            raise ValueError(f"warmup_ratio must lie in [0, 1), got {warmup_ratio}")
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup_ratio = warmup_ratio
        self.schedule = schedule
        self.seed = seed
        self.model: Any = None

    @abstractmethod
    def build_model(self) -> nn.Module:
        """Make the model that is trained, on the CPU."""

    def configure_model(self) -> None:
        """Make the model, once; all processes draw the same new weights."""
        if self.model is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                self.model = self.build_model()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002 (Lightning's)
        """Draw a batch's random numbers from the seed, the batch and the process alone."""
        # Not once an epoch: a loader draws from the same generator, and at another time after a resumption.
        torch.manual_seed(hash((self.seed, self.current_epoch, batch_idx, self.global_rank)) % 2**63)

    def configure_optimizers(self) -> dict[str, Any]:
        """AdamW under the schedule, which advances with each step."""
        optimizer = AdamW(self.parameter_groups(), lr=self.learning_rate)
        total = int(self.trainer.estimated_stepping_batches)
        warmup = math.ceil(total * self.warmup_ratio)
        scheduler = LambdaLR(optimizer, lambda step: learning_rate_factor(step, warmup, total, self.schedule))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What is trained, for the optimiser; the learning rate is the module's where a group names none."""
        return parameter_groups(self.model, self.weight_decay)

    def log_values(self, values: Iterable[tuple[str, Tensor]]) -> None:
        """Log values that were computed over all processes and so are equal in each."""
        for name, value in values:
            # The maximum leaves equal values as they are, where a mean would round.
            self.log(name, value, reduce_fx="max", sync_dist=True)

    def export(self, folder: str | Path) -> Path:
        """Write the model as it is into a folder in Hugging Face form; the main process alone calls it.

        Returns:
            The folder.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save_pretrained(folder)
        return folder
