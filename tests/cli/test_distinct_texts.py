"""Distinct texts and constant texts in what the commands print, warn of and write."""

import json

import pytest

STUDIES = range(1, 31)
NODULE = "Nodule of {} mm in the right lung. Main bronchi are open."


@pytest.fixture
def table(write_csv):
    """Return 30 studies with a system that writes one text (``same``), and one that describes the study (``own``)."""
    header = ["study", "same", "own", "reference", "rating"]
    rows = ([n, "Clear  lungs.", f"Nodule of {n} mm.", NODULE.format(n), n % 5] for n in STUDIES)
    return write_csv("pairs.csv", header, *rows)


def test_score_prints_warns_and_writes_distinct_and_constant_texts(run, table, tmp_path):
    files = ("--json", tmp_path / "s.json", "--html", tmp_path / "s.html")
    result = run("score", table, "--metrics", "rouge", "--prediction-column", "same", "--bootstrap", 0, *files)
    assert result.code == 0, result.err
    assert "warning: same has 1 distinct text for 30 studies (3.3 %), the commonest 30 times" in result.err
    assert "1 distinct text for 30 studies" in result.out
    summary = json.loads((tmp_path / "s.json").read_text())
    assert (summary["texts"]["distinct"], summary["texts"]["distinct_references"]) == (1, 30)
    rouge = summary["metrics"]["rouge"]
    # The system is its commonest text.
    assert rouge["constant_texts"]["commonest_text"]["value"] == rouge["value"]
    assert set(rouge["constant_texts"]) == {"commonest_text", "normal_report"}
    page = (tmp_path / "s.html").read_text()
    assert "Distinct texts" in page
    assert "Values if every study had the same text" in page
    assert "Clear" not in page


def test_score_is_silent_on_a_system_that_describes_studies(run, table):
    result = run("score", table, "--metrics", "rouge", "--prediction-column", "own", "--bootstrap", 0)
    assert "distinct" not in result.err
    assert "30 distinct texts for 30 studies (100.0 %), the commonest once (3.3 %)" in result.out
    assert "commonest text" not in result.out


def test_compare_prints_warns_and_writes_distinct_and_constant_texts(run, table, tmp_path):
    columns = ("--prediction-column", "same", "--prediction-column", "own", "--bootstrap", 0, "--permutations", 9)
    files = ("--json", tmp_path / "c.json", "--html", tmp_path / "c.html")
    result = run("compare", table, "--metrics", "rouge", *columns, *files)
    assert result.code == 0, result.err
    assert result.err.count("distinct") == 1
    assert "own: 30 distinct texts for 30 studies" in result.out
    written = json.loads((tmp_path / "c.json").read_text())
    assert {name: entry["are_few"] for name, entry in written["texts"].items()} == {"same": True, "own": False}
    constants = written["constant_texts"]
    assert set(constants) == {"commonest_text of same", "normal_report"}
    (same, _) = written["groups"][0]["metrics"][0]["systems"]
    assert constants["commonest_text of same"]["rouge"] == {"value": pytest.approx(same["value"]), "scored": 30}
    page = (tmp_path / "c.html").read_text()
    assert "Far fewer distinct texts than the references have: same" in page
    assert "commonest text of same" in page


def test_agreement_prints_warns_and_writes_distinct_texts(run, table, tmp_path):
    files = ("--json", tmp_path / "a.json", "--html", tmp_path / "a.html")
    options = ("--prediction-column", "same", "--human", "rating", "--bootstrap", 0, "--permutations", 0)
    result = run("agreement", table, "--metrics", "rouge", *options, *files)
    assert result.code == 0, result.err
    assert "warning: same has 1 distinct text" in result.err
    assert "same: 1 distinct text for 30 studies" in result.out
    assert json.loads((tmp_path / "a.json").read_text())["texts"]["same"]["are_few"]
    assert "Distinct texts" in (tmp_path / "a.html").read_text()
