"""The reward for TRL's command line: ``trl grpo --reward_funcs rrg_rewards.integrations.trl.reward ...``.

The file that the environment variable ``RRG_REWARDS_CONFIG`` names contains the settings
(:class:`rrg_rewards.integrations.common.settings.TrainerSettings`). TRL calls the reward itself, with all columns of
the data set, logs its sub-scores, awaits its judge, and leaves unscorable completions out.
"""

from dataclasses import fields

from rrg_rewards.integrations.common.settings import read_settings
from rrg_rewards.rewards.base import Reward

# `reward` is made when TRL takes it, so that its settings are checked before the training starts.
__all__: list[str] = []

_READ = frozenset({"reward", "reference_column", "log_details", "fitted"})


def __getattr__(name: str) -> Reward:
    if name != "reward":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    settings = read_settings()
    other = [field.name for field in fields(settings) if getattr(settings, field.name) != field.default]
    if unread := [name for name in other if name not in _READ]:
        raise ValueError(
            f"{', '.join(unread)}: not for TRL, which calls a reward with whole batches and leaves unscorable "
            "completions out; remove it from the settings"
        )
    return settings.make_reward()
