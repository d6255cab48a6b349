"""Settings of rewards with numbers in the place of what would be estimated from data in training."""

from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.rewards.base import Reward
from rrg_rewards.rewards.compose import SHAPING_OPTIONS
from rrg_rewards.rewards.registry import make_reward, name_and_options


def reward_columns(setting: Any, reference_column: str) -> tuple[str, ...]:
    """Return the columns that the reward of a setting reads.

    Example:
        >>> reward_columns([{"name": "crimson", "age_column": "PatientAge"}, "repetition"], "report")
        ('report', 'PatientAge')
    """
    entries = [setting] if isinstance(setting, str | Mapping) else list(setting)
    found: dict[str, None] = {}
    for entry in entries:
        found.update(dict.fromkeys(_reward(entry, reference_column).columns))
    return tuple(found)


def fit_reward(
    setting: Any,
    columns: Mapping[str, Sequence[Any]],
    reference_column: str = "reference",
) -> Any:
    """Return the setting of a reward with fixed numbers, which are the same in all processes that read it.

    A prior of ``"dataset"`` becomes the prior of the references.

    Args:
        setting: Name of a reward, a mapping with ``name`` and options, or a list of them.
        columns: The columns of the training set that the reward reads; see :func:`reward_columns`.
        reference_column: Default column of the references.

    Raises:
        ValueError: If a setting cannot be fitted.

    Example:
        >>> fit_reward("crg", {"reference": ["Cardiomegaly.", "Hiatal hernia.", "Normal."]})
        {'name': 'crg', 'prior': 0.037...}
    """
    if not isinstance(setting, str | Mapping):
        return [fit_reward(one, columns, reference_column) for one in setting]
    entry: dict[str, Any] = {"name": setting} if isinstance(setting, str) else dict(setting)
    if entry["name"] == "composed":
        own = entry.get("reference_column", reference_column)
        return {**entry, "parts": fit_reward(entry["parts"], columns, own)}
    reward = _reward(entry, reference_column).fit(**columns)
    return {**entry, **reward.fitted_options()}


def _reward(entry: Any, reference_column: str) -> Reward:
    name, options = name_and_options(entry, reference_column)
    return make_reward(name, **{key: value for key, value in options.items() if key not in SHAPING_OPTIONS})
