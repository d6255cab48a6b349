"""Preparation of a trainer's policy for evaluation and training, and the warning of slow bfloat16."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from trl import GRPOConfig, ModelConfig

from rrg_rewards.recipes import _training
from rrg_rewards.recipes._training import check_processes, prepare_policy, warn_of_slow_bfloat16


def test_check_processes_a_checkpoint_loads_to_the_device_of_one_of_several_cpu_processes(tmp_path: Path) -> None:
    training = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    # As accelerate sets it with several processes.
    training.distributed_state.device = vars(training)["_setup_devices"] = torch.device("cpu", 0)
    assert training.device.index == 0
    check_processes(training)
    torch.save({"moments": torch.ones(2)}, tmp_path / "optimizer.pt")
    assert torch.load(tmp_path / "optimizer.pt", map_location=training.device)["moments"].sum() == 2
    assert training.distributed_state.device == training.device == torch.device("cpu")


@pytest.mark.parametrize(
    ("stage", "count", "line"),
    [(None, 1, "MULTI_CPU; 1 process on cpu"), (3, 2, "DeepSpeed, ZeRO stage 3; 2 processes on cpu")],
)
def test_engine_line_names_engine_and_stage(stage: int | None, count: int, line: str) -> None:
    accelerator = SimpleNamespace(
        state=SimpleNamespace(deepspeed_plugin=None if stage is None else SimpleNamespace(zero_stage=stage)),
        distributed_type=SimpleNamespace(value="MULTI_CPU"),
        num_processes=count,
        device=torch.device("cpu", 0),
    )
    assert _training._engine_line(accelerator) == f"Engine: {line}"


@pytest.mark.parametrize(
    ("deepspeed", "zero3", "moved"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_prepare_policy_under_zero2_the_policy_is_moved_before_training_starts(
    monkeypatch: pytest.MonkeyPatch, deepspeed: bool, zero3: bool, moved: bool
) -> None:
    monkeypatch.setattr(_training, "is_deepspeed_zero3_enabled", lambda: zero3)
    # The only device other than the CPU that every machine has.
    accelerator = SimpleNamespace(device=torch.device("meta"))
    trainer = SimpleNamespace(
        is_deepspeed_enabled=deepspeed, is_fsdp_enabled=False, model=nn.Linear(2, 2), accelerator=accelerator
    )
    prepare_policy(trainer)
    assert trainer.model.weight.is_meta == moved


def _lightning(tmp_path: Path, use_cpu: bool = True, **options: Any) -> Any:
    pytest.importorskip("lightning", reason="needs the extra train")
    from rrg_rewards.recipes.policy import PolicyTraining

    return PolicyTraining(output_dir=str(tmp_path), use_cpu=use_cpu, **options)


def _trl(tmp_path: Path, **options: Any) -> GRPOConfig:
    return GRPOConfig(output_dir=str(tmp_path), use_cpu=True, **options)


def test_slow_bfloat16_a_torch_that_cannot_tell_gives_no_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    warn_of_slow_bfloat16(_trl(tmp_path, bf16=True), ModelConfig(dtype="bfloat16"))
    assert not caplog.records


@pytest.mark.parametrize(
    ("options", "dtype", "remedy"),
    [
        ({"precision": "bf16-mixed"}, "float32", "precision: 32-true"),
        ({"precision": "32-true"}, "bfloat16", "precision: 32-true"),
        ({"bf16": True}, "float32", "bf16: false"),
        ({"bf16": False}, "bfloat16", "bf16: false"),
        ({"bf16": False}, "float32", None),
        ({"precision": "32-true"}, "float32", None),
    ],
)
def test_slow_bfloat16_the_warning_names_the_settings(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    dtype: str,
    remedy: str | None,
) -> None:
    monkeypatch.setattr(_training, "cpu_computes_in_bfloat16", lambda: False)
    make = _lightning if "precision" in options else _trl
    warn_of_slow_bfloat16(make(tmp_path, **options), ModelConfig(dtype=dtype))
    assert [remedy in record.message for record in caplog.records] == ([] if remedy is None else [True])


def test_slow_bfloat16_a_fast_processor_and_a_gpu_give_no_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = _lightning(tmp_path, use_cpu=False, precision="bf16-mixed")
    monkeypatch.setattr(_training, "cpu_computes_in_bfloat16", lambda: True)
    warn_of_slow_bfloat16(training, SimpleNamespace(dtype=torch.bfloat16))
    monkeypatch.setattr(_training, "cpu_computes_in_bfloat16", lambda: False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    warn_of_slow_bfloat16(training, SimpleNamespace(dtype=torch.bfloat16))
    assert not caplog.records
