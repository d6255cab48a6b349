"""The hyperparameter search: seeded, resumable, and it returns the best values."""

import json
from pathlib import Path

import pytest
import yaml
from tiny_records import save_tiny_encoder, tiny_records, write_records

from rrg_rewards.training.metrics import cli
from rrg_rewards.training.metrics.search import search


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    save_tiny_encoder(tmp_path / "encoder")
    write_records(tmp_path / "errors.jsonl", tiny_records(40))
    source = {"class_path": "JsonlRecords", "init_args": {"path": str(tmp_path / "errors.jsonl")}}
    config = {
        "output_dir": str(tmp_path / "run"),
        "model": {"encoder": str(tmp_path / "encoder")},
        "data": {"sources": [source], "batch_size": 8, "validation_fraction": 0.2, "test_fraction": 0.2},
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "enable_progress_bar": False},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(config))
    return ["--config", str(tmp_path / "recipe.yaml")]


def test_search_the_best_trial_is_handed_on(argv: list[str], tmp_path: Path) -> None:
    told: list[str] = []
    options = search("crepe", argv, 2, told.append)
    trials = json.loads((tmp_path / "run" / "search.json").read_text())
    best = max(trials, key=lambda trial: trial["score"])
    found = cli.parse("crepe", [*argv, *options], instantiate=False).config
    assert [trial["state"] for trial in trials] == ["complete"] * 2
    assert trials[0]["model.learning_rate"] != trials[1]["model.learning_rate"]
    assert (found.model.learning_rate, found.model.weight_decay, found.model.warmup_ratio) == tuple(
        best[f"model.{name}"] for name in ("learning_rate", "weight_decay", "warmup_ratio")
    )
    assert [line.partition(":")[0] for line in told] == ["trial 0", "trial 1"]
    assert not list((tmp_path / "run" / "search").rglob("*.ckpt"))
    # One trial more, and not three.
    search("crepe", argv, 3)
    again = json.loads((tmp_path / "run" / "search.json").read_text())
    assert (len(again), again[:2]) == (3, trials)


def test_search_a_search_on_several_devices_is_refused(argv: list[str]) -> None:
    with pytest.raises(ValueError, match=r"set trainer\.devices to 1"):
        search("crepe", [*argv, "--trainer.devices", "2"], 1)
