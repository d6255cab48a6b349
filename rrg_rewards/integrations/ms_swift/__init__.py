"""Rewards for ms-swift: ``swift rlhf --external_plugins .../ms_swift/rrg_plugin.py --reward_funcs NAME ...``.

The file that the environment variable ``RRG_REWARDS_CONFIG`` names contains the settings
(:class:`rrg_rewards.integrations.common.settings.TrainerSettings`). Each entry of
a list of rewards is a reward function of its own.
"""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from rrg_rewards.integrations.common.batch_reward import BatchReward, make_batch_rewards

__all__ = ["register_rewards"]


def register_rewards(
    registry: MutableMapping[str, Callable[..., Any]], settings: Mapping[str, Any] | None = None
) -> None:
    """Add the rewards of the settings to ms-swift's registry ``orms`` under their names.

    ms-swift logs the name of the class of a reward, so each reward has a class of its own.

    Args:
        registry: ms-swift's ``swift.rewards.orms``.
        settings: Arguments of :func:`rrg_rewards.integrations.common.settings.read_settings`. Default: the settings of
            the environment variable ``RRG_REWARDS_CONFIG``.

    Raises:
        ValueError: If the settings are invalid, or the registry has another reward of this name.

    Example:
        >>> orms = {}
        >>> register_rewards(orms, {"reward": [{"name": "crg", "prior": 0.2}, "rouge"]})
        >>> reward = orms["crg"](args=None)
        >>> type(reward).__name__, reward(["Cardiomegaly."], reference=["Cardiomegaly."])
        ('crg', [0.277...])
    """
    for name, reward in make_batch_rewards(settings).items():
        if name in registry:
            raise ValueError(f"ms-swift has a reward called {name!r}; give this one another name (as)")
        registry[name] = _make_class(name, reward)


def _make_class(name: str, reward: BatchReward) -> type[Any]:
    def initialise(self: Any, args: Any = None, **options: Any) -> None:  # noqa: ARG001 (ms-swift's)
        self.args = args

    def call(self: Any, completions: Any, **columns: Any) -> list[float | None]:  # noqa: ARG001
        return reward(completions, **columns)

    return type(name, (), {"__init__": initialise, "__call__": call, "__doc__": f"The reward {name}."})
