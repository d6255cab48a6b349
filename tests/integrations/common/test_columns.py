"""Columns that trainers pass as one string."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from trainer_inputs import SETTINGS

from rrg_rewards.integrations import areal, slime, verl
from rrg_rewards.integrations.common.columns import gather_columns, read_row


def test_read_row_reads_columns_in_one_string_or_beside_the_reference() -> None:
    assert read_row("Edema.", "report") == {"report": "Edema."}
    assert read_row(None, "report") == {"report": None}
    assert read_row("{Edema}.", "report") == {"report": "{Edema}."}
    assert read_row('["Edema."]', "report") == {"report": '["Edema."]'}
    packed = {"report": "Edema.", "age": 66}
    for reference in (packed, json.dumps(packed), f"  {json.dumps(packed)}"):
        assert read_row(reference, "report", {"age": 1, "site": "A"}) == {"age": 66, "site": "A", "report": "Edema."}


def test_read_row_refuses_json_that_is_nested_too_deeply() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read_row('{"a":' * 100_000, "report")


def test_read_row_turns_values_of_numpy_into_those_of_python() -> None:
    row = read_row("Edema.", "report", {"labels": np.array([1, 0]), "age": np.int64(66)})
    assert row == {"labels": [1, 0], "age": 66, "report": "Edema."}
    assert type(row["age"]) is int


class Features:
    """An array of image features, whose conversion would take longer than the reward."""

    def tolist(self) -> list[float]:
        raise AssertionError("a column that the reward does not read is converted")


@pytest.mark.parametrize("trainer", ["verl", "slime", "AReaL"])
def test_read_row_converts_only_columns_that_the_reward_reads(trainer: str, configure: Callable[..., None]) -> None:
    configure(reward={"name": "crg", "prior": 0.2, "label_column": "labels"})
    columns = {"image": Features(), "labels": np.eye(18)[3]}
    settings = {**SETTINGS, "reward": {"name": "crg", "prior": 0.2, "label_column": "labels"}}
    if trainer == "verl":
        score = asyncio.run(verl.compute_score("ct", "Edema.", "Edema.", columns, **settings))["score"]
    elif trainer == "slime":
        sample = SimpleNamespace(response="Edema.", label="Edema.", metadata=columns)
        score = asyncio.run(slime.custom_rm(SimpleNamespace(), sample))
    else:
        score = areal.reward_fn("", "Edema.", [1], [2], reference="Edema.", **columns)
    assert score < 0


def test_gather_columns_names_a_missing_column() -> None:
    with pytest.raises(ValueError, match=r"row 1 .* 'age'"):
        gather_columns([{"report": "a", "age": 1}, {"report": "b"}], ["report", "age"])
