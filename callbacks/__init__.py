"""Callbacks for Lightning, and for the trainers of transformers and TRL.

Names are imported at their first use, for the former need Lightning and the latter transformers.
"""

if __name__ != "rrg_rewards.callbacks":
    raise ImportError(f"import this package as rrg_rewards.callbacks, not as {__name__}")

from typing import TYPE_CHECKING

from rrg_rewards.utilities.lazy import lazy_names

if TYPE_CHECKING:
    from rrg_rewards.callbacks.report_metrics import ReportMetricsCallback
    from rrg_rewards.callbacks.reward_state import RewardStateCallback
    from rrg_rewards.callbacks.reward_watch import RewardWatchCallback
    from rrg_rewards.callbacks.samplers import UnpaddedDistributedSampler
    from rrg_rewards.callbacks.trainer_reward_state import TrainerRewardStateCallback
    from rrg_rewards.callbacks.trainer_reward_watch import TrainerRewardWatchCallback

__all__ = [
    "ReportMetricsCallback",
    "RewardStateCallback",
    "RewardWatchCallback",
    "TrainerRewardStateCallback",
    "TrainerRewardWatchCallback",
    "UnpaddedDistributedSampler",
]

__getattr__ = lazy_names(
    __name__,
    {
        "ReportMetricsCallback": "report_metrics",
        "RewardStateCallback": "reward_state",
        "RewardWatchCallback": "reward_watch",
        "TrainerRewardStateCallback": "trainer_reward_state",
        "TrainerRewardWatchCallback": "trainer_reward_watch",
        "UnpaddedDistributedSampler": "samplers",
    },
)
