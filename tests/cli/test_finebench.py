"""``rrg-rewards finebench``."""

import csv
import io
import json

import pytest

from rrg_rewards.data import phantom_studies
from rrg_rewards.findings import paraphrase_report
from rrg_rewards.judges import registry as judges
from rrg_rewards.questions import get_question_schema
from rrg_rewards.questions.engine import build_items
from tests.helpers.question_items import read_items

REPORTS = [study.report for study in phantom_studies(6, seed=2)]
ROWS = [(f"r{number}", report) for number, report in enumerate(REPORTS)]


@pytest.fixture
def reports(write_csv):
    return write_csv("reports.csv", ["id", "report_text"], *ROWS, ("blank", ""))


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_built_items_are_the_engines_and_are_scored(run, reports, tmp_path):
    path = tmp_path / "items.jsonl"
    arguments = ("--text-column", "report_text", "--id-column", "id", "--output", path)
    result = run("finebench", "build", reports, *arguments)
    assert result.code == 0, result.err
    rows = read_items(path)
    assert [(row.report_id, row.report) for row in rows] == ROWS
    assert [row.items for row in rows] == [build_items(report) for report in REPORTS]
    assert f"{sum(len(row.items) for row in rows)} items on 6 reports" in result.err
    columns = ("--prediction-column", "report", "--reference-column", "report", "--context", "items=items")
    scored = run("score", path, "--metrics", "ct_finebench", *columns, "--bootstrap", 0, "--json", tmp_path / "s.json")
    assert scored.code == 0, scored.err
    assert json.loads((tmp_path / "s.json").read_text())["metrics"]["ct_finebench"]["value"] == 1


def label_columns(*positive):
    return [int(finding.name in positive) for finding in get_question_schema("ct_rate").findings]


LABELLED = [
    ("a", "Nodule of 5 mm in the left lung. Small left pleural effusion.", *label_columns("Lung nodule", "Emphysema")),
    ("b", "Small left pleural effusion.", *label_columns()),
    ("c", "Small left pleural effusion.", *[""] * 18),
]


def test_items_of_positive_labels_only(run, write_csv, tmp_path):
    names = [finding.name for finding in get_question_schema("ct_rate").findings]
    path = write_csv("labelled.csv", ["id", "text", *names], *LABELLED)
    arguments = ("--text-column", "text", "--id-column", "id", "--output", tmp_path / "items.jsonl")
    result = run("finebench", "build", path, *arguments, "--labels")
    assert result.code == 0, result.err
    rows = read_items(tmp_path / "items.jsonl")
    assert [(row.report_id, {item.finding for item in row.items}) for row in rows] == [
        ("a", {"Lung nodule"}),
        ("b", set()),
    ]
    assert "1 of 3 reports have no labels" in result.err
    assert "3 items on 2 reports, of which 1 have no item" in result.err
    assert "1 of 2 positive labels have an item" in result.err


def test_an_unknown_schema_is_told(run, reports):
    result = run("finebench", "build", reports, "--text-column", "report_text", "--schema", "ct_rat")
    assert result.code != 0
    assert "ct_rate" in result.err


def test_mined_triples_are_counted_by_pair(run, write_csv):
    texts = ["Nodule of 5 mm in the left lung.", "Nodule of 5 mm in the right lung.", "Left effusion.", "No nodule."]
    path = write_csv("reports.csv", ["text"], *[[text] for text in texts])
    result = run("finebench", "mine", path, "--text-column", "text", "--min-count", 2)
    assert result.code == 0, result.err
    assert [tuple(row.values()) for row in rows_of(result.out)] == [
        ("lung_nodule", "existence", "present", "2", "2"),
        ("lung_nodule", "laterality", "left", "1", "2"),
        ("lung_nodule", "laterality", "right", "1", "2"),
        ("lung_nodule", "size", "5 mm", "2", "2"),
    ]
    assert "2 rarer pairs are left out" in result.err
    assert rows_of(run("finebench", "mine", path, "--text-column", "text").out) == []


