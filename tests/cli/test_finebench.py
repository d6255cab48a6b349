"""``rrg-rewards finebench``."""

import csv
import io
import json

import pytest

from rrg_rewards.data import phantom_studies
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


@pytest.mark.parametrize("prefix", ["", "GT_"])
def test_items_of_positive_labels_only(run, write_csv, tmp_path, prefix):
    names = [prefix + finding.name for finding in get_question_schema("ct_rate").findings]
    path = write_csv("labelled.csv", ["id", "text", *names], *LABELLED)
    option = ("--label-prefix", prefix) if prefix else ("--labels",)
    arguments = ("--text-column", "text", "--id-column", "id", "--output", tmp_path / "items.jsonl")
    result = run("finebench", "build", path, *arguments, *option)
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


def test_texts_of_tables_are_marked_for_spreadsheets(run, write_csv, tmp_path):
    path = write_csv("reports.csv", ["text", "id"], ["Left effusion.", "=1+1"])
    common = (
        "finebench",
        "build",
        path,
        "--text-column",
        "text",
        "--id-column",
        "id",
        "--spreadsheet-safe",
        "--output",
    )
    result = run(*common, tmp_path / "build.csv")
    assert result.code == 0, result.err
    assert rows_of((tmp_path / "build.csv").read_text())[0]["report_id"] == "'=1+1"
    assert "argument --spreadsheet-safe: needs an --output of CSV" in run(*common, tmp_path / "build.jsonl").err


def test_a_file_that_exists_and_an_unknown_column(run, reports, tmp_path):
    (tmp_path / "t.csv").write_text("mine")
    result = run("finebench", "build", reports, "--text-column", "report_text", "--output", tmp_path / "t.csv")
    assert (result.code, (tmp_path / "t.csv").read_text()) == (1, "mine")
    result = run("finebench", "build", reports, "--text-column", "text", "--output", tmp_path / "items.jsonl")
    assert (result.code, "unknown column 'text'" in result.err) == (1, True)
