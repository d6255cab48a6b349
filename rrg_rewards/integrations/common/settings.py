"""Settings of a reward for a trainer: keyword arguments, a YAML file, or an environment variable."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from rrg_rewards.data.tables.table import Table
from rrg_rewards.rewards.base import Reward
from rrg_rewards.rewards.fitting import fit_reward, reward_columns
from rrg_rewards.rewards.registry import make_reward, name_and_options
from rrg_rewards.rewards.unrewarded import MAX_UNREWARDED_CALLS
from rrg_rewards.utilities.checks import is_finite
from rrg_rewards.utilities.names import shown
from rrg_rewards.utilities.settings import Settings, setting
from rrg_rewards.utilities.yaml_files import check_keys, parse_yaml, read_user_yaml
from rrg_rewards.version import __version__

CONFIG_VARIABLE = "RRG_REWARDS_CONFIG"
"""Environment variable with the path of the YAML file of settings, or with the settings as a YAML mapping ``{...}``."""

Missing = float | Literal["mean"]


@dataclass(frozen=True, kw_only=True)
class TrainerSettings(Settings):
    """Settings of a reward for a trainer.

    Args:
        reward: Name of the reward, or a mapping with ``name`` and options of
            :func:`rrg_rewards.rewards.make_reward`, or a list of them, which are the parts of a composed reward.
        reference_column: Column of the reference reports. A trainer's ground truth that is a plain text is in it.
        missing: Reward of unscorable completions for trainers that need a number for each completion: a number, or
            ``"mean"``: the mean reward of the other completions of the same row in the call, or if there are none, of
            all completions of the call, or if there are none, of all that the process has scored before.
        log_details: Pass all sub-scores to the trainer, not only the main ones.
        score_range: Two rewards that become 0 and 1 in the scores that OpenRLHF filters by. Default: the rewards.
        max_batch: Maximum number of completions that are scored together, if the trainer passes them one by one.
        max_wait_ms: Milliseconds that a completion waits for others.
        max_unrewarded_calls: Number of calls in a row without any reward after which an error ends the run; ``None``
            for no limit. If the trainer passes completions one by one, ``max_batch`` of them count as a call.
        fitted: Record of ``rrg-rewards fit``, which has no effect.

    Raises:
        ValueError: If a setting is invalid; the message names it.
    """

    reward: Any
    reference_column: str = "reference"
    missing: Missing | None = None
    log_details: bool = False
    score_range: Sequence[float] | None = None
    max_batch: int = setting(32, minimum=1)
    max_wait_ms: float = setting(5.0, minimum=0)
    max_unrewarded_calls: int | None = setting(MAX_UNREWARDED_CALLS, minimum=1)
    fitted: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.missing is not None and self.missing != "mean" and not is_finite(self.missing):
            raise ValueError(f"missing must be a finite number or mean, got {shown(self.missing)}")
        if self.score_range is not None and not _are_bounds(self.score_range):
            raise ValueError(f"score_range must be two increasing numbers, got {shown(self.score_range)}")

    def make_reward(self) -> Reward:
        """Make the reward.

        Raises:
            ValueError: If a name or an option is unknown, or the reward estimates a setting from data: processes that
                share no statistics would estimate different values.
        """
        name, options = name_and_options(self.reward, self.reference_column)
        reward = make_reward(name, **options)
        reward.log_details = reward.log_details or self.log_details
        if reward.estimated:
            raise ValueError(
                f"reward {reward.__name__!r} estimates {', '.join(reward.estimated)} from data, and the processes of "
                "the trainer share no statistics. rrg-rewards fit writes settings with "
                "numbers: use its file; or give numbers"
            )
        return reward


def read_settings(arguments: Mapping[str, Any] | None = None) -> TrainerSettings:
    """Return the settings of a reward for a trainer.

    Args:
        arguments: The settings, or ``config``, the path of a YAML or JSON file of settings or a mapping of them, and
            settings that replace those. Without any, the settings are those of ``RRG_REWARDS_CONFIG``.

    Raises:
        ValueError: If a setting is unknown or invalid, or there are none.
        FileNotFoundError: If the file does not exist.

    Example:
        >>> read_settings({"reward": {"name": "crg", "prior": 0.2}, "missing": -1}).missing
        -1
    """
    given = dict(_plain(arguments or {}))
    where = "settings"
    if not given:
        where, given = f"environment variable {CONFIG_VARIABLE}", _from_environment()
    if isinstance(config := given.pop("config", None), Mapping):
        given = {**config, **given}
    elif config is not None:
        where, given = str(config), {**read_settings_file(config), **given}
    known = [field.name for field in fields(TrainerSettings)]
    return TrainerSettings(**check_keys(where, given, known, ["reward"]))


def read_settings_file(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML or JSON file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file contains no mapping.
    """
    try:
        # PyYAML reads 1e-05, as JSON writes small numbers, as a text.
        settings = json.loads(Path(path).read_bytes())
    except (ValueError, OSError, RecursionError):
        return read_user_yaml(path)
    return settings if isinstance(settings, dict) else read_user_yaml(path)


def fit_settings(settings: Mapping[str, Any], table: Table) -> tuple[dict[str, Any], Reward]:
    """Fit the reward of settings to a training set; see :func:`rrg_rewards.rewards.fitting.fit_reward`.

    Args:
        settings: The settings as a mapping.
        table: The training set.

    Returns:
        The settings with numbers and with the record ``fitted``, and their reward.

    Raises:
        ValueError: If a setting cannot be fitted, or a column is missing.

    Example:
        >>> table = Table({"reference": ["Cardiomegaly.", "Hiatal hernia.", "Normal."]})
        >>> fit_settings({"reward": "crg"}, table)[0]["reward"]
        {'name': 'crg', 'prior': 0.037...}
    """
    setting, name = settings["reward"], settings.get("reference_column", "reference")
    columns = {
        column: table.texts(column) if column == name else table.values(column)
        for column in reward_columns(setting, name)
    }
    fitted = {**settings, "reward": fit_reward(setting, columns, name)}
    reward = read_settings(fitted).make_reward()
    record = {"rows": len(table), "signature": reward.signature, "version": __version__}
    return {**fitted, "fitted": record}, reward


def _from_environment() -> dict[str, Any]:
    value = os.environ.get(CONFIG_VARIABLE, "").strip()
    if not value:
        raise ValueError(
            f"there are no settings of the reward: set the environment variable {CONFIG_VARIABLE} to the path of a "
            "YAML file, or to a mapping such as {reward: crimson, missing: -1}"
        )
    if not value.startswith("{"):
        return {"config": Path(value)}
    try:
        settings: dict[str, Any] = parse_yaml(value)
    except ValueError as error:
        raise ValueError(f"environment variable {CONFIG_VARIABLE}: {error}") from error
    return settings


def _plain(value: Any) -> Any:
    """Return mappings and lists of other types, such as Hydra's, as those of Python."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(one) for one in value]
    return value


def settings_key(arguments: Mapping[str, Any] | None) -> str:
    """Return a text that is equal for equal arguments of :func:`read_settings`."""
    given = _plain(arguments or {})
    return json.dumps(given or os.environ.get(CONFIG_VARIABLE, ""), default=repr, sort_keys=True)


def _are_bounds(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(is_finite, value)) and value[0] < value[1]