def test_texts_of_tables_are_marked_for_spreadsheets(run, write_csv, tmp_path):
    path = write_csv("reports.csv", ["text", "id"], ["Left effusion.", "=1+1"])
    for task, options in (("build", ["--id-column", "id"]), ("mine", ["--min-count", 1])):
        output = tmp_path / f"{task}.csv"
        result = run(
            "finebench", task, path, "--text-column", "text", *options, "--spreadsheet-safe", "--output", output
        )
        assert result.code == 0, result.err
    assert rows_of((tmp_path / "build.csv").read_text())[0]["report_id"] == "'=1+1"
    assert (
        "argument --spreadsheet-safe: needs an --output of CSV"
        in run(
            "finebench", "mine", path, "--text-column", "text", "--spreadsheet-safe", "--output", tmp_path / "m.jsonl"
        ).err
    )


@pytest.fixture
def writer(monkeypatch):
    monkeypatch.setitem(judges._JUDGES, "writing", "writing_judge:WritingJudge")


def test_triples_mined_by_a_judge_are_in_words_of_the_reports(run, write_csv, writer):
    texts = ["Nodule of 5 mm in the left lung.", "Nodule of 5 mm in the right lung.", "Small left pleural effusion."]
    path = write_csv("reports.csv", ["text"], *[[text] for text in texts])
    common = ("finebench", "mine", path, "--text-column", "text", "--judge", "{name: writing}")
    result = run(*common, "--min-count", 2)
    assert result.code == 0, result.err
    assert [tuple(row.values()) for row in rows_of(result.out)] == [
        ("Lung nodule", "existence", "present", "2", "2"),
        ("Lung nodule", "location", "left lung", "1", "2"),
        ("Lung nodule", "location", "right lung", "1", "2"),
        ("Lung nodule", "size", "5 mm", "2", "2"),
    ]
    refused = run("finebench", "mine", path, "--text-column", "text", "--judge", "{name: writing, refuses: effusion}")
    assert "the judge failed on 1 of 3 reports (malformed 1)" in refused.err


def test_sensitivity_writes_versions_scores_and_a_page(run, reports, tmp_path):
    files = {name: tmp_path / f"s.{name}" for name in ("csv", "json", "html")}
    options = ("--changes", "paraphrased,adversarial,wrong_severity", "--max-errors", 1, "--permutations", 0)
    outputs = ("--output", files["csv"], "--json", files["json"], "--html", files["html"])
    common = ("sensitivity", reports, "--reference-column", "report_text", "--metrics", "rouge,crimson", "--limit", 5)
    result = run(*common, *options, *outputs)
    assert result.code == 0, result.err
    assert "share of reports that score worse" in result.out
    rows = rows_of(files["csv"].read_text())
    assert [row["paraphrased"] for row in rows] == [
        paraphrase_report(report, seed=0).candidate for report in REPORTS[:5]
    ]
    assert {row["rouge of clean, rewritten"] for row in rows} == {"1.0"}
    found = json.loads(files["json"].read_text())
    assert found["order"]["wrong_severity"]["crimson"] > 0.5
    assert [group["group"] for group in found["groups"]] == ["rewritten", "wrong_severity"]
    page = files["html"].read_text()
    assert "wrong_severity: 5 reports" in page
    assert REPORTS[0][:30] not in page
    result = run(*common, "--max-errors", "0")
    assert (result.code, "argument --max-errors: " in result.err) == (2, True)


def test_a_table_without_reports_and_a_file_that_exists(run, write_csv, reports, tmp_path):
    empty = write_csv("empty.csv", ["text"], [""])
    result = run("sensitivity", empty, "--reference-column", "text", "--metrics", "rouge")
    assert (result.code, "no report allows a change" in result.err) == (1, True)
    (tmp_path / "t.csv").write_text("mine")
    result = run("finebench", "mine", reports, "--text-column", "report_text", "--output", tmp_path / "t.csv")
    assert (result.code, (tmp_path / "t.csv").read_text()) == (1, "mine")
    result = run("finebench", "build", reports, "--text-column", "text", "--output", tmp_path / "items.jsonl")
    assert (result.code, "unknown column 'text'" in result.err) == (1, True)
