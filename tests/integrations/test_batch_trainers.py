"""Trainers that pass batches: EasyR1, ms-swift, Unsloth with TRL 0.24, and NeMo RL, as each calls its reward."""

import ast
import importlib
import json
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from trainer_inputs import MISSING, REFERENCES, REPORTS, REWARD, SETTINGS, load_file

from rrg_rewards.integrations import easyr1
from rrg_rewards.integrations.ms_swift import register_rewards
from rrg_rewards.integrations.unsloth import make_reward_funcs
from rrg_rewards.rewards import make_reward


def easyr1_rewards(settings: dict[str, Any], responses: list[str], truths: list[Any]) -> Any:
    """Call the function as EasyR1's batch manager does, and collect the tensor and the metrics."""
    module = load_file(easyr1.__file__)
    assert module.REWARD_TYPE == "batch"
    inputs = [
        {"response": response, "response_length": 7, "ground_truth": truth}
        for response, truth in zip(responses, truths, strict=True)
    ]
    rewards, metrics = torch.zeros(len(inputs)), defaultdict(list)
    for place, score in enumerate(module.compute_score(inputs, **settings)):
        rewards[place] = score["overall"]
        for key, value in score.items():
            metrics[key].append(value)
    return rewards.tolist(), metrics


def test_easyr1_gets_the_rewards_of_the_reward_itself(numbers: list[float]) -> None:
    rewards, metrics = easyr1_rewards(SETTINGS, REPORTS, REFERENCES)
    assert rewards == pytest.approx(numbers)
    assert metrics["scorable"] == [1, 1, 0, 1]
    assert {len(values) for values in metrics.values()} == {4}


def test_easyr1_packs_columns_as_json() -> None:
    truths = [json.dumps({"reference": reference, "site": "A"}) for reference in REFERENCES]
    assert easyr1_rewards(SETTINGS, REPORTS, truths)[0] == easyr1_rewards(SETTINGS, REPORTS, REFERENCES)[0]


def test_a_missing_reward_is_the_mean_of_its_group(expected: list[float | None]) -> None:
    settings = {"reward": {"name": "crg", "prior": 0.2, "key": "precision", "sign": 1}, "missing": "mean"}
    responses = ["Cardiomegaly.", "Cardiomegaly. Edema. Hiatal hernia.", "Normal.", "Hiatal hernia."]
    truths = ["Cardiomegaly.", "Cardiomegaly.", "Cardiomegaly.", "Hiatal hernia."]
    rewards, metrics = easyr1_rewards(settings, responses, truths)
    direct = make_reward("crg", prior=0.2, key="precision", sign=1)(responses, reference=truths)
    assert direct[2] is None
    assert rewards[2] == pytest.approx((direct[0] + direct[1]) / 2)
    assert rewards[2] != pytest.approx(rewards[3])
    assert metrics["scorable"] == [1, 1, 0, 1]


def swift_rewards(functions: list[Any], completions: list[str], columns: dict[str, Any]) -> Any:
    """Call reward functions as ms-swift's compute_rewards_per_func does."""
    arguments = {"trainer_state": None, **columns}
    by_function = []
    for function in functions:
        output = function(completions, **arguments)
        by_function.append(torch.tensor([torch.nan if reward is None else reward for reward in output]))
    return torch.stack(by_function, 1), [type(function).__name__ for function in functions]


def test_ms_swift_has_a_class_for_each_reward(expected: list[float | None]) -> None:
    orms: dict[str, Any] = {"accuracy": object}
    register_rewards(orms, {"reward": [REWARD, {"name": "rouge", "as": "wording"}], "reference_column": "report"})
    functions = [orms[name](args=SimpleNamespace()) for name in ("crg", "wording")]
    columns = {"report": REFERENCES, "messages": [[]] * 4}
    rewards, names = swift_rewards(functions, REPORTS, columns)
    assert names == ["crg", "wording"]
    assert rewards[:, 0].isnan().tolist() == [False, False, True, False]
    assert [None if math.isnan(one) else one for one in rewards[:, 0].tolist()] == pytest.approx(expected)
    wording = make_reward("rouge", reference_column="report")(REPORTS, report=REFERENCES)
    assert rewards[0, 1].item() == pytest.approx(wording[0])


def test_ms_swift_gets_a_number_if_it_is_set(numbers: list[float]) -> None:
    orms: dict[str, Any] = {}
    register_rewards(orms, SETTINGS)
    assert orms["crg"](args=None)(REPORTS, reference=REFERENCES) == pytest.approx(numbers)


def test_ms_swifts_own_rewards_are_not_replaced() -> None:
    with pytest.raises(ValueError, match="ms-swift has a reward called 'crg'"):
        register_rewards({"crg": object}, SETTINGS)


