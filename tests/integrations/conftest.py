"""Settings and reports that the tests of all trainers share, and the rewards that are expected."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from trainer_inputs import MISSING, REFERENCES, REPORTS, REWARD

from rrg_rewards.integrations.common import scoring
from rrg_rewards.integrations.common.settings import CONFIG_VARIABLE
from rrg_rewards.integrations.ray import local_options
from rrg_rewards.rewards import make_reward


@pytest.fixture(autouse=True)
def _fresh_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test rewards of its own, without the settings of the environment."""
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    monkeypatch.setattr(scoring, "_REWARDS", {})


@pytest.fixture(scope="module")
def ray(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Start a cluster on this machine."""
    module = pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    pytest.importorskip("ray.data")
    module.init(log_to_driver=False, **local_options(2))
    yield module
    module.shutdown()


@pytest.fixture
def expected() -> list[float | None]:
    """The rewards of ``REPORTS`` as the reward itself returns them."""
    return make_reward("crg", prior=0.2)(REPORTS, reference=REFERENCES)


@pytest.fixture
def numbers(expected: list[float | None]) -> list[float]:
    """The rewards of ``REPORTS`` with a number for the unscorable one."""
    assert expected[2] is None
    assert len(set(expected)) == 4
    return [MISSING if reward is None else reward for reward in expected]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Return a function that writes settings to a file and names it in the environment, as a launch script does."""

    def write(**settings: Any) -> None:
        path = tmp_path / "reward.yaml"
        chosen: Mapping[str, Any] = {"reward": REWARD, "missing": MISSING, **settings}
        path.write_text(json.dumps({name: value for name, value in chosen.items() if value is not None}))
        monkeypatch.setenv(CONFIG_VARIABLE, str(path))

    return write
