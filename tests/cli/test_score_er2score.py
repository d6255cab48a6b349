"""``rrg-rewards score --metrics er2score``."""

import csv
import json

import pytest
from tiny_crepe import random_pairs
from tiny_er2score import LORA, save_tiny_er2score

from rrg_rewards.metrics import ER2Score


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_er2score(tmp_path_factory.mktemp("er2score"), lora=LORA)


@pytest.fixture
def pairs(write_csv):
    candidates, references = random_pairs(5, longest=20)
    return write_csv("pairs.csv", ["prediction", "reference"], *zip(candidates, [references[0]] * 5, strict=True))


def test_scores_and_sub_scores_are_written(run, folder, pairs, tmp_path):
    weights = "er2score.weights={omitted_finding: 2, wrong_location: 1}"
    outputs = ["--output", tmp_path / "scores.csv", "--json", tmp_path / "summary.json"]

    result = run(
        "score", pairs, "--metrics", "er2score", "--set", f"er2score.model={folder}", "--set", weights, *outputs
    )

    assert result.code == 0, result.err
    metric = ER2Score(folder, weights={"omitted_finding": 2, "wrong_location": 1})
    written = list(csv.DictReader((tmp_path / "scores.csv").open()))
    scores = metric.score([row["prediction"] for row in written], [row["reference"] for row in written])
    for column, values in {"": scores.value, **{f"_{name}": found for name, found in scores.details.items()}}.items():
        assert [float(row[f"er2score{column}"]) for row in written] == pytest.approx(values.tolist(), abs=1e-5)
    summary = json.loads((tmp_path / "summary.json").read_text())["metrics"]["er2score"]
    assert summary["value"] == pytest.approx(scores.value.mean().item(), abs=1e-5)
    assert summary["higher_is_better"] is True
    assert summary["signature"] == metric.signature


def test_a_model_of_another_system_is_told_of_before_any_work(run, folder, pairs):
    options = ["--set", f"er2score.model={folder}", "--set", "er2score.scoring_system=mrscore"]
    result = run("score", pairs, "--metrics", "er2score", *options)

    assert result.code == 2
    assert "the model has the scoring system 'radcliq'" in result.err
