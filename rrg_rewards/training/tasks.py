"""What ``rrg-rewards train`` can train: modules, data, what chooses the checkpoint, reports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rrg_rewards.training.crepe import CrepeDataModule, CrepeModule
from rrg_rewards.training.crepe_report import crepe_report, crepe_summary
from rrg_rewards.training.er2score import ER2ScoreModule
from rrg_rewards.training.er2score_data import ER2ScoreDataModule
from rrg_rewards.training.er2score_report import er2score_report, er2score_summary
from rrg_rewards.training.report import Summary

__all__ = ["TASKS", "Task"]


@dataclass(frozen=True)
class Task:
    """What is trained.

    Args:
        name: What it is called.
        module: The LightningModule.
        data: The LightningDataModule.
        monitor: What chooses the checkpoint, as the module logs it; higher is better.
        told: What a line after each validation tells.
        links: Keys of the configuration that are equal, as (set, follows).
        report: Writes the report, as :func:`~rrg_rewards.training.crepe_report.crepe_report` does.
        summary: What a terminal shows of a report.
    """

    name: str
    module: type
    data: type
    monitor: str
    told: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    report: Callable[..., dict[str, Any]]
    summary: Callable[[dict[str, Any]], Summary]


TASKS = {
    "crepe": Task(
        "crepe",
        CrepeModule,
        CrepeDataModule,
        monitor="val/tau",
        told=("train/loss", "val/loss", "val/tau", "val/mae"),
        links=(("model.encoder", "data.tokenizer"), ("model.revision", "data.revision")),
        report=crepe_report,
        summary=crepe_summary,
    ),
    "er2score": Task(
        "er2score",
        ER2ScoreModule,
        ER2ScoreDataModule,
        monitor="val/accuracy",
        told=("train/loss", "val/loss", "val/accuracy", "val/kendall"),
        links=(
            ("model.backbone", "data.tokenizer"),
            ("model.revision", "data.revision"),
            ("model.scoring_system", "data.scoring_system"),
            ("model.prompt", "data.prompt"),
            ("model.max_length", "data.max_length"),
        ),
        report=er2score_report,
        summary=er2score_summary,
    ),
}
"""The tasks by name."""
