"""The evaluation of VLM3D: numbers of its official scripts, their rules restated, and messages on unmatched studies.

The scripts (forithmus/VLM3D-Dockers, ``reportgen_evaluation``) are not part of the repository. The numbers below come
from a run of ``nlg_metrics.py``, ``calc_scores.py`` and ``crg_score.py`` on the files of ``vlm3d_files``.
"""

import json
import random
import shutil
from dataclasses import asdict
from pathlib import PurePosixPath

import pytest
import torch
from run_notes import RunNotes
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score
from tiny_labeler import save_tiny_labeler
from vlm3d_files import (
    PREDICTIONS,
    REFERENCE_LABELS,
    REFERENCES,
    job,
    leave_out_meteor,
    report_list,
    write_labels,
    write_vlm3d_files,
)

from rrg_rewards.analysis import VLM3DSettings, evaluate_vlm3d
from rrg_rewards.data import write_table
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.labelers import RadBertLabeler, RuleLabeler
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError

OFFICIAL_TEXTS = {
    "BLEU_1": 0.5028317942122387,
    "BLEU_2": 0.42523348845854264,
    "BLEU_3": 0.35894869629230575,
    "BLEU_4": 0.2753151181488498,
    "BLEU_mean": 0.3905822742779842,
    "ROUGE_L": 0.630073921336764,
    "CIDEr": 3.0222622738308784,
}
OFFICIAL_METEOR = 0.3165061373142777
OFFICIAL_CRG = {
    "TP": 2,
    "FN": 3,
    "FP": 0,
    "X": 72,
    "A": 5,
    "r": 6.7,
    "U": 33.5,
    "score_s": -6.700000000000001,
    "CRG": 0.45454545454545453,
}
OFFICIAL_LABELS = {
    "Cardiomegaly": (1.0, 1.0, 1.0, 1.0),
    "Emphysema": (0.0, 0.0, 0.0, 0.75),
    "Lung nodule": (1.0, 0.5, 0.6666666666666666, 0.75),
    "Pleural effusion": (0.0, 0.0, 0.0, 0.75),
}
OFFICIAL_MACRO = (0.1111111111111111, 0.08333333333333333, 0.09259259259259259, 0.9583333333333334)


@pytest.fixture
def folder(tmp_path):
    return write_vlm3d_files(tmp_path)


@pytest.fixture(autouse=True)
def without_java(request, monkeypatch):
    if request.node.get_closest_marker("slow") is None:
        leave_out_meteor(monkeypatch)


def settings(folder, **changes):
    given = {"prediction_label_table": folder / "inferred.csv"} if "labeler" not in changes else {}
    files = {"references": folder / "ground_truth.json", "label_table": folder / "ground_truth.csv"}
    return VLM3DSettings(**{**files, **given, **changes})


def evaluate(folder, **changes):
    log = RunNotes()
    found = evaluate_vlm3d(folder / "predictions.json", settings(folder, **changes), log)
    assert log.warnings.pop() == "METEOR is left out, as in the official evaluation without Java: there is no Java"
    return found, log.warnings


def test_evaluate_vlm3d_label_metrics_are_those_of_the_official_scripts(folder):
    found, _ = evaluate(folder)
    assert list(found.metrics) == ["generation", "classification", "crg"]
    assert found.metrics["crg"] == pytest.approx(OFFICIAL_CRG, abs=1e-15)
    assert list(found.metrics["crg"]) == list(OFFICIAL_CRG)
    by_label = found.metrics["classification"]["per_pathology"]
    assert [list(entry) for entry in by_label] == [["name", "precision", "recall", "f1", "accuracy"]] * 18
    for name, *values in map(dict.values, by_label):
        assert values == pytest.approx(OFFICIAL_LABELS.get(name, (0.0, 0.0, 0.0, 1.0)), abs=1e-15)
    assert [entry["name"] for entry in by_label] == list(CT_RATE.labels)
    assert list(found.metrics["classification"]["macro"].values()) == pytest.approx(OFFICIAL_MACRO, abs=1e-15)


