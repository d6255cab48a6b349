"""The metrics as torchmetrics: state and argument checks; the formulas are in ``functional``."""

from rrg_rewards.metrics.base import ReportMetric, Scores
from rrg_rewards.metrics.crg import CRGScore, LabelScores, MultiLevelCRGScore, ReportCRG

__all__ = ["CRGScore", "LabelScores", "MultiLevelCRGScore", "ReportCRG", "ReportMetric", "Scores"]
