"""Small files in the layout of the VLM3D challenge, on which its official scripts were run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rrg_rewards.data import Table, write_table
from rrg_rewards.schemas import CT_RATE

REFERENCES = {
    "s1.mha": "Findings: The heart is enlarged . A small pleural effusion is seen on the right.\n"
    "Impression: Cardiomegaly. Right pleural effusion.",
    "s2.mha": "Findings: A nodule of 5 mm in the left lower lobe. Impression: Lung nodule.",
    "s3.mha": "Findings: Normal lungs. No effusion. Impression: Normal chest CT.",
    "1.2.840.5.6_B_Toraks.mha": "Findings: Emphysema in both upper lobes. Impression: Emphysema.",
}
# The name with dots lacks its ending, so that the official scripts read "1.2.840.5".
PREDICTIONS = {
    "s1": 'Findings: The heart is enlarged . No pleural effusion.\nImpression: "Cardiomegaly".<|eot_id|>',
    "s2.mha": "Findings: A nodule of 7 mm in the right_upper lobe. Impression: Lung nodule.",
    "1.2.840.5.6_B_Toraks": "Findings: Emphysema in both upper lobes. Impression: Emphysema.",
    "s9.mha": "Findings: Atelectasis.",
}
REFERENCE_LABELS = {
    "s1": ["Cardiomegaly", "Pleural effusion"],
    "s2": ["Lung nodule"],
    "s3": [],
    "1.2.840.5.6_B_Toraks": ["Emphysema", "Lung nodule"],
}
PREDICTION_LABELS = {"s1": ["Cardiomegaly"], "s2": ["Lung nodule"], "1.2.840.5": ["Emphysema"], "s9": ["Atelectasis"]}


def report_list(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the object with a list of reports."""
    reports = [{"input_image_name": name, "report": text} for name, text in texts.items()]
    return {"name": "Generated reports", "type": "Report generation", "generated_reports": reports, "version": "1.0"}


def job(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return a job of grand-challenge."""
    return {"outputs": [{"value": report_list(texts)}]}


def write_labels(path: Path, studies: Mapping[str, Sequence[str]]) -> Path:
    """Write a table of labels from the positive ones of each study."""
    columns = {label: [int(label in positive) for positive in studies.values()] for label in CT_RATE.labels}
    write_table(Table({"AccessionNo": list(studies), **columns}), path, overwrite=True)
    return path


def write_vlm3d_files(folder: Path) -> Path:
    """Write ``predictions.json``, ``ground_truth.json``, ``ground_truth.csv`` and ``inferred.csv``."""
    (folder / "predictions.json").write_text(json.dumps([job(PREDICTIONS)]))
    (folder / "ground_truth.json").write_text(json.dumps(report_list(REFERENCES)))
    write_labels(folder / "ground_truth.csv", REFERENCE_LABELS)
    write_labels(folder / "inferred.csv", PREDICTION_LABELS)
    return folder


def leave_out_meteor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let METEOR fail as on a machine without Java; its program takes many seconds to start."""

    def no_java(*_: Any) -> None:
        raise FileNotFoundError("there is no Java")

    monkeypatch.setattr("rrg_rewards.metrics.coco.CocoMETEOR.score", no_java)