def test_evaluate_vlm3d_text_metrics_are_those_of_the_official_script(folder):
    """Without Java, METEOR is left out, as in the official script."""
    found, _ = evaluate(folder)
    assert list(found.metrics["generation"]) == list(OFFICIAL_TEXTS)
    assert found.metrics["generation"] == pytest.approx(OFFICIAL_TEXTS, abs=1e-12)


def test_evaluate_vlm3d_meteor_is_left_out_on_request(folder):
    log = RunNotes()
    found = evaluate_vlm3d(folder / "predictions.json", settings(folder, no_meteor=True), log)
    assert list(found.metrics["generation"]) == list(OFFICIAL_TEXTS)
    assert not any("METEOR" in text for text in log.warnings)


@pytest.mark.slow
def test_evaluate_vlm3d_meteor_is_that_of_the_official_script(folder):
    pytest.importorskip("pycocoevalcap", reason="METEOR needs the extra coco")
    if shutil.which("java") is None:
        pytest.skip("METEOR needs Java")
    with pytest.warns(RunWarning):
        found = evaluate_vlm3d(folder / "predictions.json", settings(folder))
    generation = dict(found.metrics["generation"])
    assert list(generation) == [*OFFICIAL_TEXTS, "METEOR"]
    assert generation["METEOR"] == pytest.approx(OFFICIAL_METEOR, abs=1e-12)


def test_evaluate_vlm3d_says_what_is_unmatched(folder):
    found, warnings = evaluate(folder)
    assert asdict(found.counts) == {
        "references": 4,
        "predictions": 4,
        "scored_texts": 2,
        "labelled_studies": 4,
        "without_labels": 2,
        "ignored_predictions": 2,
        "ignored_jobs": 0,
    }
    texts, ignored, labels = warnings
    assert texts.startswith("no prediction for 2 studies (s3, 1.2.840.5.6_B_Toraks) of 4 in ")
    assert "the text metrics leave them out" in texts
    assert ignored.endswith("are ignored: 2 studies (1.2.840.5, s9)")
    assert labels.startswith("no labels of a prediction for 2 studies (s3, 1.2.840.5.6_B_Toraks) of 4 in ")
    assert "in classification and CRG all their labels count as negative" in labels


def labels_of(generator, names):
    return {name: [label for label in CT_RATE.labels if generator.random() < 0.2] for name in names}


@pytest.mark.parametrize("seed", range(4))
def test_evaluate_vlm3d_labels_agree_with_scikit_learn_and_the_official_formula(tmp_path, seed):
    """The rules of calc_scores.py and crg_score.py, restated: names, negative labels of missing studies, formulas."""
    generator = random.Random(seed)
    names = [f"study_{row}" for row in range(30)]
    target, predicted = labels_of(generator, names), labels_of(generator, [*names[4:], "other"])
    ending = {name: generator.choice(["", ".nii.gz"]) for name in names}
    write_vlm3d_files(tmp_path)
    write_labels(tmp_path / "ground_truth.csv", {name + ending[name]: own for name, own in target.items()})
    write_labels(tmp_path / "inferred.csv", {f"{name}.npz": own for name, own in predicted.items()})
    found, _ = evaluate(tmp_path)
    truth = [[int(label in target[name]) for name in names] for label in CT_RATE.labels]
    given = [[int(label in predicted.get(name, ())) for name in names] for label in CT_RATE.labels]
    scorers = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    for entry, ours, theirs in zip(found.metrics["classification"]["per_pathology"], truth, given, strict=True):
        expected = {name: score(ours, theirs, zero_division=0) for name, score in scorers.items()}
        expected["accuracy"] = accuracy_score(ours, theirs)
        assert {name: entry[name] for name in expected} == pytest.approx(expected, abs=1e-15)
    pairs = [pair for ours, theirs in zip(truth, given, strict=True) for pair in zip(ours, theirs, strict=True)]
    tp, fn, fp = pairs.count((1, 1)), pairs.count((1, 0)), pairs.count((0, 1))
    decisions, positives = 18 * 30, sum(map(sum, truth))
    half, ratio = (decisions - positives) / 2, (decisions - positives) / (2 * positives)
    crg = half / (2 * half - (ratio * tp - ratio * fn - fp))
    assert found.metrics["crg"]["CRG"] == pytest.approx(crg, abs=1e-15)
    assert found.counts.without_labels == 4


