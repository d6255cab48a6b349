"""Base classes of modules and data modules: optimiser, schedule, reproducible steps, and resumable loaders."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DeepSpeedStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from rrg_rewards.training.checkpoints import WholeFileCheckpointIO
from rrg_rewards.utilities.checkpoints import check_optimizer_state
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.processes import gather_objects
from rrg_rewards.utilities.settings import SettingError, Settings, setting

ScheduleName = Literal["linear", "cosine", "constant"]

MAX_SKIPPED_STEPS = 10
"""Number of steps in a row without finite gradients after which a run ends."""


class GradientError(RuntimeError):
    """In several steps in a row, gradients were not finite."""


@dataclass(frozen=True)
class OptimizerSettings(Settings):
    """Settings of AdamW and of the learning rate schedule; see :class:`~rrg_rewards.training.PolicyModule`."""

    learning_rate: float = setting(above=0)
    weight_decay: float = setting(minimum=0)
    warmup_ratio: float = setting(minimum=0)
    schedule: ScheduleName = setting()
    seed: int = setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_ratio >= 1:
            raise SettingError("warmup_ratio", f"must lie in [0, 1), got {self.warmup_ratio}")


def _learning_rate_factor(step: int, warmup_steps: int, total_steps: int, schedule: ScheduleName) -> float:
    """Return the factor of the learning rate at a step.

    The factor rises linearly from 0 to 1 during the warm-up. Afterwards, it is constant, or falls to 0 at the last
    step, either linearly or as half a cosine.

    Args:
        step: Number of completed steps.
        warmup_steps: Number of warm-up steps.
        total_steps: Number of steps of the run.
        schedule: Schedule after the warm-up.

    Example:
        >>> [_learning_rate_factor(step, 2, 6, "linear") for step in range(7)]
        [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < warmup_steps:
        return step / warmup_steps
    if schedule == "constant":
        return 1.0
    done = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    return 1.0 - done if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return two parameter groups: weights with weight decay, and biases and norms without it.

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


def is_partitioned(module: nn.Module) -> bool:
    """Return whether DeepSpeed ZeRO-3 has partitioned weights of a module."""
    return any(hasattr(parameter, "ds_id") for parameter in module.parameters())


@contextmanager
def whole_weights(module: nn.Module) -> Iterator[None]:
    """Gather the weights of a module that DeepSpeed ZeRO-3 has partitioned, to read them. Every process must enter it.

    Example:
        >>> from torch import nn
        >>> layer = nn.Linear(2, 1)
        >>> with whole_weights(layer):
        ...     layer.weight.shape
        torch.Size([1, 2])
    """
    if not is_partitioned(module):
        yield
        return
    with require("deepspeed", extra="deepspeed").zero.GatheredParameters(list(module.parameters())):
        yield


def load_partitioned(module: nn.Module, checkpoint: str | Path) -> None:
    """Load the weights of a ZeRO-3 checkpoint of Lightning into a partitioned module. Every process must call it."""
    deepspeed = require("deepspeed", extra="deepspeed")
    convert = require("deepspeed.utils.zero_to_fp32", extra="deepspeed").get_fp32_state_dict_from_zero_checkpoint
    state = convert(str(checkpoint), tag="checkpoint")
    with deepspeed.zero.GatheredParameters(list(module.parameters()), modifier_rank=0):
        module.load_state_dict(state)


class TrainingModule(LightningModule):  # type: ignore[misc]  # Lightning is an optional dependency
    """Base class of modules that are trained by AdamW with a learning rate schedule.

    The random numbers of a step depend only on the seed, the position of the step in the run and the process. A run
    that is resumed from a checkpoint therefore repeats the steps of an uninterrupted run.

    Args:
        optimizer: Settings of the optimiser. Each setting is also an attribute of the module.
    """

    def __init__(self, optimizer: OptimizerSettings) -> None:
        super().__init__()
        self._saved_optimizers: list[Mapping[str, Any]] = []
        self._skipped, self._skipped_in_a_row = 0, 0
        # Lightning's learning rate finder sets the attribute learning_rate.
        self.__dict__.update(vars(optimizer))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the numbers of skipped steps."""
        checkpoint["skipped_steps"] = self._skipped, self._skipped_in_a_row

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the numbers of skipped steps, and keep the state of the optimiser until it can be checked."""
        if self._is_resumed:
            self._skipped, self._skipped_in_a_row = checkpoint.get("skipped_steps", (0, 0))
        # DeepSpeed and FSDP load optimisers themselves, later.
        if self._is_resumed and not self.trainer.strategy.restore_checkpoint_after_setup:
            self._saved_optimizers = list(checkpoint.get("optimizer_states", []))

    @property
    def _is_resumed(self) -> bool:
        """Whether checkpoints are loaded to continue a training."""
        return self._trainer is not None and self.trainer.state.fn == TrainerFn.FITTING

    def on_fit_start(self) -> None:
        """Let checkpoints be written completely or not at all, and check the resumed optimiser.

        Raises:
            CheckpointError: If the checkpoint has the state of an optimiser of another module.
        """
        if type(self.trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            self.trainer.strategy.checkpoint_io = WholeFileCheckpointIO()
        for saved, optimizer in zip(self._saved_optimizers, self.trainer.optimizers, strict=False):
            check_optimizer_state(saved, optimizer.param_groups, "the state of the optimiser in the checkpoint")
        self._saved_optimizers = []

    def teardown(self, stage: str) -> None:
        """Remove the hooks of an evaluation's DeepSpeed engine, which would break the training of the next engine."""
        engine = self.trainer.strategy.model
        if stage != "fit" and isinstance(self.trainer.strategy, DeepSpeedStrategy) and engine is not self:
            engine.destroy()

    def on_validation_epoch_start(self) -> None:
        """Check the numbers of batches."""
        self._check_equal_batches(self.trainer.num_val_batches)

    def on_test_epoch_start(self) -> None:
        """Check the numbers of batches."""
        self._check_equal_batches(self.trainer.num_test_batches)

    def _check_equal_batches(self, own: list[int | float]) -> None:
        """Raise an error instead of waiting forever: ZeRO-3 gathers weights in each forward pass of all processes."""
        counts = gather_objects(own) if is_partitioned(self) else [own]
        if any(count != own for count in counts):
            raise ValueError(
                f"the processes have {', '.join(str(sum(count)) for count in counts)} batches to evaluate. Under "
                "ZeRO-3 the numbers must be equal: change the batch size or the number of rows, or use ZeRO-2"
            )

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002 (Lightning's)
        """Seed the random numbers of the step."""
        # Seed each step, because the data loader draws from the same generator, at other times in a resumed run.
        torch.manual_seed(hash((self.seed, self.current_epoch, batch_idx, self.global_rank)) % 2**63)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Skip the step in all processes if the norm of the gradients is not finite, and log the number of such steps.

        Steps of gradient scalers, which skip by themselves, and of DeepSpeed, which holds gradients elsewhere, are not
        counted.

        Raises:
            GradientError: If several steps in a row are skipped.
        """
        gradients = [weights.grad for weights in self.parameters() if weights.grad is not None]
        if getattr(self.trainer.strategy.precision_plugin, "scaler", None) is not None:
            return
        # A process of FSDP may hold no gradients, and takes part all the same.
        norms = [gradient.norm(dtype=torch.float32).to(self.device) for gradient in gradients] or [
            torch.zeros((), device=self.device)
        ]
        norm = torch.stack(norms).norm()
        is_finite = getattr(norm, "full_tensor", lambda: norm)().isfinite().float()
        if self.trainer.strategy.reduce(1 - is_finite, reduce_op="sum") == 0:
            self._skipped_in_a_row = 0
            return
        optimizer.zero_grad(set_to_none=True)
        self._skipped, self._skipped_in_a_row = self._skipped + 1, self._skipped_in_a_row + 1
        self.log("skipped_steps", float(self._skipped), batch_size=1)
        rank_zero_warn(f"step {self.global_step} is skipped: its gradients are not finite ({self._skipped} so far)")
        if self._skipped_in_a_row >= MAX_SKIPPED_STEPS:
            raise GradientError(
                f"the gradients of {MAX_SKIPPED_STEPS} steps in a row, up to step {self.global_step}, are not finite: "
                "lower learning_rate, set gradient_clip_val, or check the weights of the checkpoint and the rewards"
            )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the optimiser's parameter groups. A group without ``lr`` uses the module's learning rate."""
        return parameter_groups(self, self.weight_decay)

    def configure_optimizers(self) -> dict[str, Any]:
        """Make AdamW and its schedule, which advances at each step."""
        optimizer = AdamW(self.parameter_groups(), lr=self.learning_rate)
        # Skip counting the steps for a constant rate, because Lightning may build the loader for it.
        needs_total = self.schedule != "constant" or self.warmup_ratio
        total = int(self.trainer.estimated_stepping_batches) if needs_total else 0
        warmup = math.ceil(total * self.warmup_ratio)
        schedule = self.schedule
        scheduler = LambdaLR(optimizer, lambda step: _learning_rate_factor(step, warmup, total, schedule))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class ResumableLoader(DataLoader[Any]):
    """A data loader whose position is stored in Lightning's checkpoints.

    Its ``sampler`` has an attribute ``start``: the number of batches that its next iteration skips.
    """

    _given = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # Lightning needs no more
        sampler: Any = self.sampler
        self._given = sampler.start
        for batch in super().__iter__():
            self._given += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return the number of batches that were returned in the epoch."""
        return {"given": self._given % len(self)}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Skip the batches that were returned before the checkpoint."""
        sampler: Any = self.sampler
        sampler.start = state["given"]


class ResumableDataModule(LightningDataModule):  # type: ignore[misc]  # Lightning is an optional dependency
    """Base class of data modules whose training loader is a :class:`ResumableLoader`.

    Lightning restores the state of a loader only if no schedule of the learning rate has counted the steps, for which
    it builds the loader too early. The state of a data module is restored before.
    """

    _resumed: Mapping[str, int] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the training loader for a checkpoint."""
        loader = None if self.trainer is None else self.trainer.train_dataloader
        return {"train": loader.state_dict()} if isinstance(loader, ResumableLoader) else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the position at the next :meth:`resumed`."""
        self._resumed = state_dict.get("train")

    def resumed(self, loader: ResumableLoader) -> ResumableLoader:
        """Return a new training loader at the restored position."""
        if self._resumed is not None:
            loader.load_state_dict(self._resumed)
            self._resumed = None
        return loader
