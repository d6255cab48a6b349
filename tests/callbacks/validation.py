"""A tiny module and data for validations, and the script that runs one under DDP.

Run as a script in each process: ``python validation.py OUTPUT.json DEVICES BATCH_SIZE SAMPLER``.
Batch size 0 runs validations of few reports.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader
from words import WordLabeler

from rrg_rewards.callbacks import ReportMetricsCallback, UnpaddedDistributedSampler
from rrg_rewards.metrics import ReportCRG

# Eleven pairs, an odd number for two processes. The last pairs differ from the first ones: a padding sampler, which
# repeats the first pair, changes every statistic.
PAIRS = [
    ("Pleural effusion.", "Pleural effusion and a nodule."),
    ("Normal.", "Hiatal hernia."),
    ("A nodule.", "A nodule."),
    ("A nodule, effusion.", "Normal."),
    ("", "Effusion."),
    ("Hernia.", "Hernia."),
    ("Normal.", "Normal."),
    ("Effusion, nodule, hernia.", "Effusion."),
    ("Nodule.", "Hernia."),
    ("Normal.", " "),
    ("Effusion.", "Effusion."),
]


class Echo(LightningModule):
    """A module with one parameter, whose batches contain the predictions and references."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.weight**2

    def step(self, batch: Any) -> Any:
        preds, target, places = batch
        return {"prediction": list(preds), "reference": list(target), "study": [f"study-{place}" for place in places]}

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return self.step(batch)

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return self.step(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def rows(pairs: list[tuple[str, str]] = PAIRS) -> list[tuple[str, str, int]]:
    return [(pred, ref, place) for place, (pred, ref) in enumerate(pairs)]


def make_trainer(folder: Path, **arguments: Any) -> Trainer:
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": CSVLogger(folder),
        "max_epochs": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1,
    }
    return Trainer(**{**settings, **arguments})


def _few_reports(output: Path, devices: int, callback: ReportMetricsCallback) -> None:
    """Run fit with one loader and validate with two, of fewer and more reports than processes."""
    found = {}
    for count in (1, 2, 3, 7):
        loaders = [
            DataLoader(data, batch_size=2, sampler=UnpaddedDistributedSampler(data))
            for data in (rows(PAIRS[:count]), rows(PAIRS[-1:]))
        ]
        strategy = "ddp" if devices > 1 else "auto"
        trainer = make_trainer(output.parent, devices=devices, strategy=strategy, callbacks=[callback], logger=False)
        trainer.fit(Echo(), DataLoader(rows(), batch_size=4), loaders[0])
        fitted = {name: value.item() for name, value in trainer.callback_metrics.items()}
        found[count] = {"fit": fitted, "validate": trainer.validate(Echo(), loaders, verbose=False)}
    if trainer.is_global_zero:
        output.write_text(json.dumps(found))


def _main(output: Path, devices: int, batch_size: int, padded: bool) -> None:
    callback = ReportMetricsCallback(
        ReportCRG(WordLabeler(), prior=0.3), table_dir=output.parent / f"tables-{output.stem}", num_worst=4
    )
    if batch_size == 0:
        _few_reports(output, devices, callback)
        return
    strategy = "ddp" if devices > 1 else "auto"
    folder = output.parent / output.stem
    trainer = make_trainer(folder, devices=devices, strategy=strategy, callbacks=[callback], num_sanity_val_steps=1)

    def loader(pairs: list[tuple[str, str]]) -> "DataLoader[Any]":
        data = rows(pairs)
        return DataLoader(data, batch_size=batch_size, sampler=None if padded else UnpaddedDistributedSampler(data))

    train, val, one_report = DataLoader(rows(), batch_size=4), loader(PAIRS), loader(PAIRS[:1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(Echo(), train, val)
    fitted = {name: value.item() for name, value in trainer.callback_metrics.items()}
    validated = trainer.validate(Echo(), [val, one_report], verbose=False)
    assert trainer.world_size == devices
    if trainer.is_global_zero:
        told = [str(warning.message) for warning in caught]
        output.write_text(json.dumps({"fit": fitted, "validate": validated, "warnings": told}))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), padded=sys.argv[4] == "padded")
