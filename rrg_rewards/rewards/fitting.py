"""Settings of rewards with numbers in the place of what would be estimated from data in training."""

from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.rewards.base import Reward
from rrg_rewards.rewards.completions import as_completions
from rrg_rewards.rewards.compose import SHAPING_OPTIONS, RunningMoments
from rrg_rewards.rewards.registry import make_reward, name_and_options

_BATCH = 256


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
    completions: Sequence[str | None] | None = None,
    reference_column: str = "reference",
) -> Any:
    """Return the setting of a reward with fixed numbers, which are the same in all processes that read it.

    A prior of ``"dataset"`` becomes the prior of the references. ``normalize: true`` of a part of a composed reward
    becomes the mean and standard deviation of the rewards of the completions.

    Args:
        setting: Name of a reward, a mapping with ``name`` and options, or a list of them.
        columns: The columns of the training set that the reward reads; see :func:`reward_columns`.
        completions: A completion for each row, such as reports of the policy before training; needed for ``normalize``.
            ``None`` for rows that have none.
        reference_column: Default column of the references.

    Raises:
        ValueError: If a setting cannot be fitted, or completions are needed.

    Example:
        >>> fit_reward("crg", {"reference": ["Cardiomegaly.", "Hiatal hernia.", "Normal."]})
        {'name': 'crg', 'prior': 0.037...}
        >>> fit_reward([{"name": "rouge", "normalize": True}], {"reference": ["Edema."] * 2}, ["Edema.", "Nodule."])
        [{'name': 'rouge', 'normalize': [0.5, 0.707...]}]
    """
    if not isinstance(setting, str | Mapping):
        return [fit_reward(one, columns, completions, reference_column) for one in setting]
    entry: dict[str, Any] = {"name": setting} if isinstance(setting, str) else dict(setting)
    if entry["name"] == "composed":
        own = entry.get("reference_column", reference_column)
        return {**entry, "parts": fit_reward(entry["parts"], columns, completions, own)}
    reward = _reward(entry, reference_column).fit(**columns)
    fitted = {**entry, **reward.fitted_options()}
    if entry.get("normalize") is True:
        if completions is None:
            raise ValueError(
                f"normalize of {reward.__name__!r} is measured on completions: pass them, on the command line by "
                "`prediction_column`"
            )
        fitted["normalize"] = _moments(reward, completions, columns)
    return fitted


def _moments(reward: Any, completions: Sequence[str | None], columns: Mapping[str, Sequence[Any]]) -> list[float]:
    moments = RunningMoments()
    for start in range(0, len(completions), _BATCH):
        rows = slice(start, start + _BATCH)
        given = {name: column[rows] for name, column in columns.items()}
        rewards = reward.rewards(reward.score(as_completions(completions[rows]), **given))
        moments.add(value for value in rewards if value is not None)
    if moments.count < 2:
        raise ValueError(f"normalize of {reward.__name__!r} needs two scored completions, got {moments.count}")
    return [moments.mean, moments.deviation]


def _reward(entry: Any, reference_column: str) -> Reward:
    name, options = name_and_options(entry, reference_column)
    return make_reward(name, **{key: value for key, value in options.items() if key not in SHAPING_OPTIONS})