def test_evaluate_vlm3d_ending_of_names_differs_between_classification_and_crg(folder):
    """crg_score.py removes .nii.gz from names of predictions too, calc_scores.py does not."""
    write_labels(folder / "inferred.csv", {f"{name}.nii.gz": own for name, own in REFERENCE_LABELS.items()})
    found, warnings = evaluate(folder)
    assert found.metrics["crg"]["CRG"] == 1.0
    assert found.metrics["classification"]["macro"]["recall"] == 0.0
    assert found.counts.without_labels == 4
    assert "no labels of a prediction for 4 studies" in warnings[-1]
    assert "in classification all their labels count as negative" in warnings[-1]


def test_evaluate_vlm3d_labeler_reads_predictions_as_they_are(folder):
    found, _ = evaluate(folder, labeler="rules:ct_rate")
    assert found.labels.columns["AccessionNo"] == [PurePosixPath(name).stem for name in PREDICTIONS]
    expected = RuleLabeler("ct_rate")(list(PREDICTIONS.values()))
    values = torch.tensor(found.labels.labels(CT_RATE.labels), dtype=torch.bool)
    assert torch.equal(values, expected)
    assert found.labeler == RuleLabeler("ct_rate").signature


def test_evaluate_vlm3d_radbert_of_a_folder_labels_the_predictions(folder, tmp_path):
    checkpoint = save_tiny_labeler(tmp_path / "radbert")
    found, _ = evaluate(folder, labeler=f"radbert:{checkpoint}", batch_size=3)
    expected = RadBertLabeler(checkpoint)(list(PREDICTIONS.values()))
    assert expected.any()
    assert torch.equal(torch.tensor(found.labels.labels(CT_RATE.labels), dtype=torch.bool), expected)


def test_evaluate_vlm3d_written_labels_give_the_same_evaluation(folder):
    found, _ = evaluate(folder, labeler="rules:ct_rate")
    write_table(found.labels, folder / "labels.csv")
    again, _ = evaluate(folder, prediction_label_table=folder / "labels.csv")
    assert again.metrics == found.metrics


def test_evaluate_vlm3d_first_job_counts_and_others_are_named(folder):
    (folder / "predictions.json").write_text(json.dumps([job(PREDICTIONS), job({"s3.mha": "Normal."})]))
    found, warnings = evaluate(folder)
    assert found.counts.ignored_jobs == 1
    assert found.counts.scored_texts == 2
    assert "the official evaluation reads the first, with 4 reports, and not the 1 reports of the others" in warnings[0]


def test_evaluate_vlm3d_reads_the_file_of_an_algorithm(folder):
    expected, _ = evaluate(folder)
    (folder / "predictions.json").write_text(json.dumps(report_list(PREDICTIONS)))
    assert evaluate(folder)[0].metrics == expected.metrics


def test_evaluate_vlm3d_names_that_would_match_without_their_ending_are_named(folder):
    named = {name.removesuffix(".mha") + ".nii.gz": text for name, text in REFERENCES.items()}
    (folder / "predictions.json").write_text(json.dumps([job({**named, "s1.mha": "Normal."})]))
    found, warnings = evaluate(folder)
    assert found.counts.scored_texts == 1
    assert "would match without their folder and ending" in warnings[1]
    (folder / "predictions.json").write_text(json.dumps([job(named)]))
    with pytest.raises(TableError, match="would match without their folder"):
        evaluate(folder)


def test_evaluate_vlm3d_repeated_studies(folder):
    """The last of two reference reports counts, and each row of repeated reference labels."""
    truth = report_list(REFERENCES)
    truth["generated_reports"].append({"input_image_name": "s2.nii", "report": "Another."})
    (folder / "ground_truth.json").write_text(json.dumps(truth))
    rows = (folder / "ground_truth.csv").read_text().splitlines()
    (folder / "ground_truth.csv").write_text("\n".join([*rows, rows[1]]) + "\n")
    found, warnings = evaluate(folder)
    assert (found.counts.references, found.counts.labelled_studies) == (4, 5)
    assert found.metrics["crg"]["A"] == 7
    assert "more than one report of 1 study (s2); the last one counts" in warnings[0]
    assert "more than one row of 1 study (s1); each row counts" in warnings[-2]


