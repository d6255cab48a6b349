"""Detection of reward hacking in training, and search of exploits before it; independent of any framework."""

from rrg_rewards.judges.instructions import INSTRUCTION_KINDS, find_instructions
from rrg_rewards.watch.attack.attack_reward import attack_reward
from rrg_rewards.watch.attack.results import AttackResult, FamilyResult, RewardCheck
from rrg_rewards.watch.checks import Check, Divergence, Drift, NewSentences, SentenceFrames, Verdict, default_checks
from rrg_rewards.watch.counting import LABEL_METRIC
from rrg_rewards.watch.recording import RewardRecorder
from rrg_rewards.watch.reward_watch import RewardWatch

__all__ = [
    "INSTRUCTION_KINDS",
    "LABEL_METRIC",
    "AttackResult",
    "Check",
    "Divergence",
    "Drift",
    "FamilyResult",
    "NewSentences",
    "RewardCheck",
    "RewardRecorder",
    "RewardWatch",
    "SentenceFrames",
    "Verdict",
    "attack_reward",
    "default_checks",
    "find_instructions",
]
