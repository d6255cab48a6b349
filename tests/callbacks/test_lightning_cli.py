"""The YAML of the documentation in a LightningCLI."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader

from rrg_rewards.metrics import CRIMSON, ReportCRG

PAIR = ["The heart is enlarged."], ["Cardiomegaly. Hiatal hernia."]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "lightning.md"


class Reports(LightningModule):
    """A module whose reports are given, with a weight to train."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.weight.sum()

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, list[str]]:
        return {"prediction": PAIR[0], "reference": PAIR[1]}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)

    def train_dataloader(self) -> Any:
        return DataLoader([0.0])

    val_dataloader = train_dataloader


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ((name, text),) = re.findall(r'```yaml title="(\S+)"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / name
    path.write_text(text)
    return path


def cli(*arguments: str) -> LightningCLI:
    defaults = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    return LightningCLI(Reports, args=list(arguments), save_config_callback=None, trainer_defaults=defaults)


def test_lightning_cli_runs_the_yaml_of_the_documentation(config: Path) -> None:
    trainer = cli("fit", "--config", str(config), "--trainer.max_epochs", "1").trainer
    logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert logged["val/crimson"] == pytest.approx(CRIMSON().score(*PAIR).value.item())
    assert logged["val/crg"] == pytest.approx(1 / (2 - ReportCRG(prior=0.19).score(*PAIR).value.item()))
    assert trainer.checkpoint_callback.monitor == "val/crg"
    assert (config.parent / "runs" / "worst" / "val_crg_worst.csv").is_file()


def test_lightning_cli_names_a_misspelt_key(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(config.read_text().replace("        table_dir:", "        table_dirs:"))
    with pytest.raises(SystemExit):
        cli("validate", "--config", str(config))
    assert "Option 'table_dirs' is not accepted" in capsys.readouterr().err
