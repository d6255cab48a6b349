"""The split of CT-RATE reports into findings and impression."""

import csv
from pathlib import Path

import pytest

from rrg_rewards.recipes.smollm2.ct_rate import main, split_file, split_report
from rrg_rewards.schemas import CT_RATE


@pytest.mark.parametrize(
    ("report", "parts"),
    [
        ('Findings here. " One " Two', ("Findings here.", "One\nTwo")),
        ('Findings here.  " One. ""', ("Findings here.", "One.")),
        ("Findings here. • One • Two", ("Findings here.", "One\nTwo")),
        ("Findings here. ·One", ("Findings here.", "One")),
        ("Findings without an end.", None),
        ('Findings, then nothing. "', None),
        ('" Impression only', None),
        ("", None),
    ],
)
def test_split_report_reports_are_split(report: str, parts: tuple[str, str] | None) -> None:
    assert split_report(report) == parts


def test_split_file_files_are_split_and_reports_without_impression_counted(tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "sub" / "out.csv"
    source.write_text('id,report_text,Cardiomegaly\n1,"Large heart. "" Cardiomegaly",1\n2,Normal.,0\n3,,0\n')
    assert split_file(source, output) == (1, 2)
    with output.open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"id": "1", "Cardiomegaly": "1", "findings": "Large heart.", "impression": "Cardiomegaly"}
        ]
    with pytest.raises(ValueError, match="unknown column 'reports'"):
        split_file(source, output, text_column="reports")


def test_split_file_the_real_table(shared_data: Path, tmp_path: Path) -> None:
    source, output = shared_data / "ct_rate_labels" / "reports.csv", tmp_path / "out.csv"
    main([str(source), "--output", str(output)])
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert 700 < len(rows) < 800
    assert set(CT_RATE.labels) < set(rows[0])
    findings, impression = (sum(len(row[part].split()) for row in rows) for part in ("findings", "impression"))
    assert findings > 4 * impression
