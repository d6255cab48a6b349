"""A reward function of a batch and its columns, for trainers that accept ``None``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rrg_rewards.integrations.common.scoring import TRAINER_COLUMNS, TrainerReward
from rrg_rewards.integrations.common.settings import TrainerSettings, read_settings
from rrg_rewards.rewards.base import check_names
from rrg_rewards.rewards.completions import Completion
from rrg_rewards.rewards.compose import SHAPING_OPTIONS
from rrg_rewards.rewards.registry import parse_reward


class BatchReward:
    """A synchronous reward function that reads columns of the data set.

    Args:
        settings: The settings. Without ``missing``, the reward of an unscorable completion is ``None``.

    Raises:
        ValueError: If the settings are invalid.

    Example:
        >>> reward = BatchReward(read_settings({"reward": {"name": "crg", "prior": 0.2}}))
        >>> reward(["Cardiomegaly.", "<think>...</think>Cardiomegaly."], reference=["Cardiomegaly.", None])
        [0.277..., None]
    """

    def __init__(self, settings: TrainerSettings) -> None:
        self._reward = TrainerReward(settings)
        self.__name__ = self._reward.__name__

    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]:
        """Reward ``N`` completions.

        Args:
            completions: The completions.
            columns: ``N`` values of each column, and further arguments of the trainer.

        Raises:
            ValueError: If a column that the reward reads is missing, or has another length.
        """
        return [one.reward for one in self._reward.reward_batch(completions, self._rows(columns, len(completions)))]

    def _rows(self, columns: Mapping[str, Any], length: int) -> list[Mapping[str, Any]]:
        name = self._reward.settings.reference_column
        self._reward.reward.warn_of_unread(columns)
        read = [one for one in (*self._reward.reward.columns, *TRAINER_COLUMNS, name) if one in columns]
        for column in read:
            if len(columns[column]) != length:
                raise ValueError(f"column {column!r} has {len(columns[column])} values for {length} completions")
        rows = [{column: columns[column][place] for column in read} for place in range(length)]
        return [self._reward.read_columns(row) for row in rows]


def make_batch_rewards(arguments: Mapping[str, Any] | None = None) -> dict[str, BatchReward]:
    """Make the reward functions of settings, by name. Each entry of a list of rewards is a function of its own.

    Args:
        arguments: Arguments of :func:`rrg_rewards.integrations.common.settings.read_settings`.

    Raises:
        ValueError: If the settings are invalid, two rewards have the same name, or an entry of a list has an option of
            a part of a composed reward, such as ``weight``.

    Example:
        >>> list(make_batch_rewards({"reward": ["rouge", {"name": "repetition", "as": "loops"}]}))
        ['rouge', 'loops']
    """
    settings = read_settings(arguments)
    entries = settings.reward if isinstance(settings.reward, list) else [settings.reward]
    rewards: dict[str, BatchReward] = {}
    for entry in entries:
        if isinstance(settings.reward, list):
            _check_entry(entry)
        name = parse_reward(entry, settings.reference_column).logged_name
        check_names([*rewards, name])
        rewards[name] = BatchReward(replace(settings, reward=entry))
    return rewards


def _check_entry(entry: Any) -> None:
    found = [option for option in SHAPING_OPTIONS if isinstance(entry, Mapping) and option in entry]
    if found:
        raise ValueError(
            f"reward {entry.get('name')!r} has the option {found[0]}, but each entry of the list is a reward function "
            "of its own; set the trainer's weights (reward_weights), or make one reward of the list: "
            "reward: {name: composed, parts: [...]}"
        )
