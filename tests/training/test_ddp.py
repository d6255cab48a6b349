"""Two processes train and test as one does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_records import save_tiny_encoder, tiny_records, write_records

from rrg_rewards.metrics.crepe import CREPE

WORKER = Path(__file__).with_name("ddp_worker.py")


def run(folder: Path, devices: int) -> dict[str, Any]:
    output = folder / f"of-{devices}"
    output.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, str(WORKER), str(folder / "recipe.yaml"), str(devices), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads((output / "told.json").read_text())
    assert told["world"] == devices
    return told["report"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ddp")
    save_tiny_encoder(folder / "encoder", dropout=0.0)
    # Odd numbers: the processes get unequal shares of validation and test.
    write_records(folder / "errors.jsonl", tiny_records(203, per_reference=1))
    config = {
        "output_dir": "set by the worker",
        "model": {"encoder": str(folder / "encoder"), "learning_rate": 3e-3},
        "data": {
            "sources": [{"class_path": "JsonlRecords", "init_args": {"path": str(folder / "errors.jsonl")}}],
            "batch_size": 8,
            "eval_batch_size": 3,
            "validation_fraction": 0.2,
            "test_fraction": 0.2,
        },
        "early_stopping": {"monitor": "val/tau", "patience": 12},
        "trainer": {"max_epochs": 12, "accelerator": "cpu", "enable_progress_bar": False},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(config))
    return folder


def test_two_processes_are_as_good_as_one(folder: Path) -> None:
    alone, together = run(folder, 1), run(folder, 2)
    assert together["data"] == alone["data"]
    assert all(alone["data"][side]["pairs"] % 2 for side in ("validation", "test"))
    for ours, theirs in zip(together["history"], alone["history"], strict=True):
        assert ours == pytest.approx(theirs, abs=2e-3)
    for side in ("test", "best"):
        assert _flat(together[side]) == pytest.approx(_flat(alone[side]), abs=2e-3)
    # Not the weights: where a gradient is nothing but rounding, Adam makes whole steps of it.
    candidates, references = (
        [record[key] for record in tiny_records(20, seed=1)] for key in ("candidate", "reference")
    )
    first, second = (CREPE(folder / f"of-{devices}" / "model").score(candidates, references) for devices in (1, 2))
    assert first.value.std() > 0.1
    torch.testing.assert_close(first.value, second.value, atol=2e-3, rtol=0)


def _flat(value: Any, name: str = "") -> dict[str, float]:
    if not isinstance(value, dict):
        return {} if value is None else {name: value}
    return {key: number for part in value for key, number in _flat(value[part], f"{name}/{part}").items()}
