"""Detection of reward hacking in training, independent of any framework."""

from rrg_rewards.judges.instructions import INSTRUCTION_KINDS, find_instructions
from rrg_rewards.watch.checks import Check, Divergence, Drift, NewSentences, SentenceFrames, Verdict, default_checks
from rrg_rewards.watch.counting import LABEL_METRIC
from rrg_rewards.watch.recording import RewardRecorder
from rrg_rewards.watch.reward_watch import RewardWatch

__all__ = [
    "INSTRUCTION_KINDS",
    "LABEL_METRIC",
    "Check",
    "Divergence",
    "Drift",
    "NewSentences",
    "RewardRecorder",
    "RewardWatch",
    "SentenceFrames",
    "Verdict",
    "default_checks",
    "find_instructions",
]
