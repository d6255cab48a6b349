"""Reports for the rows of a table, from Python."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_policy import WORDS, save_tiny_policy

from rrg_rewards.data import Table
from rrg_rewards.recipes import GenerationSettings, generate_reports, generation
from rrg_rewards.utilities.settings import SettingError

TABLE = Table({"findings": [f"{WORDS[row]} {WORDS[row + 1]}" if row != 3 else " " for row in range(7)]})


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    """Settings of a small model, with changes."""
    model = str(save_tiny_policy(tmp_path / "policy"))
    return lambda **changes: GenerationSettings(model=model, max_new_tokens=5, batch_size=2, device="cpu", **changes)


def test_generate_reports_leaves_rows_without_input_out(settings: Any) -> None:
    result = generate_reports(TABLE, settings())
    assert [report is None for report in result.reports] == [row == 3 for row in range(7)]
    assert [cut is None for cut in result.truncated] == [row == 3 for row in range(7)]
    told = result.to_dict()
    assert (told["rows"], told["generated"], told["truncated"]) == (7, 6, sum(map(bool, result.truncated)))
    assert str(result).startswith("6 reports, ")
    assert str(result).endswith("1 rows without input or volume have none")


def test_generate_reports_resumes_from_a_partial_file(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled, partial = settings(temperature=1.5, seed=4), tmp_path / "out.partial.jsonl"
    whole = generate_reports(TABLE, sampled)
    generate, calls = generation._Transformers.generate, []

    def interrupted(self: Any, rows: Any, seeds: Any) -> Any:
        if calls:
            raise KeyboardInterrupt
        calls.append(len(rows))
        return generate(self, rows, seeds)

    monkeypatch.setattr(generation._Transformers, "generate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate_reports(TABLE, sampled, partial)
    assert len(partial.read_text().splitlines()) == 2
    monkeypatch.setattr(generation._Transformers, "generate", generate)
    assert generate_reports(TABLE, sampled, partial) == whole
    with pytest.raises(SettingError, match="interrupted run"):
        generate_reports(TABLE, settings(temperature=1.5, seed=5), partial)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"vllm_option": {"max_model_len": 8}}, "vllm_option"),
        ({"backend": "vllm", "device": "cpu"}, "device"),
    ],
)
def test_generation_settings_name_what_is_wrong(changes: dict[str, Any], setting: str) -> None:
    with pytest.raises(SettingError) as caught:
        GenerationSettings(model="mine", **changes)
    assert caught.value.setting == setting


def test_generate_reports_names_a_device_that_is_not_there_before_it_loads_the_model(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", None)
    with pytest.raises(SettingError, match="device: 'cuba'"):
        generate_reports(TABLE, replace(settings(), device="cuba"))
