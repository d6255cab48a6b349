"""Checks of partitioned weights and of gradients."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from tiny_generator import says_edema, tiny_generator, train, weights
from torch import nn

from rrg_rewards.training import PolicyModule, base
from rrg_rewards.training.base import GradientError, OptimizerSettings, TrainingModule


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


class _Spoils(Callback):
    """Makes a gradient of some steps not finite, and records the weights before each step."""

    def __init__(self, steps: range, value: float = math.nan) -> None:
        self.steps, self.value, self.weights = steps, value, list[torch.Tensor]()

    def on_train_batch_start(self, trainer: Any, module: Any, *_: Any) -> None:
        self.weights.append(weights(module.generator))

    def on_after_backward(self, trainer: Any, module: Any) -> None:
        if trainer.global_step in self.steps:
            next(module.parameters()).grad.view(-1)[0] = self.value


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_training_module_a_step_without_finite_gradients_is_skipped_and_counted(value: float, tmp_path: Path) -> None:
    spoils = _Spoils(range(1, 3), value)
    module = PolicyModule(tiny_generator(), says_edema, learning_rate=5e-3, weight_decay=0.1)
    with pytest.warns(UserWarning, match="step 2 is skipped") as warned:
        history = train(module, 5, callbacks=[spoils], gradient_clip_val=1.0)
    before = spoils.weights
    moved = [not torch.equal(*pair) for pair in zip(before, [*before[1:], weights(module.generator)], strict=True)]
    assert moved == [True, False, False, True, True]
    assert history.rows[-1]["skipped_steps"] == 2
    assert sum("is skipped" in str(warning.message) for warning in warned) == 2
    # A resumed run goes on counting.
    module.trainer.save_checkpoint(tmp_path / "last.ckpt")
    resumed = PolicyModule(tiny_generator(), says_edema, learning_rate=5e-3, weight_decay=0.1)
    with pytest.warns(UserWarning, match=r"step 5 .* \(3 so far\)"):
        train(resumed, 6, callbacks=[_Spoils(range(5, 6), value)], ckpt_path=str(tmp_path / "last.ckpt"))


@pytest.mark.filterwarnings("ignore:step .* is skipped")
def test_training_module_a_run_without_finite_gradients_ends() -> None:
    module = PolicyModule(tiny_generator(), says_edema, learning_rate=5e-3)
    with pytest.raises(GradientError, match="learning_rate"):
        train(module, 100, callbacks=[_Spoils(range(3, 100))])
    assert module.global_step == 3 + base.MAX_SKIPPED_STEPS - 1
    assert weights(module.generator).isfinite().all()
