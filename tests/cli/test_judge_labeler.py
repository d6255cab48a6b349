"""``--labeler judge:SCHEMA``: ``label``, ``score`` and ``pairs`` with a judge's labels."""

import json

import pytest
from label_judge import LabelJudge

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.judges import RuleJudge
from rrg_rewards.labelers import RuleLabeler

REPORTS = ("Cardiomegaly. No emphysema.", "Hiatal hernia.", "", "Emphysema with spiculated nodule.")
NAMES = ("--labeler", "judge:ct_rate", "--judge", "openai:some-model")


@pytest.fixture
def judge(monkeypatch):
    """Replace the judge of ``--judge`` by one that answers from rules and fails on one report."""
    made = LabelJudge({"spiculated": "inconsistent"})
    monkeypatch.setattr(
        "rrg_rewards.analysis.judge_choice.choose_judge", lambda setting: RuleJudge() if setting == "rules" else made
    )
    return made


def test_label(judge, run, write_csv, tmp_path):
    table = write_csv("in.csv", ["report"], *[[report] for report in REPORTS])
    command = ("label", table, "--text-column", "report", *NAMES, "--json", tmp_path / "s.json")
    result = run(*command, "--output", tmp_path / "out.csv")
    assert (result.code, result.out) == (0, "")
    assert "the judge failed on 1 of 3 reports (inconsistent 1): their label cells are empty" in result.err
    assert "1 of 4 reports are missing or blank" in result.err
    labels = RuleLabeler("ct_rate").labels
    found = read_table(tmp_path / "out.csv").columns
    rows = RuleLabeler("ct_rate")(list(REPORTS[:2])).int().tolist()
    for label, cells in zip(labels, zip(*rows, strict=True), strict=True):
        assert found[label] == [*map(str, cells), None, None]
    summary = json.loads((tmp_path / "s.json").read_text())
    assert (summary["labelled"], summary["unscorable"], summary["failed"]) == (2, 2, {"inconsistent": 1})
    assert summary["labeler"].startswith("judge|schema:ct_rate@")


def test_schema_of_your_own(judge, run, write_csv, tmp_path):
    (tmp_path / "mine.yaml").write_text("labels: {Cardiomegaly: a large heart, Emphysema: }\n")
    table = write_csv("in.csv", ["report"], [REPORTS[0]])
    command = ("label", table, "--text-column", "report", "--judge", "local:m", "--output", "-")
    for labeler in (("--labeler", f"judge:{tmp_path / 'mine.yaml'}"), ("--schema", tmp_path / "mine.yaml")):
        labeler = labeler if "--labeler" in labeler else (*labeler, "--labeler", "judge")
        result = run(*command, *labeler, "--quiet")
        assert result.out.splitlines()[0] == "report,Cardiomegaly,Emphysema"
        assert result.out.splitlines()[1].endswith(",1,0")


def test_score(judge, run, write_csv, tmp_path):
    pairs = [["Cardiomegaly.", REPORTS[0]], ["Normal.", REPORTS[1]], ["Emphysema.", REPORTS[3]]]
    table = write_csv("pairs.csv", ["prediction", "reference"], *pairs)
    out, summary = tmp_path / "out.csv", tmp_path / "s.json"
    command = ("score", table, "--metrics", "crg,label_f1,crimson", "--bootstrap", "0", *NAMES)
    result = run(*command, "--set", "crimson.judge=rules", "--output", out, "--json", summary)
    assert result.code == 0, result.err
    assert "the judge of crg failed on 1 of 3 report pairs (inconsistent 1)" in result.err
    columns = read_table(out).columns
    assert columns["crg"][2] is None
    assert columns["crg_failure"] == [None, None, "inconsistent: told to"]
    metrics = json.loads(summary.read_text())["metrics"]
    assert (metrics["crg"]["scored"], metrics["crg"]["failed"]["inconsistent"]) == (2, 1)
    assert metrics["label_f1"]["value"] == pytest.approx(2 / 3)
    assert metrics["crimson"]["scored"] == 3


def test_pairs_by_a_judged_reward(judge, run, write_csv):
    rows = [["p", text, REPORTS[0]] for text in ("Cardiomegaly.", "Emphysema.", "A spiculated nodule.")]
    table = write_csv("completions.csv", ["prompt", "completion", "reference"], *rows)
    result = run("pairs", table, "--reward", "crg", *NAMES, "--format", "jsonl", "--output", "-")
    assert result.code == 0, result.err
    (pair,) = map(json.loads, result.out.splitlines())
    assert (pair["chosen"], pair["rejected"]) == ("Cardiomegaly.", "Emphysema.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--labeler", "judge:ct_rate"), "argument --labeler: judge:ct_rate needs a language model as --judge"),
        (("--judge", "openai:m"), "argument --judge: the labeler rules takes none; judge:SCHEMA does"),
        (("--labeler", "judge", "--judge", "rules"), "argument --labeler: judge: the judge 'rules' evaluates CRIMSON"),
        (("--labeler", "judge:merlim", "--judge", "openai:m"), "did you mean 'merlin'"),
    ],
)
def test_errors(run, write_csv, options, message):
    table = write_csv("in.csv", ["report"], ["Normal."])
    result = run("label", table, "--text-column", "report", *options)
    assert result.code == 2
    assert message in " ".join(result.err.split())
