"""The engine of a training, and the check of partitioned weights."""

import pytest
import torch
from lightning.pytorch.strategies import DeepSpeedStrategy, SingleDeviceStrategy, Strategy
from torch import nn

from rrg_rewards.training import base
from rrg_rewards.training.base import OptimizerSettings, TrainingModule


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
