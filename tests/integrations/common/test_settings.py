"""Settings of the reward of a trainer."""

import json
import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trainer_inputs import MISSING, REWARD

from rrg_rewards.data import Table
from rrg_rewards.integrations.common.scoring import get_trainer_reward
from rrg_rewards.integrations.common.settings import CONFIG_VARIABLE, fit_settings, read_settings


def test_read_settings_replaces_settings_of_a_file_by_arguments(tmp_path: Path) -> None:
    path = tmp_path / "reward.yaml"
    path.write_text("reward: {name: crg, prior: 0.2}\nmissing: mean\nreference_column: report\n")
    settings = read_settings({"config": str(path), "missing": -2})
    assert (settings.missing, settings.reference_column) == (-2, "report")
    assert settings.make_reward().columns == ("report",)


def test_read_settings_reads_small_numbers_of_json(tmp_path: Path) -> None:
    path = tmp_path / "reward.json"
    path.write_text(json.dumps({"reward": [{"name": "rouge", "clip": [1e-05, 2e-04]}], "missing": -1e-06}))
    assert "e-05" in path.read_text()
    settings = read_settings({"config": str(path)})
    assert settings.missing == -1e-06
    assert settings.make_reward().parts[0].clip == (1e-05, 2e-04)  # type: ignore[attr-defined]


def test_read_settings_reads_a_file_or_settings_of_the_environment(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(score_range=[0, 1])
    assert read_settings().score_range == [0, 1]
    for settings in ("{reward: rouge, missing: 0.0}", "{config: {reward: rouge, missing: 1}, missing: 0.0}"):
        monkeypatch.setenv(CONFIG_VARIABLE, settings)
        assert (read_settings().reward, read_settings().missing) == ("rouge", 0.0)


def test_read_settings_mixes_no_arguments_with_the_environment(configure: Callable[..., None]) -> None:
    configure(reference_column="report")
    assert read_settings({"reward": "rouge"}).reference_column == "reference"


def test_read_settings_accepts_mappings_of_other_libraries() -> None:
    reward = get_trainer_reward(OrderedDict(reward=OrderedDict(name="crg", prior=0.2), missing=0))
    assert reward.reward.columns == ("reference",)


def test_trainer_settings_compose_several_rewards() -> None:
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
        ({"reward": REWARD, "missing": 0, "tags": ["answer"]}, "unknown key 'tags'"),
        ({"reward": REWARD, "missing": 0, "max_wait_ms": "5"}, "max_wait_ms: must be"),
        ({"reward": REWARD, "missing": 0, "max_batch": "8"}, "max_batch: must be"),
        ({"reward": [{**REWARD, "as": "score"}], "missing": 0}, "called 'score'"),
    ],
)
def test_read_settings_refuses_wrong_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_trainer_reward(arguments)


@pytest.mark.parametrize(
    ("reward", "setting"),
    [
        ("crg", "prior"),
        ([{"name": "crg", "as": "labels"}], "labels.prior"),
    ],
)
def test_trainer_settings_refuse_statistics_that_workers_do_not_share(reward: Any, setting: str) -> None:
    with pytest.raises(ValueError, match=f"estimates {setting}"):
        get_trainer_reward({"reward": reward, "missing": 0})


def test_trainer_reward_refuses_infinite_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    reward = get_trainer_reward({"reward": "rouge", "missing": 0})
    monkeypatch.setattr(reward.reward, "_reward", lambda value: value * math.inf)
    with pytest.raises(ValueError, match="'rouge' is inf"):
        reward.reward_one("Edema.", {"reference": "Edema."})


def test_get_trainer_reward_shares_a_reward_of_equal_settings(configure: Callable[..., None]) -> None:
    settings = {"reward": REWARD, "missing": 0}
    assert get_trainer_reward(settings) is get_trainer_reward(json.loads(json.dumps(settings)))
    assert get_trainer_reward(settings) is not get_trainer_reward({**settings, "missing": 1})
    configure()
    assert get_trainer_reward() is get_trainer_reward({})
    assert get_trainer_reward().settings.missing == MISSING


def test_fitted_settings_have_numbers_and_the_reward_of_them() -> None:
    table = Table({"report": ["Cardiomegaly.", "Hiatal hernia.", "Normal."]})
    given = {"reward": {"name": "crg"}, "reference_column": "report", "missing": -1}
    fitted, reward = fit_settings(given, table)
    assert fitted["reward"]["prior"] == pytest.approx(2 / 54)
    assert (fitted["missing"], fitted["fitted"]["rows"]) == (-1, 3)
    assert fitted["fitted"]["signature"] == reward.signature
    assert read_settings(fitted).make_reward().signature == reward.signature
    assert "prior" not in given["reward"]
