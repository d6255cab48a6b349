"""Metrics and tables of reports in the files of real trackers, all without a network. Absent trackers are skipped."""

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
from torch.utils.data import DataLoader

from rrg_rewards.callbacks import ReportMetricsCallback
from rrg_rewards.metrics import ReportCRG

PAGE = Path(__file__).parents[2] / "docs" / "lightning.md"
PAIRS = [("Cardiomegaly.", "Cardiomegaly. Hiatal hernia."), ("Lung nodule.", "Lung nodule.")]
REFERENCE = PAIRS[0][1]


class Reporter(LightningModule):
    """Predicts the first text of each pair."""

    def validation_step(self, batch: Any, index: int) -> Any:
        return {"prediction": list(batch[0]), "reference": list(batch[1])}


def validate(logger: Any) -> None:
    callback = ReportMetricsCallback(ReportCRG(prior=0.19), log_tables=True, num_worst=1)
    options: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(logger=logger, callbacks=[callback], **options)
    trainer.validate(Reporter(), DataLoader(PAIRS, batch_size=2), verbose=False)
    logger.finalize("success")


def tensorboard(folder: Path) -> tuple[float, str]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logger = TensorBoardLogger(folder)
    validate(logger)
    events = accumulator.EventAccumulator(logger.log_dir)
    events.Reload()
    (table,) = events.Tensors("val/crg_worst/text_summary")
    return events.Scalars("val/crg")[0].value, table.tensor_proto.string_val[0].decode()


def wandb(folder: Path) -> tuple[float, str]:
    module = pytest.importorskip("wandb")
    logger = WandbLogger(project="crg", save_dir=folder, offline=True)
    validate(logger)
    value = logger.experiment.summary["val/crg"]
    module.finish()
    (table,) = folder.rglob("*.table.json")
    return value, table.read_text()


def mlflow(folder: Path) -> tuple[float, str]:
    module = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    uri = f"sqlite:///{folder}/mlflow.db"
    validate(MLFlowLogger("crg", tracking_uri=uri, artifact_location=str(folder / "artifacts")))
    client = module.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("crg").experiment_id])
    (table,) = (folder / "artifacts").rglob("val/crg_worst/step_0.json")
    return run.data.metrics["val/crg"], table.read_text()


def trackio(folder: Path) -> tuple[float, str]:
    """By the logger of the page."""
    pytest.importorskip("trackio")
    (code,) = re.findall(r'```python title="trackio_logger.py"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    validate(names["TrackioLogger"]("crg"))
    (database,) = folder.rglob("crg.db")
    rows = [json.loads(row) for (row,) in sqlite3.connect(database).execute("select metrics from metrics")]
    (value,) = [row["val/crg"] for row in rows if "val/crg" in row]
    (table,) = [row["val/crg_worst"] for row in rows if "val/crg_worst" in row]
    return value, json.dumps(table)


# Weights & Biases and MLflow start processes or make databases.
SLOW = [pytest.param(tracker, marks=pytest.mark.slow) for tracker in (wandb, mlflow)]


@pytest.mark.parametrize("tracker", [tensorboard, trackio, *SLOW], ids=lambda tracker: tracker.__name__)
def test_report_metrics_callback_values_and_tables_reach_a_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: Callable[[Path], tuple[float, str]]
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    value, table = tracker(tmp_path)
    metric = ReportCRG(prior=0.19)
    metric.update(*zip(*PAIRS, strict=True))
    torch.testing.assert_close(value, metric.compute().item(), rtol=1e-6, atol=0)
    assert REFERENCE in table
    assert "Hiatal hernia" in table
    assert PAIRS[1][0] not in table
