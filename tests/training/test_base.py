"""The engine of a training, the check of partitioned weights, and the names of ended processes."""

import signal
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import DeepSpeedStrategy, SingleDeviceStrategy, Strategy
from torch import nn

from rrg_rewards.training import base
from rrg_rewards.training.base import NameEndedProcesses, OptimizerSettings, TrainingModule


def test_engine_line_names_engine_and_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeepSpeedStrategy, "root_device", torch.device("cuda:1"))
    strategies: list[tuple[Strategy, int]] = [(SingleDeviceStrategy("cpu"), 1), (DeepSpeedStrategy(stage=3), 2)]
    assert [base._engine_line(strategy, count) for strategy, count in strategies] == [
        "Engine: SingleDeviceStrategy; 1 process on cpu",
        "Engine: DeepSpeed, ZeRO stage 3; 2 processes on cuda",
    ]


@pytest.mark.parametrize("partitioned", [False, True])
def test_training_module_unequal_numbers_of_batches_are_an_error_under_zero3(
    monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    module = TrainingModule(OptimizerSettings(1e-3, 0.0, 0.0, "constant", 0))
    module.layer = nn.Linear(2, 1)
    if partitioned:
        module.layer.weight.ds_id = 0
    monkeypatch.setattr(base, "gather_objects", lambda own: [own, [2]])
    module._check_equal_batches([2])
    if partitioned:
        with pytest.raises(ValueError, match=r"the processes have 3, 2 batches .* Under ZeRO-3 the numbers must be"):
            module._check_equal_batches([3])
    else:
        module._check_equal_batches([3])


def watched_process(callback: NameEndedProcesses) -> "tuple[subprocess.Popen[bytes], threading.Thread]":
    """Return a process that exits with the code that it is given, and the thread that waits for it."""
    code = "import sys; sys.exit(int(sys.stdin.readline()))"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    launcher = SimpleNamespace(procs=[process])
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(launcher=launcher), global_rank=0, global_step=4)
    before = set(threading.enumerate())
    for stage in ("fit", "validate"):
        callback.setup(trainer, LightningModule(), stage)
    (thread,) = set(threading.enumerate()) - before
    return process, thread


@pytest.mark.parametrize(("code", "name"), [(-signal.SIGKILL, "by SIGKILL"), (3, "with exit code 3"), (0, None)])
def test_ended_process_is_named_once_before_any_exception(
    caplog: pytest.LogCaptureFixture, code: int, name: str | None
) -> None:
    process, thread = watched_process(NameEndedProcesses())
    if code < 0:
        process.send_signal(-code)
    process.communicate(b"%d\n" % max(code, 0))
    thread.join(30)
    assert process.returncode == code
    messages = [f"the process of rank 1 has ended {name} at step 4 or later"] if name else []
    assert [record.getMessage().split(";")[0] for record in caplog.records] == messages


def test_process_that_ends_after_the_training_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    callback = NameEndedProcesses()
    process, thread = watched_process(callback)
    callback.teardown(Any, LightningModule(), "fit")  # type: ignore[arg-type]
    process.communicate(b"3\n")
    thread.join(30)
    assert not caplog.records
