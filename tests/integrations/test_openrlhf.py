"""OpenRLHF, as it calls its reward."""

import asyncio
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from trainer_inputs import REFERENCES, REPORTS, load_file

from rrg_rewards.integrations import openrlhf

PROMPT = "<|im_start|>user\nReport the CT.<|im_end|>\n<|im_start|>assistant\n"


async def openrlhf_rewards(function: Any, queries: list[str], prompts: list[str], labels: list[Any]) -> list[Any]:
    """Call the function as OpenRLHF's SingleTurnAgentExecutor does: one sample in a thread, many at a time."""
    calls = [
        asyncio.to_thread(function, [query], [prompt], [label])
        for query, prompt, label in zip(queries, prompts, labels, strict=True)
    ]
    return await asyncio.gather(*calls)


def test_openrlhf_gets_the_rewards_of_the_reward_itself(configure: Callable[..., None], numbers: list[float]) -> None:
    configure()
    module = load_file(openrlhf.__file__)
    queries = [f"{PROMPT}<think>Edema?</think>{report}<|im_end|>" for report in REPORTS]
    results = asyncio.run(openrlhf_rewards(module.reward_func, queries, [PROMPT] * 4, REFERENCES))
    assert [torch.tensor([result["rewards"]]).item() for result in results] == pytest.approx(numbers)
    assert [result["extra_logs"]["scorable"].flatten()[0].item() for result in results] == [1, 1, 0, 1]
    assert len({tuple(result["extra_logs"]) for result in results}) == 1


def test_openrlhf_finds_the_completion_after_images_in_the_prompt(
    configure: Callable[..., None], numbers: list[float]
) -> None:
    configure()
    prompt = PROMPT.replace("Report", "<image>Report")
    query = PROMPT.replace("Report", "<|vision_start|>" + "<|image_pad|>" * 9 + "<|vision_end|>Report") + REPORTS[0]
    (result,) = asyncio.run(openrlhf_rewards(openrlhf.reward_func, [query], [prompt], REFERENCES[:1]))
    assert result["rewards"].tolist() == pytest.approx(numbers[:1])


def test_openrlhf_filters_by_scores_between_0_and_1(configure: Callable[..., None], numbers: list[float]) -> None:
    configure(score_range=[-1.0, 1.0])
    queries = [PROMPT + report for report in REPORTS]
    results = asyncio.run(openrlhf_rewards(openrlhf.reward_func, queries, [PROMPT] * 4, REFERENCES))
    scores = [result["scores"].item() for result in results]
    assert scores == pytest.approx([min(max((reward + 1) / 2, 0), 1) for reward in numbers])
    assert scores[2] == 0


def test_openrlhf_raises_and_logs_errors(configure: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    configure()
    with pytest.raises(ValueError, match="the completion was not found"):
        asyncio.run(openrlhf_rewards(openrlhf.reward_func, ["Secret."], [PROMPT], ["Edema."]))
    assert "the reward of OpenRLHF failed" in caplog.text
    assert "Secret" not in caplog.text


def test_openrlhf_checks_settings_when_it_loads_the_file() -> None:
    module = load_file(openrlhf.__file__)
    with pytest.raises(ValueError, match="no settings"):
        _ = module.reward_func


class AgentInstanceBase:
    """Stands for OpenRLHF's base class."""


class MultiTurnAgentExecutor:
    """Stands for OpenRLHF's executor."""

    def __init__(self, agent_instance_cls: type) -> None:
        assert issubclass(agent_instance_cls, AgentInstanceBase)
        self.agent_instance_cls = agent_instance_cls

    async def execute(self, prompt: str, label: Any, answers: list[str]) -> dict[str, Any]:
        """Run a conversation as OpenRLHF does, with given answers."""
        instance = self.agent_instance_cls()
        observation = (await instance.reset({"observation": prompt, "label": label}))["observation"]
        total = 0.0
        for turn, answer in enumerate(answers):
            states = {"observation_text": observation, "action_text": answer, "label": label, "sampling_params": None}
            result = await instance.step(states)
            total += result["rewards"].item()
            if result["done"]:
                return {"reward": total, "scores": result["scores"], "turns": turn + 1, **result}
            observation += answer + result["environment_feedback"]
        raise AssertionError("the conversation did not end")


def test_openrlhf_agent_gets_the_rewards_of_the_reward_itself(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, numbers: list[float]
) -> None:
    configure()
    agent = ModuleType("openrlhf.utils.agent")
    agent.AgentInstanceBase = AgentInstanceBase  # type: ignore[attr-defined]
    agent.MultiTurnAgentExecutor = MultiTurnAgentExecutor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openrlhf", ModuleType("openrlhf"))
    monkeypatch.setitem(sys.modules, "openrlhf.utils", ModuleType("openrlhf.utils"))
    monkeypatch.setitem(sys.modules, "openrlhf.utils.agent", agent)
    module = load_file(openrlhf.__file__)
    assert hasattr(module, "AgentExecutor")
    executor = module.AgentExecutor()
    for report, reference, reward in zip(REPORTS, REFERENCES, numbers, strict=True):
        result = asyncio.run(executor.execute(PROMPT, reference, [report, "Another turn."]))
        assert (result["reward"], result["turns"]) == (pytest.approx(reward), 1)
        assert result["extra_logs"]["scorable"].item() == (reference is not None)
