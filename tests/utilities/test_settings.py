"""Settings: fields with what the command line needs, their checks, and their errors."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import pytest

from rrg_rewards.utilities.settings import SettingError, check_settings, setting


@dataclass(frozen=True)
class Settings:
    columns: dict = setting({"age": "Age"}, "context", form="NAME=COLUMN")
    rows: int | None = setting(3, "rows", metavar="N", minimum=1)
    name: str = setting("a")
    side: Literal["left", "right"] | None = setting(None)
    scores: Sequence[str] = setting((), separator=",")

    def __post_init__(self):
        check_settings(self)


def test_setting_keeps_only_what_is_given():
    assert [dict(field.metadata) for field in fields(Settings)] == [
        {"help": "context", "form": "NAME=COLUMN"},
        {"help": "rows", "metavar": "N", "minimum": 1},
        {"help": ""},
        {"help": ""},
        {"help": "", "separator": ","},
    ]


def test_setting_copies_a_mapping_for_each_object():
    first, second = Settings(), Settings()
    first.columns["sex"] = "Sex"
    assert second.columns == {"age": "Age"}


@pytest.mark.parametrize("rows", [0, -1, True, 1.5, "3"])
def test_check_settings_names_the_setting(rows):
    with pytest.raises(SettingError, match=r"^rows: must be a number from 1, got "):
        Settings(rows=rows)


def test_check_settings_refuses_a_value_that_is_no_choice():
    with pytest.raises(SettingError, match=r"^side: must be one of left, right, got 'up'$"):
        Settings(side="up")


def test_check_settings_refuses_a_text_instead_of_a_sequence():
    with pytest.raises(SettingError, match=r"^scores: must be a sequence of texts, got the text 'crg'$"):
        Settings(scores="crg")


def test_check_settings_accepts_none_and_the_minimum():
    assert (Settings(rows=None).rows, Settings(rows=1).rows) == (None, 1)


def test_setting_error_is_a_value_error_that_pickles():
    error = pickle.loads(pickle.dumps(SettingError("rows", "is wrong")))
    assert isinstance(error, ValueError)
    assert (error.setting, error.problem, str(error)) == ("rows", "is wrong", "rows: is wrong")
    assert str(SettingError(None, "two are needed")) == "two are needed"
