"""``--html`` of the commands."""

import json

import pytest

from rrg_rewards.cli.main import main
from rrg_rewards.data.tables.table import Table
from rrg_rewards.data.tables.writers import write_table

REFERENCES = ["Large left pneumothorax.", "Emphysema. Pleural effusion.", None, "Cardiomegaly. Atelectasis."]
PREDICTIONS = ["Small left pneumothorax.", "Emphysema.", "Normal.", "Cardiomegaly. Mass of the liver."]


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    columns = {
        "study": ["a", "b", "c", "d"],
        "reference": REFERENCES,
        "prediction": PREDICTIONS,
        "rating": [1, 2, 3, 4],
    }
    write_table(Table(columns), path)
    return path


def page_data(path):
    """Return the data in a page."""
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('id="data">')[1].split("</script>")[0])


def column(data, group, name):
    return next(one["cells"] for one in data["columns"] if (one["group"], one["name"]) == (group, name))


def score(pairs, *options, metrics="crg,crimson"):
    page = pairs.parent / "page.html"
    assert main(["score", str(pairs), "--metrics", metrics, "--html", str(page), "--quiet", *options]) == 0
    return page_data(page)


def test_the_page_of_score_has_the_scores_of_its_output(pairs, tmp_path):
    output = tmp_path / "scores.jsonl"
    data = score(pairs, "--output", str(output), "--batch-size", "2", "--id-column", "study")
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert data["names"] == ["a", "b", "c", "d"]
    for group, name, key in (
        ("crg", "crg contribution", "crg"),
        ("crimson", "crimson", "crimson"),
        ("crimson", "missing findings", "crimson_missing_findings"),
    ):
        expected = [row[key] for row in rows]
        assert [cell is None for cell in column(data, group, name)] == [cell is None for cell in expected]
        for cell, value in zip(column(data, group, name), expected, strict=True):
            assert cell is None or cell == pytest.approx(value, rel=1e-5)
    assert column(data, "crg", "missed") == [row["crg_missed"] or None for row in rows]


def test_the_page_of_score_has_no_report_text_unless_asked(pairs):
    data = score(pairs)
    html = (pairs.parent / "page.html").read_text()
    assert data["panes"] == []
    assert "pneumothorax" not in html
    assert "liver" not in html
    statuses = [
        sorted(one[2] for one in findings) if findings else findings for findings in data["findings"]["crimson"]
    ]
    assert statuses == [
        ["misdescribed"] * 2,
        ["matched", "matched", "missed"],
        None,
        ["invented", "matched", "matched", "missed"],
    ]


def test_the_page_of_score_marks_findings_in_the_texts(pairs):
    data = score(pairs, "--with-text")
    assert [pane["texts"] for pane in data["panes"]] == [REFERENCES, PREDICTIONS]
    for row, findings in enumerate(data["findings"]["crimson"]):
        for pane, _, _, _, _, text, _, places in findings or []:
            assert [data["panes"][pane]["texts"][row][start:end] for start, end in places] == [text]
    assert "pneumothorax: mild for severe (significant severity)" in column(data, "crimson", "misdescribed")[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--with-text"], "argument --with-text: needs --html"),
        (["--id-column", "study"], "argument --id-column: needs --html"),
        (["--html", "-"], "argument --html: must be a file of its own"),
        (["--html", "a.json", "--json", "a.json"], "--json and --html must differ"),
    ],
)
def test_wrong_options_are_named(pairs, capsys, options, message):
    assert main(["score", str(pairs), "--metrics", "rouge", *options]) == 2
    assert message in capsys.readouterr().err


def test_an_existing_page_is_not_replaced(pairs, capsys):
    score(pairs, metrics="rouge")
    page = pairs.parent / "page.html"
    assert main(["score", str(pairs), "--metrics", "rouge", "--html", str(page)]) == 1
    assert "exists already" in capsys.readouterr().err


def test_a_missing_column_of_names_is_an_error_before_scoring(pairs, capsys, monkeypatch):
    page = pairs.parent / "page.html"
    monkeypatch.delattr("rrg_rewards.analysis.scoring.score_batches")
    assert main(["score", str(pairs), "--metrics", "rouge", "--html", str(page), "--id-column", "no"]) == 1
    assert "unknown column 'no'" in capsys.readouterr().err
    assert main(["score", str(pairs), "--metrics", "rouge", "--html", str(page), "--id-column", "reference"]) == 1
    assert "data row 3 (line 4), column 'reference': is empty; each row needs a name" in capsys.readouterr().err
    assert not page.exists()


