"""SIGTERM to a run of two real processes: one checkpoint, exit code 143; the tests fail if they cannot start."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_records import save_tiny_encoder, tiny_records, write_records

from tests.distributed.helpers import launch_and_wait
from tests.distributed.runs import LABELER, TINY_RUN, TORCHRUN, environment, tiny_recipe

pytestmark = pytest.mark.distributed

WORKER = Path(__file__).with_name("termination_worker.py")


def exit_codes(kind: str, folder: Path, recipe: dict[str, Any]) -> list[str]:
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    command = [*TORCHRUN, "2", str(WORKER), kind, str(folder), str(folder / "recipe.yaml")]
    launch_and_wait(command, environment(), timeout=240)
    return [(folder / f"code{rank}").read_text() for rank in (0, 1)]


def test_a_recipe_that_the_system_ends_saves_one_checkpoint(tmp_path: Path) -> None:
    settings = {**TINY_RUN, "heldout_rows": 0, "output_dir": str(tmp_path / "run"), "max_steps": 5}
    recipe = tiny_recipe(tmp_path, **settings, rewards=[{"name": "crg", "labeler": LABELER}])
    assert exit_codes("recipe", tmp_path, recipe) == ["143", "143"]
    (checkpoint,) = (tmp_path / "run").glob("checkpoint-*")
    assert json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] == 2
    assert {path.name for path in checkpoint.glob("rng_state_*")} == {"rng_state_0.pth", "rng_state_1.pth"}


def test_train_that_the_system_ends_saves_one_checkpoint(tmp_path: Path) -> None:
    save_tiny_encoder(tmp_path / "encoder", dropout=0.0)
    write_records(tmp_path / "errors.jsonl", tiny_records(60))
    source = {"class_path": "JsonlRecords", "init_args": {"path": str(tmp_path / "errors.jsonl")}}
    recipe = {
        "output_dir": str(tmp_path / "run"),
        "model": {"encoder": str(tmp_path / "encoder"), "learning_rate": 3e-3},
        "data": {"sources": [source], "batch_size": 8, "validation_fraction": 0.2, "test_fraction": 0.2},
        "trainer": {"accelerator": "cpu", "enable_progress_bar": False, "max_epochs": 2},
    }
    assert exit_codes("train", tmp_path, recipe) == ["143", "143"]
    (checkpoint,) = (tmp_path / "run" / "checkpoints").glob("*.ckpt")
    assert torch.load(checkpoint, weights_only=False)["global_step"] == 2
