"""Lightning's callbacks on the second device and on a GPU: logged values equal those on the CPU."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from second_device import KINDS, devices_of, lightning_settings
from tiny_ct_chat import tiny_processor, volume
from torch.utils.data import DataLoader

from rrg_rewards.callbacks import ReportMetricsCallback, RewardWatchCallback
from rrg_rewards.metrics import CRGScore, make_metric
from rrg_rewards.rewards import make_reward
from rrg_rewards.watch import RewardWatch

REPORTS = ["Pleural effusion.", "Normal.", "A nodule.", "Hiatal hernia.", "Cardiomegaly.", "Effusion and nodule."]


@pytest.fixture(scope="module", params=KINDS)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    with devices_of(request.param) as (first, _):
        yield first


class Reporting(LightningModule):
    """Returns tensors of its device beside the texts, and logs a metric of labels."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))
        self.labels = CRGScore(2)
        self.places: set[torch.device] = set()

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        rewards = {"word": batch["age"].float() * self.weight.detach()}
        return {"loss": (self.weight * batch["age"]).mean(), "rewards": rewards, **batch}

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        self.places.add(batch["age"].device)
        self.labels(batch["labels"], batch["labels"].flip(0))
        self.log("labels", self.labels, batch_size=2)
        return dict(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def collate(rows: Sequence[int]) -> dict[str, Any]:
    return {
        "prediction": [REPORTS[row] for row in rows],
        "reference": [REPORTS[row - row % 2] for row in rows],
        "age": torch.tensor([60 + row for row in rows]),
        "labels": torch.tensor([[row % 2, row % 3 == 0] for row in rows]).long(),
    }


def fit(**settings: Any) -> tuple[Reporting, dict[str, float], dict[str, Any]]:
    metrics = {"crg": make_metric("crg"), "crimson": make_metric("crimson"), "rouge": make_metric("rouge")}
    watch = RewardWatch(block_reports=2, baseline_reports=6, window_reports=6)
    callbacks = [
        ReportMetricsCallback(metrics, context_keys={"crimson": {"age": "age"}}),
        RewardWatchCallback([make_reward("rouge")], watch=watch),
    ]
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(max_epochs=1, callbacks=callbacks, enable_model_summary=False, **quiet, **settings)
    module = Reporting()
    train, val = (DataLoader(range(6), batch_size=2, collate_fn=collate) for _ in range(2))
    trainer.fit(module, train, val)
    return module, {name: float(value) for name, value in trainer.callback_metrics.items()}, watch.state_dict()


@pytest.mark.filterwarnings("ignore")
def test_callbacks_on_a_device_log_the_values_of_the_cpu(device: torch.device) -> None:
    expected = fit(accelerator="cpu", devices=1)
    module, logged, watched = fit(**lightning_settings(device=device))
    assert module.places == {device}
    assert {"val/crg", "val/crimson", "val/rouge", "labels"} <= logged.keys()
    assert logged == pytest.approx(expected[1], nan_ok=True)
    assert str(watched) == str(expected[2])


def test_inputs_of_a_processor_move_to_a_device_as_they_are(device: torch.device) -> None:
    processor = tiny_processor()
    texts = ["<image> edema", "lungs normal heart"]
    inputs = processor(text=texts, images=[volume(0), None], padding=True, return_tensors="pt")
    moved = processor(text=texts, images=[volume(0), None], padding=True, return_tensors="pt").to(device)
    for name, value in inputs.items():
        assert moved[name].device == device, name
        np.testing.assert_array_equal(moved[name].cpu().float().numpy(), value.float().numpy())
