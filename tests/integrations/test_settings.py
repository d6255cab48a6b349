"""Settings from arguments, files and the environment; columns in one string; numbers for missing rewards."""

import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainer_inputs import MISSING, REWARD

from rrg_rewards.integrations.common.columns import gather_columns, read_row
from rrg_rewards.integrations.common.missing import MissingRewards
from rrg_rewards.integrations.common.scoring import get_trainer_reward
from rrg_rewards.integrations.common.settings import CONFIG_VARIABLE, read_settings


def test_a_file_and_arguments_that_replace_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text("reward: {name: crg, prior: 0.2}\nmissing: mean\nreference_column: report\n")
    settings = read_settings({"config": str(path), "missing": -2})
    assert (settings.missing, settings.reference_column) == (-2, "report")
    assert settings.make_reward().columns == ("report",)


def test_small_numbers_of_json_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "reward.json"
    path.write_text(json.dumps({"reward": [{"name": "rouge", "normalize": [1e-05, 2e-07]}], "missing": -1e-06}))
    assert "e-05" in path.read_text()
    settings = read_settings({"config": str(path)})
    assert settings.missing == -1e-06
    assert settings.make_reward().parts[0].normalize == (1e-05, 2e-07)  # type: ignore[attr-defined]


def test_the_environment_names_a_file_or_contains_the_settings(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tags=["answer"])
    assert read_settings().tags == ["answer"]
    monkeypatch.setenv(CONFIG_VARIABLE, "{reward: rouge, missing: 0.0}")
    assert (read_settings().reward, read_settings().missing) == ("rouge", 0.0)


def test_arguments_are_not_mixed_with_the_environment(configure: Callable[..., None]) -> None:
    configure(reference_column="report")
    assert read_settings({"reward": "rouge"}).reference_column == "reference"


def test_mappings_of_other_libraries_are_accepted() -> None:
    reward = get_trainer_reward(OrderedDict(reward=OrderedDict(name="crg", prior=0.2), missing=0))
    assert reward.reward.columns == ("reference",)


def test_several_rewards_are_a_composed_one() -> None:
    settings = read_settings({"reward": [{**REWARD, "weight": 2.0}, {"name": "rouge", "as": "wording"}]})
    assert [part.name for part in settings.make_reward().parts] == ["crg", "wording"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, CONFIG_VARIABLE),
        ({"missing": 0}, "lacks reward"),
        ({"reward": REWARD, "mising": 0}, "did you mean 'missing'"),
        ({"reward": REWARD, "missing": "zero"}, "missing must be"),
        ({"reward": REWARD, "missing": float("nan")}, "missing must be"),
        ({"reward": REWARD, "missing": True}, "missing must be"),
        ({"reward": REWARD}, "set missing"),
        ({"reward": 3, "missing": 0}, "reward must be a name"),
        ({"reward": "crgg", "missing": 0}, "did you mean 'crg'"),
        ({"reward": REWARD, "missing": 0, "score_range": [1, 0]}, "increasing"),
        ({"reward": REWARD, "missing": 0, "score_range": 1}, "increasing"),
        ({"reward": REWARD, "missing": 0, "tags": "answer"}, "tags must be a list of names"),
        ({"reward": REWARD, "missing": 0, "max_wait_ms": "5"}, "max_wait_ms must be a finite number"),
        ({"reward": REWARD, "missing": 0, "max_batch": "8"}, "max_batch must be a whole number"),
        ({"reward": [{**REWARD, "as": "score"}], "missing": 0}, "called 'score'"),
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_trainer_reward(arguments)


@pytest.mark.parametrize(
    ("reward", "setting"),
    [
        ("crg", "prior"),
        ({"name": "crg", "prior": "running"}, "prior"),
        ([{"name": "rouge", "normalize": True}], "rouge.normalize"),
        ([{"name": "crg", "as": "labels"}], "labels.prior"),
    ],
)
def test_statistics_that_workers_do_not_share_are_refused(reward: Any, setting: str) -> None:
    with pytest.raises(ValueError, match=rf"estimates {setting} from data.*rrg-rewards fit"):
        get_trainer_reward({"reward": reward, "missing": 0})


def test_infinite_rewards_are_refused() -> None:
    transform = {"scale": 1e308, "shift": 1e308}
    reward = get_trainer_reward({"reward": {"name": "rouge", "transform": transform}, "missing": 0})
    with pytest.raises(ValueError, match="reward 'rouge' is inf for completion 0"):
        reward.reward_one("Edema.", {"reference": "Edema."})


def test_equal_settings_share_one_reward(configure: Callable[..., None]) -> None:
    settings = {"reward": REWARD, "missing": 0}
    assert get_trainer_reward(settings) is get_trainer_reward(json.loads(json.dumps(settings)))
    assert get_trainer_reward(settings) is not get_trainer_reward({**settings, "missing": 1})
    configure()
    assert get_trainer_reward() is get_trainer_reward({})
    assert get_trainer_reward().settings.missing == MISSING


def test_columns_in_one_string_or_beside_the_reference() -> None:
    assert read_row("Edema.", "report") == {"report": "Edema."}
    assert read_row(None, "report") == {"report": None}
    assert read_row("{Edema}.", "report") == {"report": "{Edema}."}
    assert read_row('["Edema."]', "report") == {"report": '["Edema."]'}
    packed = {"report": "Edema.", "age": 66}
    for reference in (packed, json.dumps(packed), f"  {json.dumps(packed)}"):
        assert read_row(reference, "report", {"age": 1, "site": "A"}) == {"age": 66, "site": "A", "report": "Edema."}


def test_numpy_values_become_those_of_python() -> None:
    row = read_row("Edema.", "report", {"labels": np.array([1, 0]), "age": np.int64(66)})
    assert row == {"labels": [1, 0], "age": 66, "report": "Edema."}
    assert type(row["age"]) is int


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ValueError, match=r"row 1 lacks the column 'age'.*it has report"):
        gather_columns([{"report": "a", "age": 1}, {"report": "b"}], ["report", "age"])


def test_a_missing_reward_is_the_mean_of_its_group_then_of_the_call_then_of_earlier_calls() -> None:
    replace = MissingRewards("mean")
    assert replace([1.0, None, 3.0, 10.0], ["a", "a", "a", "b"]) == [1.0, 2.0, 3.0, 10.0]
    assert replace([1.0, None, 3.0], ["a", "b", "a"]) == [1.0, 2.0, 3.0]
    assert replace([None, None], ["a", "b"]) == [(1 + 3 + 10 + 1 + 3) / 5] * 2


def test_a_mean_of_nothing_is_an_error_and_not_0() -> None:
    with pytest.raises(ValueError, match="has scored no completion yet"):
        MissingRewards("mean")([None], ["a"])


def test_a_missing_reward_is_the_number() -> None:
    assert MissingRewards(-2)([None, 1.0], ["a", "a"]) == [-2.0, 1.0]
