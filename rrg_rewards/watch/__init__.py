"""Detection of reward hacking in training, independent of any framework."""

from rrg_rewards.watch.batch import LABEL_METRIC
from rrg_rewards.watch.checks import Check, Divergence, Drift, SentenceFrames, Verdict, default_checks
from rrg_rewards.watch.recording import RewardRecorder
from rrg_rewards.watch.reward_watch import RewardWatch

__all__ = [
    "LABEL_METRIC",
    "Check",
    "Divergence",
    "Drift",
    "RewardRecorder",
    "RewardWatch",
    "SentenceFrames",
    "Verdict",
    "default_checks",
]