def test_the_page_of_attack_quotes_no_report_unless_asked(pairs):
    page = pairs.parent / "attack.html"
    table = pairs.parent / "references.csv"
    write_table(Table({"reference": [f"Nodule of {size} mm in the right upper lobe." for size in range(4, 24)]}), table)
    command = ["attack", str(table), "--reward", "rouge", "--families", "normal,sentences,reports", "--budget", "2000"]
    for options in ([], ["--with-text", "--overwrite"]):
        assert main([*command, "--html", str(page), "--quiet", *options]) == 0
        data = page_data(page)
        texts = dict(zip(data["names"], data["panes"][0]["texts"], strict=True))
        assert texts["normal"]
        assert ("right upper lobe" in page.read_text()) == bool(options)
    assert column(data, "result", "gain") == sorted(column(data, "result", "gain"), reverse=True)


def test_the_page_of_agreement_has_scores_judgements_and_values(pairs, tmp_path):
    page, summary = tmp_path / "agreement.html", tmp_path / "agreement.json"
    command = ["agreement", str(pairs), "--metrics", "rouge", "--human", "rating", "--bootstrap", "20", "--quiet"]
    options = ["--permutations", "20", "--id-column", "study", "--html", str(page), "--json", str(summary)]
    assert main([*command, *options]) == 0
    data = page_data(page)
    assert data["names"] == ["a", "b", "c", "d"]
    assert column(data, "human", "rating") == [1, 2, 3, 4]
    scores = column(data, "scores", "rouge")
    assert [cell is None for cell in scores] == [False, False, True, False]
    found = json.loads(summary.read_text())["groups"]["all"]["human"]["rating"]["agreement"]
    html = page.read_text()
    for statistic, by_score in found.items():
        assert f'<td class="number">{statistic}</td><td class="number">{by_score["rouge"]["value"]:.3f}</td>' in html
    assert data["panes"] == []
    assert "pneumothorax" not in html
    assert main([*command, *options, "--with-text", "--overwrite"]) == 0
    assert [pane["texts"] for pane in page_data(page)["panes"]] == [REFERENCES, PREDICTIONS]


def test_the_page_of_compare_has_the_scores_texts_and_findings_of_each_system(pairs, tmp_path):
    other, page, output = tmp_path / "other.csv", tmp_path / "page.html", tmp_path / "scores.jsonl"
    theirs = ["Large left pneumothorax.", "Hiatal hernia.", "Normal.", "Cardiomegaly."]
    write_table(Table({"study": ["a", "b", "c", "d"], "reference": REFERENCES, "prediction": theirs}), other)
    command = ["compare", f"old={pairs}", f"new={other}", "--metrics", "crimson,rouge", "--key", "study", "--quiet"]
    command += ["--bootstrap", "20", "--permutations", "20", "--html", str(page), "--overwrite"]
    assert main([*command, "--output", str(output)]) == 0
    data = page_data(page)
    assert "pneumothorax" not in page.read_text()
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    for system in ("old", "new"):
        cells = column(data, "rouge", f"rouge of {system}")
        assert [cell is None for cell in cells] == [False, False, True, False]
        assert [cell or 0 for cell in cells] == pytest.approx(
            [row[f"rouge of {system}"] or 0 for row in rows], rel=1e-5
        )
    assert column(data, "crimson", "crimson: new - old")[0] > 0
    assert main([*command, "--with-text"]) == 0
    data = page_data(page)
    assert {pane["title"]: pane["texts"] for pane in data["panes"]} == {
        "Reference": REFERENCES,
        "old": PREDICTIONS,
        "new": theirs,
    }
    second = {one[1]: (data["sides"][one[0]], one[2], one[5]) for one in data["findings"]["crimson"][1]}
    assert set(second.values()) == {
        ("old", "matched", "Emphysema"),
        ("old", "missed", "Pleural effusion"),
        ("new", "invented", "Hiatal hernia"),
        ("new", "missed", "Emphysema"),
        ("new", "missed", "Pleural effusion"),
    }


def test_the_page_of_compare_names_studies_by_the_table_of_references(pairs, tmp_path):
    truth, page = tmp_path / "truth.csv", tmp_path / "page.html"
    write_table(Table({"VolumeName": ["d.nii.gz", "a", "b", "c"], "report": ["Normal."] * 4}), truth)
    command = ["compare", f"old={pairs}", f"new={pairs}", "--metrics", "rouge", "--quiet", "--html", str(page)]
    command += ["--bootstrap", "0", "--permutations", "0", "--references", str(truth), "--reference-column", "report"]
    assert main([*command, "--key", "study=VolumeName"]) == 0
    assert page_data(page)["names"] == ["d.nii.gz", "a", "b", "c"]
