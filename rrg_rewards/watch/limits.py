"""Changes to the limits of checks, and the selection of checks that stop a run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.watch.checks import Check

__all__ = ["change_checks", "get_stopping_checks"]


def change_checks(checks: Sequence[Check], limits: Mapping[str, Mapping[str, Any] | bool]) -> tuple[Check, ...]:
    """Return the checks with changed arguments.

    Args:
        checks: The checks.
        limits: New arguments by name of the check; ``False`` removes the check.

    Raises:
        ValueError: If a check or an argument is unknown; the message names the nearest known one.

    Example:
        >>> from rrg_rewards.watch.default_checks import default_checks
        >>> change_checks(default_checks(), {"longer": {"factor": 2.0}})[0].factor
        2.0
    """
    by_name = {check.name: check for check in checks}
    for name, change in limits.items():
        if name not in by_name:
            raise ValueError(unknown_name_message("check", name, [check.name for check in checks]))
        if change is False:
            del by_name[name]
        elif isinstance(change, Mapping):
            known = [key for key in vars(by_name[name]) if key != "name"]
            for key in change:
                if key not in known:
                    raise ValueError(unknown_name_message(f"limit of check {name!r}", key, known))
            by_name[name] = replace(by_name[name], **change)  # type: ignore[type-var]  # checks are dataclasses
        elif change is not True:
            raise ValueError(f"limits[{name!r}] must be a mapping, or false to leave the check out, got {change!r}")
    return tuple(by_name.values())


def get_stopping_checks(stop: bool | Collection[str], names: Sequence[str]) -> frozenset[str]:
    """Return the names of the checks whose alarms stop the run. ``True`` selects all checks.

    Raises:
        ValueError: If a name is unknown; the message names the nearest known one.
    """
    if isinstance(stop, bool):
        return frozenset(names if stop else ())
    wanted = [stop] if isinstance(stop, str) else list(stop)
    for name in wanted:
        if name not in names:
            raise ValueError(unknown_name_message("check", name, names))
    return frozenset(wanted)
