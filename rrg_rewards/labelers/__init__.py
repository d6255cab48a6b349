"""Labelers, which convert reports to label matrices."""

from rrg_rewards.labelers.base import FallibleLabeler, Labeler, LabelledReports, label_reports
from rrg_rewards.labelers.judge import JudgeLabeler
from rrg_rewards.labelers.levels import LevelReader
from rrg_rewards.labelers.radbert import RadBertLabeler
from rrg_rewards.labelers.registry import get_labeler
from rrg_rewards.labelers.rules import RuleLabeler

__all__ = [
    "FallibleLabeler",
    "JudgeLabeler",
    "Labeler",
    "LabelledReports",
    "LevelReader",
    "RadBertLabeler",
    "RuleLabeler",
    "get_labeler",
    "label_reports",
]
