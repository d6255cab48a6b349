"""Rewards as they stand in a recipe."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rrg_rewards.rewards import Reward, make_reward

__all__ = ["RewardSetting", "parse_reward"]


@dataclass(frozen=True)
class RewardSetting:
    """One reward of a recipe.

    Args:
        name: Name of the reward, as :func:`rrg_rewards.rewards.make_reward` takes it.
        weight: Factor of the reward in the sum of all.
        options: Arguments of the reward.
    """

    name: str
    weight: float
    options: Mapping[str, Any]

    @property
    def logged_name(self) -> str:
        """Name under which the reward is logged."""
        return str(self.options.get("name", self.name))

    def make(self) -> Reward:
        """Make the reward."""
        return make_reward(self.name, **self.options)


def parse_reward(setting: str | Mapping[str, Any], reference_column: str) -> RewardSetting:
    """Read a reward: its name, a mapping, or a mapping as JSON.

    Args:
        setting: ``name`` and, if set, ``weight`` (default 1), ``as`` (name under which it is logged) and options.
        reference_column: Column of references, unless the reward sets its own.

    Raises:
        ValueError: If the setting is malformed, naming the key.

    Example:
        >>> parse_reward({"name": "crg", "weight": 2, "prior": "running"}, "impression")
        RewardSetting(name='crg', weight=2.0, options={'reference_column': 'impression', 'prior': 'running'})
    """
    if isinstance(setting, str):
        setting = json.loads(setting) if setting.lstrip().startswith("{") else {"name": setting}
    if not isinstance(setting, Mapping) or not isinstance(setting.get("name"), str):
        raise ValueError(f"rewards: each must be a name, or a mapping with a name, got {setting!r}")
    options = {"reference_column": reference_column, **setting}
    name = options.pop("name")
    weight = options.pop("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise ValueError(f"rewards: weight of {name!r} must be a number, got {weight!r}")
    if "as" in options:
        options["name"] = options.pop("as")
    return RewardSetting(name, float(weight), options)
