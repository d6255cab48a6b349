"""ms-swift, as it calls its rewards."""

import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from trainer_inputs import REFERENCES, REPORTS, REWARD, SETTINGS, load_file

from rrg_rewards.integrations.ms_swift import register_rewards
from rrg_rewards.rewards import make_reward


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


def test_ms_swift_keeps_its_own_rewards() -> None:
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


def test_ms_swift_finds_no_hidden_package_in_the_folder_of_the_plugin() -> None:
    """ms-swift puts it first in the module search path."""
    folder = Path(importlib.import_module("rrg_rewards.integrations.ms_swift").__file__ or "").parent
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"__init__.py", "rrg_plugin.py"}
