"""Reports of one modality are told from those of the other: on all reports at hand, and on few."""

import csv
import json
from pathlib import Path

import pytest

from rrg_rewards.data.phantom.studies import phantom_studies
from rrg_rewards.findings.reading.modality import ModalityCheck, report_majority

CT_FILES = {
    "ct_rate_labels/reports.csv": ("report_text",),
    "reg2rg_ctrg/pairs.csv": ("GT_whole_report", "Pred_whole_report"),
    "reg2rg_ct_rate/pairs.csv": ("reference", "prediction"),
}
XRAY_FILES = {
    "iu_xray/systems.csv": ("reference", "fixed_normal_template", "sft_model", "retrieval_oracle"),
    "iu_xray/train_reports.jsonl": ("report",),
    "radpref/pairs.json": ("ground_truth_report", "C1_report", "C2_report"),
}


def read_columns(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    text = path.read_text()
    if path.suffix == ".csv":
        rows = list(csv.DictReader(text.splitlines(keepends=True)))
    else:
        rows = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    return [[row[column] for row in rows] for column in columns]


@pytest.mark.parametrize(("files", "modality"), [(CT_FILES, "ct"), (XRAY_FILES, "xray")])
def test_modality_no_real_reports_are_taken_for_the_other_modality(shared_data: Path, files, modality: str) -> None:
    other = {"ct": "xray", "xray": "ct"}[modality]
    for name, columns in files.items():
        for reports in read_columns(shared_data / name, columns):
            assert sum(report_majority(report) == other for report in reports) <= 0.04 * len(reports), name
            for start in range(0, len(reports) - 19, 20):
                sample = reports[start : start + 20]
                assert not ModalityCheck(modality).differs(sample), (name, start)
            assert ModalityCheck(other).differs(reports), name


def test_modality_phantom_studies_are_of_ct() -> None:
    reports = [study.report for study in phantom_studies(50, seed=0)]
    assert not ModalityCheck("ct").differs(reports)


def test_modality_few_reports_or_mixed_ones_are_no_reason_to_warn() -> None:
    xray, ct = "The cardiac silhouette is normal.", "Both main bronchi are open. No lymph node."
    assert not ModalityCheck("ct").differs([xray] * 9)
    assert ModalityCheck("ct").differs([xray] * 10)
    assert not ModalityCheck("ct").differs([xray] * 10 + [ct] * 2)
    assert not ModalityCheck("ct").differs(["No effusion."] * 500)


def test_modality_only_the_first_reports_are_read_and_the_answer_comes_once() -> None:
    check = ModalityCheck("xray")
    assert not check.differs([" ", ""] * 500)
    assert check.differs(["Both main bronchi are open."] * 10)
    assert not check.differs(["Both main bronchi are open."] * 500)
    check = ModalityCheck("xray")
    assert not check.differs(["No effusion."] * 200)
    assert not check.differs(["Both main bronchi are open."] * 10)
