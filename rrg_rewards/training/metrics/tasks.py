"""The learned metrics that ``rrg-rewards train`` can train."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.crepe import CREPE
from rrg_rewards.metrics.er2score import ER2Score
from rrg_rewards.training.metrics.crepe import CrepeModule
from rrg_rewards.training.metrics.data import CrepeDataModule, ER2ScoreDataModule
from rrg_rewards.training.metrics.er2score import ER2ScoreModule
from rrg_rewards.training.metrics.report import (
    Summary,
    crepe_report,
    crepe_summary,
    er2score_report,
    er2score_summary,
)

__all__ = ["TASKS", "Task"]


@dataclass(frozen=True)
class Task:
    """The training of a learned metric.

    Args:
        module: The LightningModule.
        data: The LightningDataModule.
        metric: The torchmetrics metric that the exported model is for.
        logged: Names of the values in the line after each validation, in addition to the losses.
        pretrained: Argument of the module that is the pretrained model. The data use its tokenizer.
        shared: Further arguments that must be equal for the module and the data.
        report: Function that writes the report; see :func:`~rrg_rewards.training.metrics.report.crepe_report`.
        summary: Function that returns the terminal summary of a report.
    """

    module: type
    data: type
    metric: Callable[..., ReportMetric]
    logged: tuple[str, ...]
    pretrained: str
    shared: tuple[str, ...]
    report: Callable[..., dict[str, Any]]
    summary: Callable[[dict[str, Any]], Summary]

    @property
    def monitor(self) -> str:
        """Name of the logged value that selects the checkpoint. Higher is better."""
        return f"val/{self.module.monitor}"  # type: ignore[attr-defined]

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Pairs (source, target) of configuration keys whose values must be equal."""
        shared = ((f"model.{name}", f"data.{name}") for name in self.shared)
        return ((f"model.{self.pretrained}", "data.tokenizer"), *shared)


TASKS = {
    "crepe": Task(
        CrepeModule,
        CrepeDataModule,
        CREPE,
        logged=("val/tau", "val/mae"),
        pretrained="encoder",
        shared=("revision", "heads"),
        report=crepe_report,
        summary=crepe_summary,
    ),
    "er2score": Task(
        ER2ScoreModule,
        ER2ScoreDataModule,
        ER2Score,
        logged=("val/accuracy", "val/kendall"),
        pretrained="backbone",
        shared=("revision", "scoring_system", "prompt", "max_length"),
        report=er2score_report,
        summary=er2score_summary,
    ),
}
"""The tasks by name."""
