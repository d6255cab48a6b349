"""Reward functions for TRL: scores of metrics, rewards for the form of a report, and composed rewards."""

from rrg_rewards.rewards.base import AsyncMetricReward, MetricReward, Reward
from rrg_rewards.rewards.compose import AsyncComposedReward, ComposedReward, Gate, RewardPart, compose
from rrg_rewards.rewards.crg import CRGReward
from rrg_rewards.rewards.recommended import RecommendedReward
from rrg_rewards.rewards.registry import available_rewards, make_reward
from rrg_rewards.rewards.remote import RemoteReward, RemoteRewardWarning
from rrg_rewards.rewards.shaping import FormatReward, OverlongPenalty, RepetitionPenalty
from rrg_rewards.rewards.unrewarded import NoRewardError

__all__ = [
    "AsyncComposedReward",
    "AsyncMetricReward",
    "CRGReward",
    "ComposedReward",
    "FormatReward",
    "Gate",
    "MetricReward",
    "NoRewardError",
    "OverlongPenalty",
    "RecommendedReward",
    "RemoteReward",
    "RemoteRewardWarning",
    "RepetitionPenalty",
    "Reward",
    "RewardPart",
    "available_rewards",
    "compose",
    "make_reward",
]
