"""``rrg-rewards fit``: the numbers that it writes, and a trainer that reads them."""

import asyncio
import json

import pytest

from rrg_rewards.integrations import verl
from rrg_rewards.rewards import make_reward

HEADER = ["report", "prediction", "age"]
ROWS = [
    ("Cardiomegaly.", "Cardiomegaly.", "66"),
    ("Hiatal hernia.", "Normal.", "30"),
    ("Normal.", "Pleural effusion.", "51"),
    ("Pleural effusion. Cardiomegaly.", "Pleural effusion.", "80"),
]
REFERENCES = [row[0] for row in ROWS]
PREDICTIONS = [row[1] for row in ROWS]


@pytest.fixture
def table(write_csv):
    return write_csv("train.csv", HEADER, *ROWS)


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_the_prior_is_that_of_the_references(run, table, tmp_path, average):
    path = tmp_path / "reward.json"
    result = run("fit", table, "--reward", "crg", "--set", f"average={average}", "--reference-column", "report",
                 "--output", path)  # fmt: skip
    assert result.code == 0, result.err
    written = json.loads(path.read_text())
    reward = make_reward("crg", average=average, reference_column="report").fit(report=REFERENCES)
    expected = reward.prior if average == "micro" else list(reward.prior)
    assert written["reward"] == {"name": "crg", "average": average, "prior": expected}
    assert written["reference_column"] == "report"
    assert written["fitted"]["rows"] == 4
    assert written["fitted"]["signature"] == reward.signature


def test_a_trainer_reads_the_file_and_gives_the_rewards_of_the_fitted_reward(run, table, tmp_path):
    config, path = tmp_path / "reward.yaml", tmp_path / "reward.json"
    config.write_text("reward: {name: crg, average: macro}\nreference_column: report\nmissing: -2\n")
    assert run("fit", table, "--config", config, "--output", path).code == 0
    reward = make_reward("crg", average="macro", reference_column="report").fit(report=REFERENCES)
    for prediction, reference, expected in zip(
        PREDICTIONS, REFERENCES, reward(PREDICTIONS, report=REFERENCES), strict=True
    ):
        result = asyncio.run(verl.compute_score("ct", prediction, reference, {}, config=str(path)))
        assert result["score"] == pytest.approx(expected)
    assert asyncio.run(verl.compute_score("ct", "Normal.", None, {}, config=str(path)))["score"] == -2


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--reward", "crgg"], 1, "did you mean 'crg'"),
        (["--reward", "crg", "--set", "prior=running"], 1, "prior must be 'dataset'"),
        (["--reward", "crg", "--reference-column", "text"], 1, "unknown column 'text'"),
        (["--reward", "crg", "--config", "x.yaml"], 2, "not allowed with"),
        ([], 2, "required"),
        (["--config", "absent.yaml"], 1, "no such file"),
    ],
)
def test_errors(run, table, tmp_path, options, code, message):
    column = [] if "--reference-column" in options or "--config" in options else ["--reference-column", "report"]
    result = run("fit", table, *options, *column, "--output", tmp_path / "out.json")
    assert (result.code, message in result.err) == (code, True), result.err
    assert not (tmp_path / "out.json").exists()


def test_missing_references_in_a_column_of_the_reward(run, tmp_path):
    config, path = tmp_path / "reward.yaml", tmp_path / "train.jsonl"
    config.write_text("reward: {name: crg, reference_column: report}\n")
    path.write_text('{"report": NaN}\n' + "".join(json.dumps({"report": report}) + "\n" for report in REFERENCES))
    result = run("fit", path, "--config", config, "--output", "-")
    assert result.code == 0, result.err
    expected = make_reward("crg", reference_column="report").fit(report=REFERENCES).prior
    assert json.loads(result.out)["reward"]["prior"] == expected


def test_misspelled_settings_and_options_of_the_other_source(run, table, tmp_path):
    config = tmp_path / "reward.yaml"
    config.write_text("reward: crg\nmising: 0\n")
    assert "did you mean 'missing'" in run("fit", table, "--config", config, "--output", "-").err
    result = run("fit", table, "--config", config, "--set", "prior=0.2", "--output", "-")
    assert (result.code, "argument --set: has no effect with --config" in result.err) == (2, True)
