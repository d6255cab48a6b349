"""Two processes train and test as one does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file
from tiny_records import save_tiny_encoder, tiny_records, write_records

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
    write_records(folder / "errors.jsonl", tiny_records(61, per_reference=1))
    config = {
        "output_dir": "set by the worker",
        "model": {"encoder": str(folder / "encoder"), "learning_rate": 5e-3},
        "data": {
            "sources": [{"class_path": "JsonlRecords", "init_args": {"path": str(folder / "errors.jsonl")}}],
            "batch_size": 8,
            "eval_batch_size": 3,
            "validation_fraction": 0.2,
            "test_fraction": 0.2,
        },
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(config))
    return folder


def test_two_processes_are_as_good_as_one(folder: Path) -> None:
    alone, together = run(folder, 1), run(folder, 2)
    assert together["data"] == alone["data"]
    assert any(alone["data"][side]["pairs"] % 2 for side in ("validation", "test"))
    for ours, theirs in zip(together["history"], alone["history"], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    for side in ("test", "best"):
        assert _flat(together[side]) == pytest.approx(_flat(alone[side]), abs=1e-4)
    first, second = (load_file(folder / f"of-{devices}" / "model" / "model.safetensors") for devices in (1, 2))
    assert first.keys() == second.keys()
    assert all((first[name] - second[name]).abs().max() < 1e-4 for name in first)


def _flat(value: Any, name: str = "") -> dict[str, float]:
    if not isinstance(value, dict):
        return {} if value is None else {name: value}
    return {key: number for part in value for key, number in _flat(value[part], f"{name}/{part}").items()}
