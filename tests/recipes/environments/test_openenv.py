"""The environment of OpenEnv, played by OpenEnv's client over loopback."""

import importlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.integrations.common import scoring
from rrg_rewards.recipes.environments.studies import PHANTOM_SETTINGS, study_tasks
from rrg_rewards.rewards import make_reward

pytestmark = pytest.mark.trainers

PROJECT = Path(__file__).parents[3] / "recipes" / "environments" / "openenv"


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("openenv.core", reason="openenv-core is not installed", exc_type=ImportError)
    uvicorn = importlib.import_module("uvicorn")
    monkeypatch.setattr(scoring, "_REWARDS", {})
    monkeypatch.syspath_prepend(PROJECT)
    app = importlib.import_module("rrg_impression_env").make_app(num_studies=4)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_openenv_rewards_its_episodes(url: str) -> None:
    client_class: Any = importlib.import_module("openenv.core").GenericEnvClient
    tasks = study_tasks(PHANTOM_SETTINGS, num_studies=4)
    completions = [task.prompt.partition("Findings: ")[2] for task in tasks]
    found = []
    with client_class(base_url=url).sync() as client:
        with pytest.raises(RuntimeError, match="reset first"):
            client.step({"completion": "Normal."})
        for study, (task, completion) in enumerate(zip(tasks, completions, strict=True)):
            first = client.reset(study=study)
            assert (first.observation["prompt"], first.reward, first.done) == (task.prompt, None, False)
            assert task.columns["impression"] not in str(first.observation)
            result = client.step({"completion": completion})
            assert result.done
            assert result.observation["metrics"]["scorable"] == 1
            found.append(result.reward)
        with pytest.raises(RuntimeError, match="once for each step"):
            client.step({"completion": "Normal."})
        with pytest.raises(RuntimeError, match="index from 0 to 3, got 4"):
            client.reset(study=4)
        assert client.reset(seed=7).observation == client.reset(seed=7).observation
    reward = make_reward("crg", prior=PHANTOM_SETTINGS["reward"]["prior"], reference_column="impression")
    assert found == pytest.approx(reward(completions, impression=[task.columns["impression"] for task in tasks]))
    assert len(set(found)) > 1
