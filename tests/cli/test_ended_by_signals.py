"""SIGTERM and SIGHUP in commands: finished rows are kept, a message, the exit code of the signal, no temporary file."""

import csv
import os
import signal
import sys
from contextlib import nullcontext

import pytest

from rrg_rewards.data.tables.readers import read_table

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")

ENDED = pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """Return a table of three pairs. The working folder has a metric that ends its process at the second."""
    (tmp_path / "ending_metric.py").write_text(
        "import os\n"
        "def score(predictions, references):\n"
        "    for text in predictions:\n"
        "        if text.isdigit():\n"
        "            os.kill(os.getpid(), int(text))\n"
        "    return [0.5] * len(predictions)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(sent):
        with (tmp_path / "pairs.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["prediction", "reference"], ["Edema.", "Edema."], [int(sent), "Clear."]])
        return tmp_path / "pairs.csv"

    return write


@ENDED
@pytest.mark.parametrize("metrics", ["ending_metric:score", "crg,ending_metric:score"])
def test_score_keeps_the_rows_before_a_signal(pairs, run, words, tmp_path, metrics, sent, code):
    options = ["--set", "ending_metric:score.higher_is_better=true", "--batch-size", 1, "--bootstrap", 0]
    result = run("score", pairs(sent), "--metrics", metrics, *options, "--output", "out.csv", "--json", "out.json")
    assert result.code == code
    assert result.err.endswith(f"rrg-rewards: error: interrupted\nrrg-rewards: error: ended by {sent.name}\n")
    assert "out.partial.csv contains the scores of the first 1 of 2 rows" in result.err
    assert read_table(tmp_path / "out.partial.csv").columns["score"] == ["0.5"]
    found = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert found == {"ending_metric.py", "pairs.csv", "out.partial.csv"}


@ENDED
def test_label_keeps_the_rows_before_a_signal(words, run, write_csv, tmp_path, monkeypatch, sent, code):
    path = write_csv("in.csv", ["report"], ["Cardiomegaly"], ["b"], ["c"])
    label = words.__call__

    def end(self, reports):
        if "c" in reports:
            assert [file.name for file in tmp_path.glob(".*")]
            os.kill(os.getpid(), sent)
        return label(self, reports)

    monkeypatch.setattr(words, "__call__", end)
    result = run("label", path, "--text-column", "report", "--batch-size", 1, "--output", tmp_path / "out.csv")
    assert (result.code, sorted(tmp_path.iterdir())) == (code, [path, tmp_path / "out.partial.csv"])
    assert f"{tmp_path / 'out.partial.csv'} contains the labels of the first 2 of 3 rows" in result.err
    assert read_table(tmp_path / "out.partial.csv").columns["Cardiomegaly"] == ["1", "0"]
    assert f"ended by {sent.name}" in result.err


@ENDED
def test_the_exit_code_of_a_training_script_that_was_ended_is_explained(run, monkeypatch, tmp_path, sent, code):
    def end(*_):
        sys.exit(code)

    monkeypatch.setattr("rrg_rewards.cli.demo._train", end)
    monkeypatch.setattr("rrg_rewards.cli.demo._quiet_libraries", nullcontext)
    result = run("demo", "--output", tmp_path / "demo")
    assert (result.code, result.err) == (code, f"rrg-rewards: error: ended by {sent.name}\n")
