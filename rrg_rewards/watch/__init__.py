"""Detection of reward hacking in training, and search of exploits before it; independent of any framework."""

from rrg_rewards.watch.attack import AttackResult, FamilyResult, attack_reward, draw_attack
from rrg_rewards.watch.checks import Check, Divergence, Drift, Verdict
from rrg_rewards.watch.default_checks import default_checks
from rrg_rewards.watch.html_page import write_watch_page
from rrg_rewards.watch.instructions import INSTRUCTION_KINDS, find_instructions
from rrg_rewards.watch.new_sentences import NewSentences
from rrg_rewards.watch.recording import RewardRecorder
from rrg_rewards.watch.reward_watch import LABEL_METRIC, RewardWatch
from rrg_rewards.watch.session import WatchSession

__all__ = [
    "INSTRUCTION_KINDS",
    "LABEL_METRIC",
    "AttackResult",
    "Check",
    "Divergence",
    "Drift",
    "FamilyResult",
    "NewSentences",
    "RewardRecorder",
    "RewardWatch",
    "Verdict",
    "WatchSession",
    "attack_reward",
    "default_checks",
    "draw_attack",
    "find_instructions",
    "write_watch_page",
]
