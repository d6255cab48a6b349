"""``rrg-rewards findings``."""

import json

import pytest

from rrg_rewards.analysis import FindingExportSettings
from rrg_rewards.data.tables.table import Table
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.utilities.settings import SettingError


@pytest.fixture
def reports(tmp_path):
    write_table(Table({"id": ["1", "2"], "report": ["Hiatal hernia. No effusion.", None]}), tmp_path / "in.csv")
    return tmp_path / "in.csv"


def test_one_object_is_written_for_each_report(run, reports, tmp_path):
    options = ("--text-column", "report", "--id-column", "id", "--output", tmp_path / "out.jsonl")
    result = run("findings", reports, *options, "--json", tmp_path / "counts.json")
    assert (result.code, result.out) == (0, "")
    assert "1 findings in 1 of 2 reports; 0 of 4 words were not read" in result.err
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert [(one["concept"], one["presence"]) for one in first["findings"]] == [
        ("hiatal_hernia", "present"),
        ("pleural_effusion", "absent"),
    ]
    assert second == {"row": 2, "id": "2", "findings": None}
    assert json.loads((tmp_path / "counts.json").read_text())["findings"] == {"hiatal_hernia": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--text-column", "report", "--output", "out.csv"), "JSON lines"),
        (("--text-column", "text", "--output", "-"), "text"),
        (("--text-column", "report", "--lexicon", "chest_cd", "--output", "-"), "chest_ct"),
    ],
)
def test_a_wrong_option_is_named(run, reports, options, message):
    result = run("findings", reports, *options)
    assert result.code in (1, 2)
    assert message in result.err


def test_a_batch_has_a_report_at_least(run, tmp_path):
    (tmp_path / "r.csv").write_text("report\nNormal.\n")
    result = run("findings", tmp_path / "r.csv", "--text-column", "report", "--batch-size", 0)
    assert (result.code, "--batch-size" in result.err) == (2, True)
    with pytest.raises(SettingError) as refused:
        FindingExportSettings(text_column="report", batch_size=0)
    assert refused.value.setting == "batch_size"
