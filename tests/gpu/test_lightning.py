"""Metrics under Lightning in mixed precision, and synchronised by NCCL on one GPU."""

from pathlib import Path

import pytest
import torch
from lightning.fabric.utilities import move_data_to_device
from metric_harness import SUBJECTS, save_models
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from tests.distributed.helpers import run_distributed
from tests.distributed.test_harness import fit_all

# Metrics with states of each kind: counts, sums, floating-point rows, and a model.
NAMES = ("crg", "crimson", "count_correlation", "preference_accuracy", "ct_finebench", "crepe")
# Lightning has no 16-mixed on a CPU.
MIXED = {"cpu": "bf16-mixed", "cuda": "16-mixed"}
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return save_models(Path(tmp_path_factory.mktemp("models")))


@pytest.mark.slow
def test_mixed_precision_changes_no_value(models: dict[str, str], tmp_path: Path, device: torch.device) -> None:
    """Equal values and types of what is logged, in the module and in the callback."""
    precisions = ["32-true", MIXED[device.type]]
    arguments = (models, str(tmp_path), device.type, precisions, NAMES)
    (found,) = run_distributed(fit_all, 1, *arguments, timeout=400, backend=BACKENDS[device.type])
    exact, mixed = (found[precision] for precision in precisions)
    assert mixed == exact
    for name in NAMES:
        assert exact[f"val_{name}"] == pytest.approx(SUBJECTS[name](models).total, rel=1e-5, nan_ok=True), name


def tensors(metric: Metric) -> dict[str, torch.Tensor]:
    """Return the states, rows of several updates joined."""
    return {key: dim_zero_cat(value) for key, value in metric.metric_state.items()}


def synchronise(rank: int, world_size: int, models: dict[str, str], device: str) -> dict[str, tuple[float, list[str]]]:
    """Return each metric's value after a sync on the device, and where its states lie and their types."""
    found = {}
    for name in NAMES:
        metric = SUBJECTS[name](models).make().to(device)
        for args, kwargs in move_data_to_device(SUBJECTS[name](models).batches, device):
            metric.update(*args, **kwargs)
        before = tensors(metric)
        metric.sync()
        after = tensors(metric)
        assert {key: value.dtype for key, value in after.items()} == {k: value.dtype for k, value in before.items()}
        places = sorted({value.device.type for value in after.values()})
        metric.unsync()
        found[name] = float(metric.compute()), places
    return found


def test_a_group_of_one_process_synchronises_states(models: dict[str, str], device: torch.device) -> None:
    backend = BACKENDS[device.type]
    (found,) = run_distributed(synchronise, 1, models, device.type, timeout=300, backend=backend)
    for name, (value, places) in found.items():
        assert value == pytest.approx(SUBJECTS[name](models).total, rel=1e-5, nan_ok=True), name
        assert places == [device.type], name
