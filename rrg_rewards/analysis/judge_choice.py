"""Judges and labelers from names and settings; what is wrong is a :class:`SettingError`."""

from collections.abc import Mapping
from typing import Any

from rrg_rewards.judges.base import Judge
from rrg_rewards.judges.registry import get_judge
from rrg_rewards.labelers.base import Labeler
from rrg_rewards.labelers.registry import LabelerSetting, get_labeler, needs_judge
from rrg_rewards.utilities.settings import SettingError

JudgeSetting = str | Mapping[str, Any] | Judge
"""A judge, its name, or its settings."""


def choose_judge(setting: JudgeSetting) -> Judge:
    """Return the judge of a setting ``judge``.

    Args:
        setting: Name, settings as a YAML mapping or as text of one, or a judge.

    Raises:
        SettingError: For an unknown name or invalid settings.

    Example:
        >>> choose_judge("{name: rules}").is_immediate
        True
    """
    try:
        return get_judge(setting)
    except (ValueError, TypeError) as error:
        raise SettingError("judge", str(error)) from error


def choose_labeler(setting: LabelerSetting, judge: str | Mapping[str, Any] | Judge | None = None) -> Labeler:
    """Return the labeler of a setting ``labeler``.

    Args:
        setting: Name or settings of the labeler, or a labeler.
        judge: Setting ``judge``, for a labeler with a judge.

    Raises:
        SettingError: For an unknown name, or a labeler that needs a judge and gets none.
    """
    further = {}
    if needs_judge(setting):
        if judge is None:
            raise SettingError("labeler", f"{setting} needs a language model as `judge`: openai:MODEL or local:MODEL")
        further["judge"] = choose_judge(judge)
    try:
        return get_labeler(setting, **further)
    except (ValueError, TypeError) as error:
        raise SettingError("labeler", str(error)) from error
