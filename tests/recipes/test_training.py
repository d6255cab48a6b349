"""Preparation of a trainer's policy for evaluation and training."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from rrg_rewards.recipes import _training
from rrg_rewards.recipes._training import prepare_policy


@pytest.mark.parametrize(
    ("deepspeed", "zero3", "moved"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_under_zero2_the_policy_is_moved_before_training_starts(
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
