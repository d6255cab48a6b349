"""Two processes train and test like one process, with DDP and with DeepSpeed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_backbone import PROMPT, save_tiny_backbone
from tiny_records import save_tiny_encoder, tiny_records, write_records

from rrg_rewards.metrics.crepe import CREPE
from rrg_rewards.models.er2score.model import ER2ScoreModel
from tests.distributed.helpers import run_script

pytestmark = pytest.mark.distributed

WORKER = Path(__file__).with_name("ddp_worker.py")


def run(task: str, folder: Path, devices: int, zero_stage: int = 0, role: str = "whole") -> dict[str, Any]:
    name = f"zero-{zero_stage}" if zero_stage else f"of-{devices}"
    output = folder / (name if role == "whole" else f"{name}-again")
    output.mkdir(exist_ok=role == "resumed")
    run_script(WORKER, task, folder / "recipe.yaml", devices, output, zero_stage, role, processes=devices)
    if role == "stopped":
        return {}
    told: dict[str, Any] = json.loads((output / "told.json").read_text())
    assert told["world"] == devices
    return told["report"]


def write_recipe(folder: Path, model: dict[str, Any], records: list[dict[str, Any]], **more: Any) -> None:
    write_records(folder / "errors.jsonl", records)
    config = {
        "output_dir": "set by the worker",
        "model": {"learning_rate": 3e-3, **model},
        "data": {
            "sources": [{"class_path": "JsonlRecords", "init_args": {"path": str(folder / "errors.jsonl")}}],
            "batch_size": 8,
            "eval_batch_size": 3,
            "validation_fraction": 0.2,
            "test_fraction": 0.2,
        },
        "trainer": {"accelerator": "cpu", "enable_progress_bar": False},
    }
    for section, values in more.items():
        config[section] = {**config.get(section, {}), **values}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(config))


def check_alike(together: dict[str, Any], alone: dict[str, Any], rows: str) -> None:
    assert together["data"] == alone["data"]
    # Odd numbers: the processes get unequal shares of validation and test.
    assert all(alone["data"][side][rows] % 2 for side in ("validation", "test"))
    for ours, theirs in zip(together["history"], alone["history"], strict=True):
        assert ours == pytest.approx(theirs, abs=2e-3)
    for side in ("test", "best"):
        ours, theirs = _flat(together[side]), _flat(alone[side])
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            # A difference of rounding can order two reports differently, and so in many draws of the bootstrap.
            assert ours[name] == pytest.approx(value, abs=2e-2 if "interval" in name else 2e-3), name


def test_crepe_is_trained_by_two_processes_as_by_one(tmp_path: Path) -> None:
    save_tiny_encoder(tmp_path / "encoder", dropout=0.0)
    early = {"monitor": "val/tau", "patience": 12}
    model = {"encoder": str(tmp_path / "encoder")}
    write_recipe(tmp_path, model, tiny_records(203, per_reference=1), early_stopping=early, trainer={"max_epochs": 12})
    alone, together = run("crepe", tmp_path, 1), run("crepe", tmp_path, 2)
    check_alike(together, alone, "pairs")
    check_alike(run("crepe", tmp_path, 2, zero_stage=2), alone, "pairs")
    # Not the weights: where a gradient is nothing but rounding, Adam makes whole steps of it.
    candidates, references = (
        [record[key] for record in tiny_records(20, seed=1)] for key in ("candidate", "reference")
    )
    first, second = (CREPE(tmp_path / f"of-{devices}" / "model").score(candidates, references) for devices in (1, 2))
    assert first.value.std() > 0.1
    torch.testing.assert_close(first.value, second.value, atol=2e-3, rtol=0)


def test_er2score_is_trained_by_two_processes_as_by_one(tmp_path: Path) -> None:
    save_tiny_backbone(tmp_path / "backbone")
    model = {"backbone": str(tmp_path / "backbone"), "prompt": PROMPT, "max_length": 64}
    # Losses weighed by a process' pairs and not by all would step otherwise from the start.
    records = tiny_records(105, per_reference=3)
    write_recipe(tmp_path, model, records, trainer={"max_epochs": 2, "gradient_clip_val": 1.0})
    alone, together = run("er2score", tmp_path, 1), run("er2score", tmp_path, 2)
    check_alike(together, alone, "reports")
    check_alike(run("er2score", tmp_path, 2, zero_stage=3), alone, "reports")
    run("er2score", tmp_path, 2, zero_stage=3, role="stopped")
    check_alike(run("er2score", tmp_path, 2, zero_stage=3, role="resumed"), alone, "reports")
    # The reports of a reference lie on both processes, and their pairs are counted all the same.
    assert together["test"]["pairs"] == alone["test"]["pairs"] > 20
    first, *others = (ER2ScoreModel.from_pretrained(tmp_path / name / "model") for name in ("of-1", "of-2", "zero-3"))
    for other in others:
        torch.testing.assert_close(first.head.weight, other.head.weight, atol=2e-3, rtol=0)


def _flat(value: Any, name: str = "") -> dict[str, float]:
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {} if value is None else {name: value}
    return {key: number for part in value for key, number in _flat(value[part], f"{name}/{part}").items()}
