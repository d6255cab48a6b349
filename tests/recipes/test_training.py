"""Preparation of a trainer's policy for evaluation and training."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from trl import GRPOConfig

from rrg_rewards.recipes import _training
from rrg_rewards.recipes._training import check_processes, prepare_policy


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
