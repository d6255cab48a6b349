"""Reports to label matrices."""

from rrg_rewards.labelers.base import Labeler
from rrg_rewards.labelers.rules import RuleLabeler

__all__ = ["Labeler", "RuleLabeler"]
