"""Statistical detection of reward hacking, independent of any framework."""

from rrg_rewards.watch.checks import Check, Divergence, Drift, Verdict, default_checks
from rrg_rewards.watch.html_page import write_watch_page
from rrg_rewards.watch.instructions import INSTRUCTION_KINDS, find_instructions
from rrg_rewards.watch.recording import RewardRecorder
from rrg_rewards.watch.reward_watch import LABEL_METRIC, RewardWatch
from rrg_rewards.watch.session import WatchSession

__all__ = [
    "INSTRUCTION_KINDS",
    "LABEL_METRIC",
    "Check",
    "Divergence",
    "Drift",
    "RewardRecorder",
    "RewardWatch",
    "Verdict",
    "WatchSession",
    "default_checks",
    "find_instructions",
    "write_watch_page",
]
