"""Settings: fields with what the command line needs, their checks, and their errors."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import pytest

from rrg_rewards.utilities.settings import SettingError, Settings, setting


@dataclass(frozen=True)
class Rows(Settings):
    """Rows of a table."""

    columns: dict = setting({"age": "Age"}, "context", form="NAME=COLUMN")
    rows: int | None = setting(3, "rows", metavar="N", minimum=1, maximum=9)
    rate: float | None = setting(None, "rate", above=0)
    name: str = setting("a")
    side: Literal["left", "right"] | None = setting(None)
    scores: Sequence[str] = setting((), separator=",")
    unchecked: int = 0


def test_setting_keeps_only_what_is_given():
    assert [dict(field.metadata) for field in fields(Rows)] == [
        {"help": "context", "form": "NAME=COLUMN"},
        {"help": "rows", "metavar": "N", "minimum": 1, "maximum": 9},
        {"help": "rate", "above": 0},
        {"help": ""},
        {"help": ""},
        {"help": "", "separator": ","},
        {},
    ]


def test_setting_copies_a_mapping_for_each_object():
    first, second = Rows(), Rows()
    first.columns["sex"] = "Sex"
    assert second.columns == {"age": "Age"}


def test_settings_are_documented_by_their_help():
    @dataclass(frozen=True)
    class More(Rows):
        """More settings."""

        limit: int = setting(1, "limit")

    listed = [line.strip() for line in More.__doc__.split("Settings:")[1].splitlines() if line.strip()]
    assert listed == ["columns: context.", "rows: rows.", "rate: rate.", "limit: limit."]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("rows", value) for value in (0, -1, 10, True, 1.5, "3")),
        *(("rate", value) for value in (0, float("nan"), float("inf"), "1")),
        ("side", "up"),
        ("scores", "crg"),
    ],
)
def test_settings_check_their_ranges_and_choices(name, value):
    with pytest.raises(SettingError) as raised:
        Rows(**{name: value})
    assert raised.value.setting == name


def test_settings_say_their_range():
    with pytest.raises(SettingError, match=r"^rows: must be an integer, at least 1, at most 9, got 0$"):
        Rows(rows=0)


def test_settings_accept_none_and_the_limits():
    assert [Rows(rows=rows).rows for rows in (None, 1, 9)] == [None, 1, 9]
    assert Rows(rate=1).rate == 1


def test_setting_error_is_a_value_error_that_pickles():
    error = pickle.loads(pickle.dumps(SettingError("rows", "is wrong")))
    assert isinstance(error, ValueError)
    assert (error.setting, error.problem, str(error)) == ("rows", "is wrong", "rows: is wrong")
    assert str(SettingError(None, "two are needed")) == "two are needed"
