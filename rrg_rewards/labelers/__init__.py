"""Labelers: reports to label matrices."""

from rrg_rewards.labelers.base import Labeler
from rrg_rewards.labelers.radbert import RadBertLabeler
from rrg_rewards.labelers.registry import get_labeler

__all__ = ["Labeler", "RadBertLabeler", "get_labeler"]
