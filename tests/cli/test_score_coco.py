"""The text metrics of COCO captions in the commands: each batch has the values of the whole table."""

import csv
import json

import pytest

from rrg_rewards.metrics import CIDEr, CocoBLEU

ROWS = [
    ("Small left effusion . No mass .", "Small left pleural effusion . No mass .", "A left effusion .", 4),
    ("Clear lungs.", "Clear lungs.", "The lungs are clear.", 5),
    ("", "Small left pleural effusion .", "Effusion .", 1),
    ("No mass .", "Large mass .", "A mass .", 2),
    ("Clear lungs. No mass.", "No mass .", "No mass .", 3),
]
PREDS, TARGET = [row[0] for row in ROWS], [row[1] for row in ROWS]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "pairs.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prediction", "reference", "second", "rating"])
        writer.writerows([*ROWS, ("Clear lungs.", "", "", "")])
    return path


def read(path, column):
    with path.open(newline="") as file:
        return [float(row[column]) if row[column] else None for row in csv.DictReader(file)]


@pytest.mark.parametrize("batch_size", [2, 100])
def test_score_counts_document_frequencies_of_the_whole_table(run, table, tmp_path, batch_size):
    output, summary = tmp_path / "scores.csv", tmp_path / "summary.json"
    found = run(
        *("score", table, "--metrics", "cider,coco_bleu,coco_rouge", "--missing-prediction", "score"),
        *("--output", output, "--json", summary, "--batch-size", batch_size),
    )
    assert found.code == 0, found.err
    expected = CIDEr().score(PREDS, TARGET).value
    assert read(output, "cider") == pytest.approx([*expected.tolist(), None])
    entries = json.loads(summary.read_text())["metrics"]
    assert entries["cider"]["value"] == pytest.approx(float(expected.mean()))
    assert entries["cider"]["interval"][0] < entries["cider"]["value"] < entries["cider"]["interval"][1]
    assert "documents:corpus" in entries["cider"]["signature"]
    bleu = CocoBLEU()
    bleu.update(PREDS, TARGET)
    corpus = {name: float(value) for name, value in bleu.statistics().items()}
    assert entries["coco_bleu"]["corpus"] == pytest.approx(corpus)
    assert entries["coco_bleu"]["value"] == pytest.approx(corpus["bleu_4"])
    assert "bleu mean" in found.out


def test_agreement_counts_document_frequencies_of_the_whole_table(run, table, tmp_path):
    """More rows than score reads at a time, of which the first ones occur again and again."""
    with table.open("a", newline="") as file:
        csv.writer(file).writerows(ROWS[index % 2] for index in range(300))
    scores, agreement = tmp_path / "scores.csv", tmp_path / "agreement.json"
    options = ("--bootstrap", 0, "--permutations", 0)
    found = run("agreement", table, "--metrics", "cider", "--human", "rating", "--json", agreement, *options)
    assert found.code == 0, found.err
    assert run("score", table, "--metrics", "cider", "--output", scores, "--bootstrap", 0).code == 0
    again = tmp_path / "again.json"
    assert run("agreement", scores, "--scores", "cider", "--human", "rating", "--json", again, *options).code == 0
    own, other = (json.loads(path.read_text()) for path in (agreement, again))
    assert statistics(own) == pytest.approx(statistics(other), nan_ok=True)
    assert len(statistics(own)) > 2


def statistics(found):
    """Numbers of agreement in a summary, in order."""
    if isinstance(found, dict):
        return [one for key, value in found.items() if key not in ("version", "texts") for one in statistics(value)]
    if isinstance(found, list):
        return [one for value in found for one in statistics(value)]
    return [found] if isinstance(found, float) else []


def test_compare_has_the_values_of_each_system(run, table, tmp_path):
    compared = tmp_path / "compared.json"
    columns = ("--prediction-column", "prediction", "--prediction-column", "second", "--missing-prediction", "score")
    found = run("compare", table, "--metrics", "cider,coco_bleu", "--json", compared, *columns, "--permutations", 10)
    assert found.code == 0, found.err
    values = statistics(json.loads(compared.read_text()))
    bleu = CocoBLEU()
    bleu.update(PREDS, TARGET)
    for expected in (CIDEr().score(PREDS, TARGET).value.mean(), bleu.compute()):
        assert any(value == pytest.approx(float(expected), abs=1e-9) for value in values)
