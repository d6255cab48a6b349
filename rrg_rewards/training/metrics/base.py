"""Base class of modules that train learned metrics."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric

from rrg_rewards.models.loading import outside_zero_init
from rrg_rewards.training.base import OptimizerSettings, TrainingModule

_HELD_OUT = ("val", "test")


class LearnedMetricModule(TrainingModule, ABC):
    """Base class of modules that train a model in Hugging Face format to score report pairs.

    Each validation and each test logs the losses and the agreement of predictions with true scores over all processes,
    for all data and for each source.

    Subclasses build the model and an agreement metric, and evaluate batches. The value of the agreement metric is
    logged as ``<stage>/<monitor>``, and as ``<stage>/<source_monitor>`` for each source.

    Args:
        optimizer: Settings of the optimiser.
    """

    monitor: ClassVar[str]
    source_monitor: ClassVar[str]
    """Name of the agreement for one source; ``{source}`` is replaced by the name of the source."""

    # Metrics of the loss terms by stage ("fit", "val", "test"), of the agreement by stage, and by stage and source.
    terms: Any
    agreement: Any
    by_source: Any
    source_names: tuple[str, ...]

    def __init__(self, optimizer: OptimizerSettings) -> None:
        super().__init__(optimizer)
        self.model: Any = None

    @abstractmethod
    def build_model(self) -> nn.Module:
        """Build the model to train on the CPU."""

    @abstractmethod
    def make_agreement(self) -> Metric:
        """Build the metric that compares predictions with true scores."""

    @abstractmethod
    def loss_terms(self) -> tuple[str, ...]:
        """Return the names of the loss terms that are logged."""

    @abstractmethod
    def evaluate(self, batch: dict[str, Tensor], stage: str) -> tuple[Tensor, ...]:
        """Return the arguments of the agreement metric's ``update`` for a batch, each with one row per report."""

    def log_losses(self, stage: str) -> None:
        """Log the loss terms of a validation or test."""
        self.log_terms(stage, stage)

    # ZeRO-3 would partition weights while they are built, which transformers cannot do. The strategy does it later.
    @outside_zero_init()
    def configure_model(self) -> None:
        """Build the model and the metrics unless they exist. All processes draw the same new weights."""
        if self.model is not None:
            return
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.model = self.build_model()
        self.source_names = self.trainer.datamodule.source_names
        self.terms = nn.ModuleDict(
            {stage: nn.ModuleDict({name: MeanMetric() for name in self.loss_terms()}) for stage in ("fit", *_HELD_OUT)}
        )
        self.agreement = nn.ModuleDict({stage: self.make_agreement() for stage in _HELD_OUT})
        self.by_source = nn.ModuleDict(
            {stage: nn.ModuleList(self.make_agreement() for _ in self.source_names) for stage in _HELD_OUT}
        )

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:  # noqa: ARG002 (Lightning's)
        """Add a batch to the metrics of the validation."""
        self._update(batch, "val")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:  # noqa: ARG002 (Lightning's)
        """Add a batch to the metrics of the test."""
        self._update(batch, "test")

    def on_validation_epoch_end(self) -> None:
        """Log the training losses since the last validation, and the results of the validation."""
        if self.trainer.sanity_checking:
            for metric in (*self.terms["val"].values(), self.agreement["val"], *self.by_source["val"]):
                metric.reset()
            return
        self.log_terms("fit", "train")
        self._log_stage("val")

    def on_test_epoch_end(self) -> None:
        """Log the results of the test."""
        self._log_stage("test")

    def log_terms(self, stage: str, prefix: str) -> None:
        """Log the means of the loss terms."""
        for name, metric in self.terms[stage].items():
            self.log(f"{prefix}/{name}", metric, metric_attribute=f"terms.{stage}.{name}")

    def log_values(self, values: Iterable[tuple[str, Tensor]]) -> None:
        """Log values that are equal in all processes."""
        for name, value in values:
            # Reduce equal values by the maximum, which is exact. A mean may round.
            self.log(name, value, reduce_fx="max", sync_dist=True)

    def export(self, folder: str | Path) -> Path:
        """Write the model to a folder in Hugging Face format; call it in the main process only.

        Returns:
            The folder.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save_pretrained(folder)
        return folder

    def _update(self, batch: dict[str, Tensor], stage: str) -> None:
        values = self.evaluate(batch, stage)
        self.agreement[stage].update(*values)
        for index, metric in enumerate(self.by_source[stage]):
            chosen = batch["source"] == index
            metric.update(*(value[chosen] for value in values))

    def _log_stage(self, stage: str) -> None:
        self.log_losses(stage)
        agreement = self.agreement[stage]
        # Log the metric instead of its value, so that Lightning reduces its states and resets it.
        self.log(f"{stage}/{self.monitor}", agreement, prog_bar=True, metric_attribute=f"agreement.{stage}")
        self.log_values((f"{stage}/{name}", value) for name, value in agreement.statistics().items())
        for index, (source, metric) in enumerate(zip(self.source_names, self.by_source[stage], strict=True)):
            name = self.source_monitor.format(source=source)
            self.log(f"{stage}/{name}", metric, metric_attribute=f"by_source.{stage}.{index}")
