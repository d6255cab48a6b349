"""NeMo RL, as it calls its environment."""

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from trainer_inputs import MISSING, REFERENCES, REPORTS, REWARD, SETTINGS

from rrg_rewards.integrations import nemo_rl
from rrg_rewards.rewards import make_reward


class EnvironmentReturn(NamedTuple):
    """NeMo RL's."""

    observations: list[dict[str, str]]
    metadata: list[Any]
    next_stop_strings: list[Any]
    rewards: Any
    terminateds: torch.Tensor
    answers: Any


class EnvironmentInterface:
    """Stands for NeMo RL's base class."""


@pytest.fixture
def nemo_environment(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The environment as NeMo RL gets it from its registry, without the actor around it."""
    ray, interfaces = ModuleType("ray"), ModuleType("nemo_rl.environments.interfaces")
    ray.remote = lambda cls: SimpleNamespace(cls=cls)  # type: ignore[attr-defined]
    interfaces.EnvironmentReturn = EnvironmentReturn  # type: ignore[attr-defined]
    interfaces.EnvironmentInterface = EnvironmentInterface  # type: ignore[attr-defined]
    for name, module in (
        ("ray", ray),
        ("nemo_rl", ModuleType("nemo_rl")),
        ("nemo_rl.environments", ModuleType("nemo_rl.environments")),
        ("nemo_rl.environments.interfaces", interfaces),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    return get_object("rrg_rewards.integrations.nemo_rl.ReportEnvironment").cls


def get_object(path: str) -> Any:
    """Import an object as NeMo RL does."""
    module, _, attribute = path.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@pytest.fixture
def nemo_registries(nemo_environment: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Modules of the shape of NeMo RL's: the index of Python packages has only a placeholder of it.

    ``create_env`` looks the environment up, then the Python of its actor, then starts the actor.
    """
    names = "environments.utils", "distributed.virtual_cluster", "distributed.ray_actor_environment_registry"
    utils, cluster, actors = (ModuleType(f"nemo_rl.{name}") for name in names)
    environments: dict[str, str] = {"math": "nemo_rl.environments.math_environment.MathEnvironment"}
    cluster.PY_EXECUTABLES = SimpleNamespace(SYSTEM=sys.executable)  # type: ignore[attr-defined]
    actors.ACTOR_ENVIRONMENT_REGISTRY = {}  # type: ignore[attr-defined]

    def register_env(name: str, path: str) -> None:
        if name in environments:
            raise ValueError(f"Env name {name} already registered")
        environments[name] = path

    def create_env(name: str, configs: dict[str, Any]) -> tuple[Any, str]:
        path = environments[name]
        if path not in actors.ACTOR_ENVIRONMENT_REGISTRY:
            raise ValueError(f"No actor environment registered for {path}")
        return get_object(path).cls(configs[name]), actors.ACTOR_ENVIRONMENT_REGISTRY[path]

    utils.register_env, utils.create_env = register_env, create_env  # type: ignore[attr-defined]
    distributed = ModuleType("nemo_rl.distributed")
    for module in (distributed, utils, cluster, actors):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules["nemo_rl.environments"].utils = utils  # type: ignore[attr-defined]
    return utils


def test_nemo_rl_starts_the_registered_environment(nemo_registries: Any, numbers: list[float]) -> None:
    nemo_rl.register_env("rrg")
    environment, executable = nemo_registries.create_env("rrg", {"rrg": SETTINGS})
    result = environment.step(conversations(), [{"reference": reference} for reference in REFERENCES])
    assert (executable, result.rewards.tolist()) == (sys.executable, pytest.approx(numbers))
    with pytest.raises(ValueError, match="rrg already registered"):
        nemo_rl.register_env("rrg")


def conversations() -> list[list[dict[str, Any]]]:
    return [
        [{"role": "user", "content": "Report."}, {"role": "assistant", "content": report, "token_ids": [1]}]
        for report in REPORTS
    ]


def test_nemo_rl_gets_the_rewards_of_the_reward_itself(nemo_environment: Any, numbers: list[float]) -> None:
    assert issubclass(nemo_environment, EnvironmentInterface)
    environment = nemo_environment(SETTINGS)
    metadata = [{"ground_truth": reference} for reference in REFERENCES]
    result = environment.step(conversations(), metadata)
    assert result.rewards.tolist() == pytest.approx(numbers)
    assert result.rewards.dtype == torch.float32
    assert result.terminateds.all()
    assert [len(field) for field in result[:3]] == [4, 4, 4]
    batch = {"extra_env_info": result.metadata, "total_reward": result.rewards}
    assert environment.global_post_process_and_metrics(batch) == (
        batch,
        {"scorable": 0.75, "mean_reward": pytest.approx(sum(numbers) / 4)},
    )


def test_nemo_rl_gets_the_rewards_of_parts(nemo_environment: Any) -> None:
    environment = nemo_environment({"reward": [REWARD, "rouge"], "missing": MISSING, "per_part": True})
    result = environment.step(conversations(), [{"reference": reference} for reference in REFERENCES])
    assert set(result.rewards) == {"crg", "rouge"}
    wording = make_reward("rouge")(REPORTS, reference=REFERENCES)
    assert result.rewards["rouge"].tolist() == pytest.approx([MISSING if one is None else one for one in wording])
    with pytest.raises(ValueError, match="per_part"):
        nemo_environment({**SETTINGS, "per_part": True})
