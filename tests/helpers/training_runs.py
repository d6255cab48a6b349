"""Trainings of tiny learned metrics: a recipe of two epochs on records in a folder, and the trained weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rrg_rewards.training.metrics import cli


def write_recipe(folder: Path, model: dict[str, Any], changes: dict[str, Any]) -> Path:
    """Write a recipe on the folder's ``errors.jsonl``; changes name keys by their path, with ``__`` between."""
    config: dict[str, Any] = {
        "output_dir": str(folder / "run"),
        "model": {**model, "learning_rate": 5e-3},
        "data": {
            "sources": [{"class_path": "JsonlRecords", "init_args": {"path": str(folder / "errors.jsonl")}}],
            "batch_size": 8,
            "validation_fraction": 0.2,
            "test_fraction": 0.2,
        },
        "trainer": {
            "max_epochs": 2,
            "accelerator": "cpu",
            "deterministic": True,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "gradient_clip_val": 1.0,
        },
    }
    for key, value in changes.items():
        *parents, last = key.split("__")
        place = config
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def trained(task: str, recipe: Path, *options: str) -> cli.TrainCLI:
    """Train a task by its recipe, and return the run."""
    run = cli.build(task, ["--config", str(recipe), *options])
    cli.fit(run)
    return run


def weights(run: cli.TrainCLI) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in run.model.model.state_dict().items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@contextmanager
def interrupted_in_second_epoch(module: type) -> Iterator[None]:
    """Let the user interrupt the trainings of a module at the end of their second epoch, and expect it."""

    def stop(self: Any) -> None:
        if self.current_epoch == 1:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "on_train_epoch_end", stop)
        # Lightning turns an interruption into an orderly end of the process.
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            yield


def assert_same_run(resumed: cli.TrainCLI, whole: cli.TrainCLI) -> None:
    """Assert that a resumed run ends with the weights and the history of one that was not stopped."""
    assert resumed.trainer.global_step == whole.trainer.global_step
    assert same(weights(resumed), weights(whole))
    assert cli.history_of(resumed).rows == cli.history_of(whole).rows
