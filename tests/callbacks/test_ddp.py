"""A validation under DDP: two real processes, eleven reports, the values of one process to the last bit.

A second loader holds a single report, so one process has no batch of it.
"""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.helpers import run_script

pytestmark = pytest.mark.distributed

SCRIPT = Path(__file__).with_name("validation.py")


def run(folder: Path, name: str, devices: int, batch_size: int, sampler: str) -> dict[str, Any]:
    """Run the script to its end; a process that fails or hangs fails the test."""
    output = folder / f"{name}.json"
    run_script(SCRIPT, output, devices, batch_size, sampler, processes=devices)
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"tables-{name}" / "val_crg_worst.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ddp")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Any]:
    return run(folder, "alone", devices=1, batch_size=2, sampler="unpadded")


@pytest.mark.parametrize("batch_size", [2, 1], ids=["as many batches", "one batch more"])
def test_report_metrics_callback_two_processes_equal_one(folder: Path, alone: dict[str, Any], batch_size: int) -> None:
    name = f"two-{batch_size}"
    two = run(folder, name, devices=2, batch_size=batch_size, sampler="unpadded")
    assert two["fit"] == alone["fit"]
    assert two["validate"] == alone["validate"]
    assert {"val/crg/dataloader_idx_0", "val/crg/dataloader_idx_1"} <= two["validate"][0].keys()
    assert not any("distributed sampler" in warning or "sync_dist" in warning for warning in two["warnings"])
    columns = ("dataloader", "score", "reference", "prediction", "missed", "invented")
    first, second = (
        [tuple(row[column] for column in columns) for row in table(folder, run_name)] for run_name in ("alone", name)
    )
    assert first == second
    assert {row["rank"] for row in table(folder, name)} == {"0", "1"}


@pytest.mark.parametrize("devices", [2, 3])
def test_report_metrics_callback_fewer_reports_than_processes_equal_one(folder: Path, devices: int) -> None:
    several, alone = (run(folder, f"few-{count}", count, batch_size=0, sampler="unpadded") for count in (devices, 1))
    assert several == alone
    assert several["1"]["fit"]["val/crg_num_unscorable"] == 0
    assert "val/crg/dataloader_idx_1" in several["1"]["validate"][0]


def test_report_metrics_callback_a_padding_sampler_is_told(folder: Path, alone: dict[str, Any]) -> None:
    padded = run(folder, "padded", devices=2, batch_size=2, sampler="padded")
    assert padded["fit"] != alone["fit"]
    told = [warning for warning in padded["warnings"] if "repeats or leaves out 1 reports" in warning]
    assert len(told) == 1
    assert "UnpaddedDistributedSampler" in told[0]