def test_evaluate_vlm3d_two_predictions_of_a_study_are_refused(folder):
    write_labels(folder / "inferred.csv", {"s1": [], "s1.npz": []})
    with pytest.raises(TableError, match=r"data row 2 .*: 's1' is also in .*data row 1 "):
        evaluate(folder)
    (folder / "predictions.json").write_text(json.dumps([job({"s1.mha": "Normal.", "a/s1.mha": "Normal."})]))
    for changes in ({"labeler": "rules:ct_rate"}, {}):
        with pytest.raises(TableError, match="job 1, output 1: data row 2: 's1'"):
            evaluate(folder, **changes)


def test_evaluate_vlm3d_further_columns_of_predicted_labels_are_ignored(folder):
    expected, _ = evaluate(folder)
    lines = (folder / "inferred.csv").read_text().splitlines()
    (folder / "inferred.csv").write_text("\n".join(f"{line},{row}" for row, line in enumerate(lines)) + "\n")
    found, _ = evaluate(folder)
    assert found.metrics == expected.metrics
    assert found.labels.names == expected.labels.names


@pytest.mark.parametrize(
    ("name", "given", "named"),
    [("Cardiomegaly", "Heart", "'Heart'"), ("AccessionNo", "study", "'AccessionNo'"), (",1", ",0", "ground_truth.csv")],
)
def test_evaluate_vlm3d_other_columns_and_missing_labels_are_refused(folder, name, given, named):
    path = folder / "ground_truth.csv"
    path.write_text(path.read_text().replace(name, given))
    with pytest.raises(TableError, match=named):
        evaluate(folder)


def test_evaluate_vlm3d_all_positive_references_give_the_official_zero(folder):
    write_labels(folder / "ground_truth.csv", {"s1": CT_RATE.labels})
    found, _ = evaluate(folder)
    assert found.metrics["crg"]["CRG"] == 0.0


def test_evaluate_vlm3d_report_that_is_no_text_is_refused(folder):
    (folder / "predictions.json").write_text(json.dumps([job({**PREDICTIONS, "s2.mha": None})]))
    with pytest.raises(TableError, match="data row 2, column 'report'"):
        evaluate(folder)


def test_evaluate_vlm3d_blank_reports_are_said(folder):
    (folder / "predictions.json").write_text(json.dumps([job({**PREDICTIONS, "s2.mha": " "})]))
    (folder / "ground_truth.json").write_text(json.dumps(report_list({**REFERENCES, "s2.mha": ""})))
    _, warnings = evaluate(folder, labeler="rules:ct_rate")
    assert any(text.startswith("1 of 4 predictions are blank") for text in warnings)
    assert any(text.startswith("1 reference reports are blank") for text in warnings)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"label_table": None}, "label_table"),
        ({"references": None}, "references"),
        ({"prediction_label_table": None}, "labeler"),
        ({"labeler": "rules:ct_rate", "prediction_label_table": "inferred.csv"}, "labeler"),
        ({"labeler": "rules:chexbert"}, "labeler"),
    ],
)
def test_evaluate_vlm3d_wrong_settings_are_named(folder, changes, setting):
    with pytest.raises(SettingError) as caught:
        evaluate(folder, **changes)
    assert caught.value.setting == setting


def test_evaluate_vlm3d_published_example(shared_data, tmp_path):
    """The published ground truth, and itself as the prediction."""
    formats = shared_data / "formats"
    truth = json.loads((formats / "vlm3d_ground_truth.json").read_text())
    (tmp_path / "predictions.json").write_text(json.dumps([{"outputs": [{"value": truth}]}]))
    files = {"references": formats / "vlm3d_ground_truth.json", "label_table": formats / "vlm3d_ground_truth.csv"}
    found, warnings = evaluate(tmp_path, **files, prediction_label_table=formats / "vlm3d_ground_truth.csv")
    assert found.metrics["crg"]["CRG"] == 1.0
    assert found.counts.scored_texts == 1
    assert not warnings
