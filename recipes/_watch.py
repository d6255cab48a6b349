"""Construction of the reward watch from the arguments of a recipe."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rrg_rewards.callbacks.trainers import TrainerRewardWatchCallback
from rrg_rewards.recipes._arguments import WatchArguments
from rrg_rewards.rewards import Reward
from rrg_rewards.watch import RewardWatch

__all__ = ["make_watch", "make_watch_metrics", "parse_limits"]


def parse_limits(settings: Sequence[str]) -> dict[str, Mapping[str, Any] | bool]:
    """Parse limits of checks: ``check.option=value``, or ``check=false`` to disable the check.

    Raises:
        ValueError: If a setting is malformed.

    Example:
        >>> parse_limits(["longer.factor=2.0", "undercalled=false"])
        {'longer': {'factor': 2.0}, 'undercalled': False}
    """
    limits: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        check, _, option = key.partition(".")
        if not equals or not check:
            raise ValueError(f"watch_limits: must be CHECK.OPTION=VALUE or CHECK=false, got {setting!r}")
        parsed = yaml.safe_load(value)
        if not option:
            limits[check] = parsed
        elif isinstance(limits.setdefault(check, {}), dict):
            limits[check][option] = parsed
    return limits


def make_watch_metrics(recipe: WatchArguments) -> list[Reward]:
    """Return the held-out metrics of a recipe, or an empty list if the watch is disabled."""
    return [setting.make() for setting in recipe.watch_metric_settings()] if recipe.watch else []


def make_watch(
    recipe: WatchArguments,
    metrics: Sequence[Reward],
    folder: str | Path | None,
    callback: Callable[..., Any] = TrainerRewardWatchCallback,
) -> Any:
    """Return the callback of a recipe, or ``None`` if the watch is disabled.

    Args:
        recipe: The recipe's arguments.
        metrics: Fitted held-out metrics.
        folder: Folder for ``reward_watch.html``.
        callback: Class of the callback.

    Raises:
        ValueError: If a check or limit is unknown, or a number is out of range.
    """
    if not recipe.watch:
        return None
    watch = RewardWatch(
        labeler=recipe.watch_labeler or None,
        stop=True if recipe.watch_stop == ["all"] else recipe.watch_stop,
        block_reports=recipe.watch_block_reports,
        baseline_reports=recipe.watch_baseline_reports,
        window_reports=recipe.watch_window_reports,
        limits=parse_limits(recipe.watch_limits),
    )
    return callback(
        metrics,
        watch=watch,
        reference_column=recipe.reference_column,
        metric_every=recipe.watch_metric_every,
        folder=folder,
    )
