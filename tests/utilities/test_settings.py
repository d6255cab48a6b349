"""Settings: fields with what the command line needs, their checks, and their errors."""

import pickle
from dataclasses import dataclass, fields

import pytest

from rrg_rewards.utilities.settings import SettingError, check_minimums, setting


@dataclass(frozen=True)
class Settings:
    columns: dict = setting({"age": "Age"}, "context", form="NAME=COLUMN")
    rows: int | None = setting(3, "rows", metavar="N", minimum=1)
    name: str = setting("a")

    def __post_init__(self):
        check_minimums(self)


def test_setting_keeps_only_what_is_given():
    assert [dict(field.metadata) for field in fields(Settings)] == [
        {"help": "context", "form": "NAME=COLUMN"},
        {"help": "rows", "metavar": "N", "minimum": 1},
        {"help": ""},
    ]


def test_setting_copies_a_mapping_for_each_object():
    first, second = Settings(), Settings()
    first.columns["sex"] = "Sex"
    assert second.columns == {"age": "Age"}


@pytest.mark.parametrize("rows", [0, -1, True])
def test_check_minimums_names_the_setting(rows):
    with pytest.raises(SettingError, match=r"^rows: must be a number from 1, got "):
        Settings(rows=rows)


def test_check_minimums_accepts_none_and_the_minimum():
    assert (Settings(rows=None).rows, Settings(rows=1).rows) == (None, 1)


def test_setting_error_is_a_value_error_that_pickles():
    error = pickle.loads(pickle.dumps(SettingError("rows", "is wrong")))
    assert isinstance(error, ValueError)
    assert (error.setting, error.problem, str(error)) == ("rows", "is wrong", "rows: is wrong")
    assert str(SettingError(None, "two are needed")) == "two are needed"
