"""Training of learned metrics with Lightning, from one YAML file: ``rrg-rewards train``."""

from rrg_rewards.utilities.imports import require

# Before the modules that import them by name: where one is missing, this says which extra installs it.
require("lightning.pytorch", extra="train")
require("transformers", extra="train")

from rrg_rewards.training.crepe import CrepeDataModule, CrepeModule  # noqa: E402
from rrg_rewards.training.er2score import ER2ScoreModule  # noqa: E402
from rrg_rewards.training.er2score_data import ER2ScoreDataModule  # noqa: E402
from rrg_rewards.training.error_sources import ComparedReports, PhantomErrors, ReportErrors  # noqa: E402
from rrg_rewards.training.sources import GradedReports, JsonlRecords, RecordSource, ReportSource  # noqa: E402

__all__ = [
    "ComparedReports",
    "CrepeDataModule",
    "CrepeModule",
    "ER2ScoreDataModule",
    "ER2ScoreModule",
    "GradedReports",
    "JsonlRecords",
    "PhantomErrors",
    "RecordSource",
    "ReportErrors",
    "ReportSource",
]
