"""Reward callables for TRL: a metric's per-report score with a sign."""

from rrg_rewards.rewards.asynchronous import AsyncMetricReward
from rrg_rewards.rewards.base import MetricReward
from rrg_rewards.rewards.crepe import CrepeReward
from rrg_rewards.rewards.crg import CRGReward
from rrg_rewards.rewards.registry import available_rewards, make_reward

__all__ = ["AsyncMetricReward", "CRGReward", "CrepeReward", "MetricReward", "available_rewards", "make_reward"]
