"""CT-CHAT in a small LightningModule, trained by Lightning, with its reports scored by the callback."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from tiny_ct_chat import save_volumes, tiny_ct_chat, tiny_processor
from torch.utils.data import DataLoader
from words import WordLabeler

from rrg_rewards.callbacks import ReportMetricsCallback
from rrg_rewards.metrics import ReportCRG

REPORTS = ["edema", "effusion nodule", "normal heart", "edema effusion"]
LABELER = WordLabeler("edema effusion nodule")


class Generator(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.processor = tiny_processor()
        self.model = tiny_ct_chat(self.processor)

    def inputs(self, rows: list[dict[str, str]], with_report: bool) -> Any:
        reports = [f"{row['report']}<|eot_id|>" if with_report else "" for row in rows]
        return self.processor(
            text=[f"<image> report {report}" for report in reports],
            images=[row["image"] for row in rows],
            padding=True,
            return_tensors="pt",
        )

    def training_step(self, rows: list[dict[str, str]], batch_idx: int) -> torch.Tensor:
        inputs = self.inputs(rows, with_report=True)
        labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
        loss: torch.Tensor = self.model(**inputs, labels=labels).loss
        return loss

    def validation_step(self, rows: list[dict[str, str]], batch_idx: int) -> dict[str, list[str]]:
        inputs = self.inputs(rows, with_report=False)
        tokens = self.model.generate(**inputs, max_new_tokens=4, do_sample=False)
        reports = self.processor.batch_decode(tokens[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        return {"prediction": reports, "reference": [row["report"] for row in rows]}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


@pytest.mark.slow
def test_report_metrics_callback_lightning_trains_ct_chat_to_tell_volumes_apart(tmp_path: Path) -> None:
    torch.manual_seed(0)
    paths = save_volumes(tmp_path, len(REPORTS))
    rows = [{"image": path, "report": report} for path, report in zip(paths, REPORTS, strict=True)]
    loader = DataLoader(rows, batch_size=2, collate_fn=list)
    trainer = Trainer(
        max_epochs=40,
        check_val_every_n_epoch=40,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ReportMetricsCallback(ReportCRG(LABELER, prior=0.4))],
    )
    trainer.fit(Generator(), loader, loader)
    # All prompts are equal: the reports depend on the volumes only.
    assert trainer.callback_metrics["val/crg"] == 1
