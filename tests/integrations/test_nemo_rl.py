"""NeMo RL, as it calls its environment."""

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from trainer_inputs import MISSING, REFERENCES, REPORTS, REWARD, SETTINGS

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
    path = "rrg_rewards.integrations.nemo_rl.ReportEnvironment"
    module, _, attribute = path.rpartition(".")
    return getattr(importlib.import_module(module), attribute).cls


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
    with pytest.raises(ValueError, match="per_part needs a composed reward"):
        nemo_environment({**SETTINGS, "per_part": True})
