"""Labelers, which convert reports to label matrices."""

from rrg_rewards.labelers.base import Labeler
from rrg_rewards.labelers.radbert import RadBertLabeler
from rrg_rewards.labelers.registry import get_labeler
from rrg_rewards.labelers.rules import RuleLabeler

__all__ = ["Labeler", "RadBertLabeler", "RuleLabeler", "get_labeler"]
