"""Trainers that pass one completion a call: OpenRLHF, slime, AReaL and verifiers, as each calls its reward."""

import asyncio
import importlib
import json
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from trainer_inputs import MISSING, REFERENCES, REPORTS, load_file

from rrg_rewards.integrations import areal, openrlhf, slime, verifiers

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


def test_openrlhf_with_images_in_the_prompt(configure: Callable[..., None], numbers: list[float]) -> None:
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


def test_openrlhf_errors_are_raised_and_logged(
    configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    configure()
    with pytest.raises(ValueError, match="the completion was not found"):
        asyncio.run(openrlhf_rewards(openrlhf.reward_func, ["Secret."], [PROMPT], ["Edema."]))
    assert "the reward of OpenRLHF failed" in caplog.text
    assert "Secret" not in caplog.text


def test_openrlhf_checks_settings_when_it_loads_the_file() -> None:
    module = load_file(openrlhf.__file__)
    with pytest.raises(ValueError, match="there are no settings of the reward"):
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


def test_openrlhf_agent(configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, numbers: list[float]) -> None:
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


def slime_samples() -> list[Any]:
    return [
        SimpleNamespace(prompt=PROMPT, response=report, label=reference, metadata={}, reward=None)
        for report, reference in zip(REPORTS, REFERENCES, strict=True)
    ]


def slime_function(path: str) -> Any:
    """Load a function as slime does."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_slime_gets_the_rewards_of_the_reward_itself(configure: Callable[..., None], numbers: list[float]) -> None:
    configure()
    args = SimpleNamespace(reward_key=None)
    single = slime_function("rrg_rewards.integrations.slime.custom_rm")
    group = slime_function("rrg_rewards.integrations.slime.batched_custom_rm")

    async def run() -> Any:
        return await asyncio.gather(*(single(args, sample) for sample in slime_samples()))

    assert asyncio.run(run()) == pytest.approx(numbers)
    assert asyncio.run(group(args, slime_samples())) == pytest.approx(numbers)


def test_slime_selects_a_key(configure: Callable[..., None], numbers: list[float]) -> None:
    configure()
    results = asyncio.run(slime.batched_custom_rm(SimpleNamespace(reward_key="score"), slime_samples()))
    assert [result["score"] for result in results] == pytest.approx(numbers)
    assert [result["scorable"] for result in results] == [1, 1, 0, 1]


def test_slime_passes_columns_in_metadata(configure: Callable[..., None]) -> None:
    configure(reward={"name": "crimson", "age_column": "age"})
    label = "Edema. Aortic calcification."
    samples = [SimpleNamespace(response="Edema.", label=label, metadata={"age": age}) for age in (30, 85)]
    young, old = asyncio.run(slime.batched_custom_rm(SimpleNamespace(), samples))
    assert young < old


def test_areal_gets_the_rewards_of_the_reward_itself(configure: Callable[..., None], numbers: list[float]) -> None:
    configure(reference_column="answer")
    rewards = [
        areal.reward_fn(PROMPT, report, [1, 2], [3, 4], answer=reference, query_id="0")
        for report, reference in zip(REPORTS, REFERENCES, strict=True)
    ]
    assert rewards == pytest.approx(numbers)
    with pytest.raises(ValueError, match="lacks the column 'answer'"):
        areal.reward_fn(PROMPT, REPORTS[0], [1], [2], label="Edema.")


def test_areal_calls_forked_processes(configure: Callable[..., None], numbers: list[float]) -> None:
    """A forked process has the memory of its parent, but not the thread in which the parent scores."""
    configure()
    assert areal.reward_fn(PROMPT, REPORTS[0], [1], [2], reference=REFERENCES[0]) == pytest.approx(numbers[0])
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("fork")) as pool:
        future = pool.submit(areal.reward_fn, PROMPT, REPORTS[3], [1], [2], reference=REFERENCES[3])
        assert future.result(timeout=300) == pytest.approx(numbers[3])


def test_verifiers_gets_the_rewards_of_the_reward_itself(configure: Callable[..., None], numbers: list[float]) -> None:
    configure(reference_column="answer")
    for report, reference, reward in zip(REPORTS, REFERENCES, numbers, strict=True):
        metrics: dict[str, float] = {}
        trace = SimpleNamespace(last_reply=report, record_metrics=metrics.update)
        task = SimpleNamespace(answer=reference, prompt="Report.")
        assert asyncio.run(verifiers.reward(task=task, trace=trace)) == pytest.approx(reward)
        assert metrics["scorable"] == (reference is not None)
        assert "score" not in metrics


def test_packed_columns_reach_every_trainer(configure: Callable[..., None]) -> None:
    configure(reward={"name": "crimson", "age_column": "age"})
    found = []
    for age in (30, 85):
        packed = json.dumps({"reference": "Edema. Aortic calcification.", "age": age})
        trace = SimpleNamespace(last_reply="Edema.", record_metrics=lambda metrics: None)
        found.append(
            [
                openrlhf.reward_func([PROMPT + "Edema."], [PROMPT], [packed])["rewards"].item(),
                areal.reward_fn(PROMPT, "Edema.", [1], [2], reference=packed),
                asyncio.run(verifiers.reward(SimpleNamespace(reference=packed), trace)),
                asyncio.run(
                    slime.custom_rm(SimpleNamespace(), SimpleNamespace(response="Edema.", label=packed, metadata=None))
                ),
            ]
        )
    young, old = found
    assert young == pytest.approx([young[0]] * 4)
    assert old == pytest.approx([old[0]] * 4)
    assert MISSING < young[0] < old[0]
