"""All metrics in the checks of torchmetrics' own test suite in two processes, and in Lightning with all precisions."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from metric_harness import SUBJECTS, Subject, check_subject, save_models
from torch.utils.data import DataLoader

from rrg_rewards.callbacks import ReportMetricsCallback, UnpaddedDistributedSampler
from rrg_rewards.metrics import ReportMetric
from tests.distributed.helpers import run_distributed

# On a GPU also 16-mixed, see tests/gpu.
PRECISIONS = ["32-true", "bf16-true", "16-true", "64-true", "bf16-mixed"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return save_models(Path(tmp_path_factory.mktemp("models")))


def check_all(rank: int, world_size: int, models: dict[str, str]) -> None:
    warnings.simplefilter("ignore")
    for name, subject in SUBJECTS.items():
        try:
            check_subject(subject(models), rank, world_size)
        except BaseException as error:
            error.add_note(f"in {name}")
            raise


@pytest.mark.distributed
def test_metrics_in_two_processes(models: dict[str, str]) -> None:
    run_distributed(check_all, 2, models, timeout=300)


class Scored(LightningModule):
    """A module whose metrics are logged as objects, updated by ``update`` and by ``forward``."""

    def __init__(self, subjects: dict[str, Subject]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))
        self.subjects = subjects
        loops = ("train", "val")
        made = {f"{loop}_{name}": subject.make() for loop in loops for name, subject in subjects.items()}
        self.metrics = torch.nn.ModuleDict(made)

    def training_step(self, batch: list[int], batch_idx: int) -> torch.Tensor:
        self._score(batch, "train")
        return self.weight**2

    def validation_step(self, batch: list[int], batch_idx: int) -> dict[str, Any]:
        self._score(batch, "val")
        preds, target = self.subjects["crg"].batches[batch[0]][0]
        return {"prediction": preds, "reference": target}

    def _score(self, batch: list[int], loop: str) -> None:
        (number,) = batch
        for name, subject in self.subjects.items():
            metric = self.metrics[f"{loop}_{name}"]
            args, kwargs = self.transfer_batch_to_device(subject.batches[number], self.device, 0)
            (metric if number % 2 else metric.update)(*args, **kwargs)
            self.log(f"{loop}_{name}", metric, on_step=False, on_epoch=True, batch_size=4)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit_all(
    rank: int,
    world_size: int,
    models: dict[str, str],
    folder: str,
    accelerator: str = "cpu",
    precisions: Sequence[str] = PRECISIONS,
    names: Sequence[str] = tuple(SUBJECTS),
) -> dict[str, dict[str, float]]:
    """Train and validate in each precision; return what was logged."""
    warnings.simplefilter("ignore")
    # Lightning starts no processes of its own if a launcher has.
    os.environ["LOCAL_RANK"] = str(rank)
    subjects = {name: SUBJECTS[name](models) for name in names}
    found = {}
    for precision in precisions:
        callback = ReportMetricsCallback(
            {name: metric for name, subject in subjects.items() if isinstance(metric := subject.make(), ReportMetric)}
        )
        trainer = Trainer(
            accelerator=accelerator,
            strategy="ddp" if world_size > 1 else "auto",
            devices=world_size,
            precision=precision,
            max_epochs=1,
            num_sanity_val_steps=2,
            callbacks=[callback],
            default_root_dir=folder,
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        module = Scored(subjects)
        numbers = list(range(6))

        def loader(numbers: list[int] = numbers) -> DataLoader[int]:
            return DataLoader(numbers, collate_fn=list, sampler=UnpaddedDistributedSampler(numbers))  # type: ignore[arg-type]

        trainer.validate(module, loader(), verbose=False)
        # The states were reset in inference mode.
        trainer.fit(module, loader(), loader())
        assert trainer.world_size == world_size
        found[precision] = {name: float(value) for name, value in trainer.callback_metrics.items()}
        found[precision]["types"] = str({str(value.dtype) for value in trainer.callback_metrics.values()})
    return found


@pytest.mark.slow
# The scripted judge fails on a pair.
@pytest.mark.filterwarnings("ignore::rrg_rewards.judges.base.JudgeWarning")
@pytest.mark.parametrize("world_size", [1, pytest.param(2, marks=pytest.mark.distributed)])
def test_lightning_logs_the_same_values_in_every_precision(
    models: dict[str, str], tmp_path: Path, world_size: int
) -> None:
    by_rank = run_distributed(fit_all, world_size, models, str(tmp_path), timeout=400)
    for found in by_rank:
        exact = found["32-true"]
        for precision in PRECISIONS:
            assert found[precision] == exact, precision
        for name, subject in SUBJECTS.items():
            for loop in ("train", "val"):
                expected = subject(models).total
                assert exact[f"{loop}_{name}"] == pytest.approx(expected, rel=1e-6, nan_ok=True), (loop, name)
