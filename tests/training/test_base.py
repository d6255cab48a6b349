"""The check of partitioned weights."""

import pytest
from torch import nn

from rrg_rewards.training import base
from rrg_rewards.training.base import OptimizerSettings, TrainingModule


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
