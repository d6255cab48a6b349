"""``rrg-rewards score --layout vlm3d``."""

import json

import pytest
from vlm3d_files import leave_out_meteor, write_vlm3d_files

from rrg_rewards.analysis import VLM3DSettings, evaluate_vlm3d
from rrg_rewards.data import read_table


@pytest.fixture
def command(tmp_path, monkeypatch):
    leave_out_meteor(monkeypatch)
    folder = write_vlm3d_files(tmp_path)
    files = ["--references", folder / "ground_truth.json", "--label-table", folder / "ground_truth.csv"]
    return ["score", folder / "predictions.json", "--layout", "vlm3d", *files]


@pytest.mark.filterwarnings("ignore::rrg_rewards.utilities.run_log.RunWarning")
def test_score_layout_writes_the_official_metrics_and_the_labels(run, command, tmp_path):
    outputs = ["--json", tmp_path / "metrics.json", "--output", tmp_path / "labels.csv"]
    result = run(*command, "--labeler", "rules:ct_rate", *outputs)
    assert result.code == 0, result.err
    files = {"references": tmp_path / "ground_truth.json", "label_table": tmp_path / "ground_truth.csv"}
    expected = evaluate_vlm3d(tmp_path / "predictions.json", VLM3DSettings(**files, labeler="rules:ct_rate"))
    assert json.loads((tmp_path / "metrics.json").read_text()) == expected.metrics
    labels = read_table(tmp_path / "labels.csv")
    assert labels.labels(labels.names[1:]) == expected.labels.labels(labels.names[1:])
    assert "2 of 4 reports" in result.out
    assert f"CRG                         │ {expected.metrics['crg']['CRG']:.4f}" in result.out
    assert "the text metrics leave them out" in result.err
    assert "METEOR is left out, as in the official evaluation without Java: there is no Java" in result.err
    assert "all their labels count as negative" in result.err


def test_score_layout_takes_labels_of_the_predictions(run, command, tmp_path):
    result = run(*command, "--prediction-label-table", tmp_path / "inferred.csv", "--no-meteor", "--json", "-")
    assert result.code == 0, result.err
    assert json.loads(result.out)["crg"]["CRG"] == 0.45454545454545453
    assert "labels of predictions" in result.err
    assert "METEOR" not in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "argument --labeler: the layout needs one: radbert:CHECKPOINT"),
        (["--metrics", "crg"], "argument --metrics: does not apply to --layout vlm3d"),
        (["--bootstrap", "10"], "argument --bootstrap: does not apply to --layout vlm3d"),
        (["--reference-column", "report"], "argument --reference-column: does not apply to --layout vlm3d"),
        (["--labeler", "rules:ct_rate", "--prediction-label-table", "x.csv"], "argument --labeler: cannot be combined"),
    ],
)
def test_score_layout_says_which_options_it_needs_and_takes(run, command, arguments, message):
    result = run(*command, *arguments)
    assert result.code == 2
    assert message in result.err


def test_score_layout_files_belong_to_the_layout(run, write_csv):
    pairs = write_csv("pairs.csv", ["prediction", "reference"], ["Normal.", "Normal."])
    result = run("score", pairs, "--metrics", "rouge", "--label-table", "labels.csv")
    assert (result.code, "argument --label-table: requires --layout vlm3d" in result.err) == (2, True)
    assert "the following arguments are required: --metrics" in run("score", pairs).err


def test_score_layout_needs_references(run, tmp_path):
    folder = write_vlm3d_files(tmp_path)
    result = run("score", folder / "predictions.json", "--layout", "vlm3d", "--labeler", "rules:ct_rate")
    assert "argument --references: the layout needs it" in result.err
    result = run("score", "-", "--layout", "vlm3d", "--labeler", "rules:ct_rate")
    assert "must be a file with --layout" in result.err
