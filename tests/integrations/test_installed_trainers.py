"""The contracts of installed trainers: their own code loads the files and calls the rewards."""

import asyncio
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trainer_inputs import MISSING, REFERENCES, REPORTS, SETTINGS

from rrg_rewards.integrations import ms_swift, openrlhf, verl
from rrg_rewards.rewards import make_reward

pytestmark = pytest.mark.trainers


def trainer(module: str) -> Any:
    """Import a module of a trainer, or skip the test with the reason."""
    return pytest.importorskip(module, reason=f"{module.partition('.')[0]} is not installed", exc_type=ImportError)


class CharacterTokenizer:
    """A token for each character, as Unicode code point; special tokens are kept."""

    def __call__(self, text: str, **options: Any) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]], dtype=torch.long)}

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return "".join(chr(int(one)) for one in ids)


def verl_item(data_proto: Any, report: str, reference: Any) -> Any:
    ids = CharacterTokenizer()(report)["input_ids"]
    prompt = torch.ones(1, 2, dtype=torch.long)
    columns = {"data_source": "ct", "reward_model": {"ground_truth": reference}, "extra_info": {}}
    return data_proto.from_dict(
        tensors={"responses": ids, "prompts": prompt, "attention_mask": torch.ones(1, 2 + ids.shape[1]).long()},
        non_tensors={name: np.array([value], dtype=object) for name, value in columns.items()},
    )


@pytest.mark.parametrize(
    ("manager", "path"), [("naive", "pkg://rrg_rewards.integrations.verl"), ("dapo", verl.__file__)]
)
def test_verl_gets_the_rewards(manager: str, path: str, numbers: list[float]) -> None:
    reward_module = trainer("verl.trainer.ppo.reward")
    data_proto = importlib.import_module("verl").DataProto
    config = importlib.import_module("omegaconf").OmegaConf.create(
        {
            "reward": {
                "custom_reward_function": {
                    "path": path,
                    "name": "compute_score",
                    "reward_kwargs": SETTINGS,
                },
                "reward_manager": {"source": "register", "name": manager},
                "reward_kwargs": {},
            },
            "data": {"max_response_length": 512},
        }
    )

    async def run() -> Any:
        loaded = reward_module.load_reward_manager(config, CharacterTokenizer())
        items = [verl_item(data_proto, *pair) for pair in zip(REPORTS, REFERENCES, strict=True)]
        return type(loaded), items, await asyncio.gather(*map(loaded.run_single, items))

    cls, items, results = asyncio.run(run())
    assert [one["reward_score"] for one in results] == pytest.approx(numbers)
    assert [one["reward_extra_info"]["scorable"] for one in results] == [1, 1, 0, 1]
    assert len({tuple(one["reward_extra_info"]) for one in results}) == 1
    for item, result, number in zip(items, results, numbers, strict=True):
        assert cls.assemble_rm_scores(item, [result["reward_score"]]).sum().item() == pytest.approx(number)


def test_verl_raises_the_errors_of_a_reward() -> None:
    reward_module = trainer("verl.trainer.ppo.reward")
    data_proto = importlib.import_module("verl").DataProto
    custom = {"path": "pkg://rrg_rewards.integrations.verl", "name": "compute_score", "reward_kwargs": SETTINGS}
    config = importlib.import_module("omegaconf").OmegaConf.create(
        {"reward": {"custom_reward_function": custom, "reward_manager": {"source": "register", "name": "naive"}}}
    )

    async def run() -> Any:
        loaded = reward_module.load_reward_manager(config, CharacterTokenizer())
        return await loaded.run_single(verl_item(data_proto, "Edema.", 3.5))

    with pytest.raises(TypeError, match="must be a report text"):
        asyncio.run(run())


PROMPT = "<|im_start|>user\nReport the CT.<|im_end|>\n<|im_start|>assistant\n"


