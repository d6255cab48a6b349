"""The commands of docs/scoring_tables.md on challenges, leaderboards and layouts, run on small files."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tiny_labeler import save_tiny_labeler
from vlm3d_files import leave_out_meteor

from rrg_rewards import read_table
from rrg_rewards.cli.main import main
from rrg_rewards.data import Table, write_table
from rrg_rewards.labelers import RadBertLabeler
from rrg_rewards.schemas import CT_RATE

DOCS = Path(__file__).parent.parent / "docs"
VOLUMES = ["valid_1_a_1", "valid_1_a_2", "valid_2_a_1"]
FINDINGS = ["The heart is enlarged. Small pleural effusion.", "", "Emphysema in both upper lobes."]
IMPRESSIONS = ["Cardiomegaly.", "Normal.", "Emphysema."]
PREDICTIONS = ["Cardiomegaly.", "Pleural effusion.", "Emphysema. Nodule of 4 mm."]


def commands(page: str, heading: str) -> list[str]:
    """Return the commands in the blocks of a section, up to the next section of the same level."""
    text = (DOCS / page).read_text(encoding="utf-8")
    section = re.split(r"\n## ", text.partition(f"\n## {heading}\n")[2])[0]
    blocks = re.findall(r"\n```\n(.*?)\n```", section, re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def run(command: str) -> None:
    if command.startswith("rrg-rewards "):
        assert main([*shlex.split(command)[1:], "--quiet"]) == 0, command
    else:
        subprocess.run(["bash", "-c", command], check=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """CT-RATE's tables, predictions of a system, a tiny RadBERT and a ReXrank document, in the working folder."""
    monkeypatch.chdir(tmp_path)
    names = [f"{volume}.nii.gz" for volume in VOLUMES]
    reports = {"VolumeName": names, "Findings_EN": FINDINGS, "Impressions_EN": IMPRESSIONS}
    write_table(Table(reports), "valid_reports.csv")
    positive = ["Cardiomegaly", "Pleural effusion", "Emphysema"]
    labels = {label: [int(label == name) for name in positive] for label in CT_RATE.labels}
    write_table(Table({"VolumeName": names, **labels}), "valid_predicted_labels.csv")
    write_table(Table({"volume": names, "prediction": PREDICTIONS}), "predictions.csv")
    save_tiny_labeler(tmp_path / "radbert_local")
    studies = zip(["p1", "p2", "p3"], FINDINGS, IMPRESSIONS, PREDICTIONS, strict=True)
    document = {
        name: {
            "report": f"Findings: {findings} Impression: {impression}",
            "section_findings": findings or None,
            "section_impression": impression,
            "model_prediction": prediction,
        }
        for name, findings, impression, prediction in studies
    }
    (tmp_path / "rexrank.json").write_text(json.dumps(document))
    return tmp_path


@pytest.mark.filterwarnings("ignore::rrg_rewards.utilities.run_log.RunWarning")
def test_published_numbers_vlm3d(folder, monkeypatch):
    leave_out_meteor(monkeypatch)
    lines = commands("scoring_tables.md", "VLM3D")
    assert [line.split()[:2] for line in lines].count(["rrg-rewards", "score"]) == 2
    for line in lines:
        run(line)
    reports = json.loads((folder / "ground_truth.json").read_text())["generated_reports"]
    assert reports[1] == {"input_image_name": "valid_1_a_2", "report": "Impression: Normal."}
    found = json.loads((folder / "metrics.json").read_text())
    assert list(found) == ["generation", "classification", "crg"]
    assert found["generation"]["BLEU_1"] > 0
    assert json.loads((folder / "metrics_again.json").read_text()) == found
    labels = read_table("inferred.csv")
    assert labels.columns["AccessionNo"] == VOLUMES
    expected = RadBertLabeler("radbert_local")(PREDICTIONS).int().tolist()
    assert [list(row) for row in labels.labels(CT_RATE.labels)] == expected
    assert found["crg"]["X"] == 54


def test_published_numbers_rexrank(folder):
    (line,) = commands("scoring_tables.md", "ReXrank")
    run(line)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["metrics"]["rexrank_bleu"]["scored"] == 3
    assert summary["reference_column"] == "Findings: {section_findings} Impression: {section_impression}"
    assert read_table("scores.csv").names[0] == "study_id"


def test_scoring_tables_layouts(folder):
    run(next(line for line in commands("scoring_tables.md", "VLM3D") if "--layout vlm3d " in line))
    lines = commands("scoring_tables.md", "Leaderboards and challenges")
    assert len(lines) == 3
    for line in reversed(lines):
        run(line.replace("submission.json", "predictions.json"))
    assert read_table("predictions.json").columns["report"] == PREDICTIONS


def test_scoring_tables_texts_of_several_columns(folder):
    table = Table({"findings": FINDINGS, "impression": IMPRESSIONS, "prediction": PREDICTIONS})
    write_table(table, folder / "pairs.csv")
    (line,) = commands("scoring_tables.md", "Texts of several columns")
    run(f"{line} --json summary.json")
    assert json.loads((folder / "summary.json").read_text())["metrics"]["rouge"]["scored"] == 3