def test_ms_swift_loads_the_plugin_by_path(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, numbers: list[float]
) -> None:
    configure()
    plugin = importlib.import_module("rrg_rewards.integrations.ms_swift.rrg_plugin")
    swift, rewards = ModuleType("swift"), ModuleType("swift.rewards")
    rewards.orms = {}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "swift", swift)
    monkeypatch.setitem(sys.modules, "swift.rewards", rewards)
    load_file(plugin.__file__)
    assert rewards.orms["crg"](args=None)(REPORTS, reference=REFERENCES) == pytest.approx(numbers)


def test_the_folder_of_the_plugin_hides_no_package() -> None:
    """ms-swift puts it first in the module search path."""
    folder = Path(importlib.import_module("rrg_rewards.integrations.ms_swift").__file__ or "").parent
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"__init__.py", "rrg_plugin.py"}


def trl_0_24_rewards(functions: list[Any], inputs: list[dict[str, Any]], completions: list[Any]) -> torch.Tensor:
    """Call reward functions as TRL 0.24 does: without functions for logging, and without awaiting them."""
    keys = [key for key in inputs[0] if key not in ("prompt", "completion", "completion_ids")]
    columns = {key: [example[key] for example in inputs] for key in keys}
    rewards = torch.zeros(len(inputs), len(functions))
    for place, function in enumerate(functions):
        assert isinstance(function.__name__, str)
        output = function(
            prompts=[one["prompt"] for one in inputs],
            completions=completions,
            completion_ids=[[1, 2]] * len(inputs),
            trainer_state=None,
            **columns,
        )
        output = [torch.nan if reward is None else reward for reward in output]
        rewards[:, place] = torch.tensor(output, dtype=torch.float32)
    return rewards


@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: [{"role": "assistant", "content": text}]])
def test_trl_0_24_gets_the_rewards_of_the_reward_itself(wrap: Any, expected: list[float | None]) -> None:
    functions = make_reward_funcs({"reward": [REWARD, "repetition"]})
    inputs = [{"prompt": "Report.", "reference": reference} for reference in REFERENCES]
    rewards = trl_0_24_rewards(functions, inputs, [wrap(report) for report in REPORTS])
    assert [function.__name__ for function in functions] == ["crg", "repetition"]
    assert [None if math.isnan(one) else one for one in rewards[:, 0].tolist()] == pytest.approx(expected)


def test_a_judge_is_waited_for() -> None:
    (function,) = make_reward_funcs({"reward": "trainer_inputs:SlowReward"})
    assert trl_0_24_rewards([function], [{"prompt": ""}], ["Edema."]).tolist() == [[6.0]]


def test_rewards_of_equal_names_are_refused() -> None:
    with pytest.raises(ValueError, match="two rewards are called 'rouge'"):
        make_reward_funcs({"reward": ["rouge", "rouge"]})


def test_options_of_parts_are_refused_for_functions_of_their_own() -> None:
    with pytest.raises(ValueError, match=r"'rouge' has the option weight, .* set the trainer's weights"):
        make_reward_funcs({"reward": [{"name": "rouge", "weight": 0.5}, "repetition"]})
    parts = [{"name": "rouge", "weight": 0.5}, {"name": "repetition"}]
    (function,) = make_reward_funcs({"reward": {"name": "composed", "parts": parts}})
    assert function(["Edema."], reference=["Edema."]) == [0.5]


def test_columns_of_another_length_are_refused() -> None:
    (function,) = make_reward_funcs({"reward": REWARD})
    with pytest.raises(ValueError, match="column 'reference' has 1 values for 2 completions"):
        function(["a", "b"], reference=["a"])


def test_a_missing_column_is_an_error() -> None:
    (function,) = make_reward_funcs({"reward": REWARD})
    with pytest.raises(ValueError, match="lacks the column 'reference'"):
        function(["a"], report=["a"])


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


FOLDER = Path(easyr1.__file__).parent
FILES = [*FOLDER.glob("*.py"), *FOLDER.glob("common/*.py"), *FOLDER.glob("ms_swift/*.py")]


def test_no_trainer_is_imported_by_its_file() -> None:
    """Only the standard library, what every installation has, and this package are imported at import time."""
    core = {"numpy", "rich", "torch", "torchmetrics", "typing_extensions", "yaml"}
    allowed = {*sys.stdlib_module_names, *core, "rrg_rewards"}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                assert {name.name.partition(".")[0] for name in node.names} <= allowed, path
            if isinstance(node, ast.ImportFrom):
                assert str(node.module).partition(".")[0] in allowed, path


@pytest.mark.slow
def test_no_trainer_is_imported() -> None:
    names = ", ".join(
        f"rrg_rewards.integrations.{path.stem}" for path in FOLDER.glob("*.py") if path.stem != "__init__"
    )
    code = f"import json, sys, {names}; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"verl", "openrlhf", "swift", "ray", "trl", "verifiers", "slime", "areal"} & set(json.loads(output))