class Engine:
    """Stands for vLLM: returns a given report."""

    def __init__(self, report: str) -> None:
        self.report = report

    async def generate(self, prompt_ids: Any, params: Any, multi_modal_data: Any = None) -> Any:
        text = f"{self.report}<|im_end|>"
        ids = CharacterTokenizer()(text)["input_ids"][0].tolist()
        output = SimpleNamespace(token_ids=ids, text=self.report, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


def execute_openrlhf(executor: Any, report: str, label: Any) -> dict[str, Any]:
    params = SimpleNamespace(max_tokens=64, logprobs=None)
    call = executor.execute(PROMPT, label, params, 4096, CharacterTokenizer(), Engine(report))
    result: dict[str, Any] = asyncio.run(call)
    return result


@pytest.mark.parametrize("kind", ["function", "agent"])
def test_openrlhf_gets_the_rewards(kind: str, configure: Callable[..., None], numbers: list[float]) -> None:
    agent = trainer("openrlhf.utils.agent")
    configure()
    if kind == "function":
        executor = agent.SingleTurnAgentExecutor(openrlhf.__file__)
    else:
        executor = openrlhf.AgentExecutor()
        assert isinstance(executor, agent.AgentExecutorBase)
    for report, reference, number in zip(REPORTS, REFERENCES, numbers, strict=True):
        result = execute_openrlhf(executor, report, reference)
        # As OpenRLHF's samples generator reads the result.
        assert torch.tensor([result["reward"]]).item() == pytest.approx(number)
        assert torch.tensor([result["scores"]]).item() == pytest.approx(number)
        assert result["extra_logs"]["scorable"].flatten()[0].item() == (reference is not None)


def test_openrlhf_gets_the_rewards_by_http(numbers: list[float]) -> None:
    agent = trainer("openrlhf.utils.agent")
    served = trainer("served")
    with served.Served(make_reward("crg", prior=0.2), missing=MISSING) as server:
        executor = agent.SingleTurnAgentExecutor([f"{server.url}/get_reward"])
        results = [execute_openrlhf(executor, *pair) for pair in zip(REPORTS, REFERENCES, strict=True)]
    found = [result["reward"] for result in results]
    assert [one[0] if isinstance(one, list) else one for one in found] == pytest.approx(numbers)
    assert [torch.tensor([result["reward"]]).flatten().item() for result in results] == pytest.approx(numbers)


def test_openrlhf_gives_an_error_no_reward(configure: Callable[..., None]) -> None:
    agent = trainer("openrlhf.utils.agent")
    configure()
    executor = agent.SingleTurnAgentExecutor(openrlhf.__file__)
    assert execute_openrlhf(executor, "Edema.", '{"report": "Edema."}')["reward"] is None


def test_openrlhf_fails_at_the_start_without_settings() -> None:
    agent = trainer("openrlhf.utils.agent")
    with pytest.raises(ValueError, match="no settings"):
        agent.SingleTurnAgentExecutor(openrlhf.__file__)


@pytest.mark.parametrize("missing", [None, MISSING])
def test_ms_swift_gets_the_rewards(
    missing: float | None,
    configure: Callable[..., None],
    expected: list[float | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rewards = trainer("swift.rewards")
    algorithm = importlib.import_module("swift.rl_core.grpo_algorithm")
    sample = importlib.import_module("swift.rl_core.data").GRPOSample
    load = importlib.import_module("swift.utils").import_external_file
    configure(missing=missing, reference_column="report")
    monkeypatch.setattr(rewards, "orms", {})
    for name in [name for name in sys.modules if name.startswith("_swift_external_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [*sys.path])
    load(str(Path(ms_swift.__file__).with_name("rrg_plugin.py")))
    function = rewards.orms["crg"](args=None)
    assert type(function).__name__ == "crg"
    samples = [
        sample(messages=[{"role": "assistant", "content": report}], extra={"report": reference})
        for report, reference in zip(REPORTS, REFERENCES, strict=True)
    ]
    found = algorithm.compute_rewards_per_func(samples, [function], [None], torch.device("cpu"))[:, 0]
    wanted = [float("nan" if missing is None else missing) if one is None else one for one in expected]
    assert found.tolist() == pytest.approx(wanted, nan_ok=True)


def test_verifiers_gets_the_rewards(configure: Callable[..., None], numbers: list[float]) -> None:
    vf = trainer("verifiers.v1")
    configure(reference_column="answer")

    class ReportData(vf.TaskData):  # type: ignore[misc, name-defined]
        answer: str | None = None

    function = {"report": {"fn": "rrg_rewards.integrations.verifiers:reward", "weight": 0.5}}
    task_module = importlib.import_module("verifiers.v1.task")
    config = importlib.import_module("verifiers.v1.configs.task").TaskConfig(rewards=function)
    for report, reference, number in zip(REPORTS, REFERENCES, numbers, strict=True):
        task = task_module.Task(ReportData(answer=reference, prompt="Report."), config)
        trace_module = importlib.import_module("verifiers.v1.trace")
        info = trace_module.TraceTask(type="Task", data=task.data)
        trace = trace_module.Trace.model_construct(task=info, nodes=[], root_reply=report, rewards={}, metrics={})
        asyncio.run(task.score(trace, runtime=None))
        assert trace.rewards["report"].score == pytest.approx(number)
        assert trace.reward == pytest.approx(0.5 * number)
        assert trace.metrics["scorable"] == (reference is not None)
