"""``rrg-rewards score --metrics crimson``."""

import json

import pytest

from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.judges import registry as judges
from rrg_rewards.metrics import CRIMSON

PAIRS = [
    ("Small left pleural effusion.", "Small left pleural effusion.", "066Y", "Cough."),
    ("The lungs are clear.", "The lungs are clear.", "", ""),
    ("Cardiomegaly.", "Large right pneumothorax.", "41", "Dyspnea."),
    ("Small right pleural effusion.", "Small left pleural effusion.", "", "Cough."),
    ("", "Pneumonia.", "70", ""),
    ("Normal.", "", "70", ""),
]


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    monkeypatch.setitem(judges._JUDGES, "scripted", "scripted_judge:ScriptedJudge")


@pytest.fixture
def pairs(write_csv):
    return write_csv("pairs.csv", ["prediction", "reference", "PatientAge", "Indication"], *PAIRS)


def summary(path):
    return json.loads(path.read_text())["metrics"]["crimson"]


def test_scores_are_the_metrics_with_context(run, pairs, tmp_path):
    context = ("--context", "age=PatientAge", "--context", "indication=Indication")
    files = ("--output", tmp_path / "o.csv", "--json", tmp_path / "s.json")
    result = run("score", pairs, "--metrics", "crg,crimson", *context, "--set", "crimson.judge=rules", *files)
    assert result.code == 0, result.err
    # An empty cell is a missing prediction.
    preds, target, ages, indications = ([cell or None for cell in column] for column in zip(*PAIRS, strict=True))
    metric = CRIMSON()
    metric.update(preds, target, age=ages, indication=indications)
    scores = metric.score(preds, target, age=ages, indication=indications)
    entry = summary(tmp_path / "s.json")
    assert entry["value"] == pytest.approx(metric.compute().item())
    assert (entry["scored"], entry["unscorable"], set(entry["failed"].values())) == (4, 2, {0})
    assert entry["means"] == {name: pytest.approx(value.item()) for name, value in metric.statistics().items()}
    assert entry["signature"] == metric.signature
    table = read_table(tmp_path / "o.csv")
    cells = [None if cell is None else float(cell) for cell in table.columns["crimson"]]
    assert cells == [None if value != value else value for value in scores.value.tolist()]
    assert table.columns["crimson_missed"][2] == scores.explanations["missed"][2] != ""
    assert table.columns["crimson_invented"][2] == scores.explanations["invented"][2] != ""
    assert table.columns["crimson_misdescribed"][3] == scores.explanations["misdescribed"][3] != ""
    assert "crimson, mean of a report" in result.out
    assert "missing findings" in result.out


def test_failures_are_told_and_explained(run, pairs, tmp_path):
    judge = "{name: scripted, waits: true, fail_on: {left: deadline, right: malformed}}"
    files = ("--output", tmp_path / "o.csv", "--json", tmp_path / "s.json")
    result = run("score", pairs, "--metrics", "crimson", "--judge", judge, *files)
    assert result.code == 0, result.err
    assert "warning: the judge of crimson failed on 2 of 6 report pairs (deadline 1, malformed 1)" in result.err
    assert "UserWarning" not in result.err
    assert "JudgeWarning" not in result.err
    entry = summary(tmp_path / "s.json")
    assert (entry["scored"], entry["unscorable"]) == (2, 4)
    assert (entry["failed"]["deadline"], entry["failed"]["malformed"], entry["failed"]["status"]) == (1, 1, 0)
    table = read_table(tmp_path / "o.csv")
    assert table.columns["crimson_failure"] == ["deadline: told to", None, None, "malformed: told to", None, None]
    assert table.columns["crimson_missed"][0] is None
    assert table.columns["crimson"][0] is None


@pytest.mark.parametrize("judge", ["scripted", "{name: scripted, waits: true}"])
def test_batches_do_not_change_scores(run, pairs, judge):
    arguments = ("score", pairs, "--metrics", "crimson", "--judge", judge, "--output", "-", "--quiet")
    outputs = {run(*arguments, "--batch-size", size).out for size in (1, 2, 100)}
    assert len(outputs) == 1
    assert "crimson_credit" in outputs.pop()


def test_progress_is_told_batch_by_batch(run, pairs, monkeypatch):
    told = []

    class Watched(Terminal):
        def progress(self, description):
            from contextlib import nullcontext

            return nullcontext(lambda *numbers: told.append((description, *numbers)))

    monkeypatch.setattr("rrg_rewards.cli.main.Terminal", Watched)
    assert run("score", pairs, "--metrics", "crimson", "--judge", "scripted", "--batch-size", 3).code == 0
    reading, scoring = [("reading", 3, 3)] * 2, [("scoring", 0, 6), ("scoring", 3, 0), ("scoring", 3, 0)]
    assert told == reading + scoring


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metrics", "crimson", "--judge", "ruls"], "argument --judge: unknown judge 'ruls'; did you mean 'rules'?"),
        (["--metrics", "crimson", "--judge", "{name: rules"], "cannot read a judge's settings as a mapping"),
        (["--metrics", "crimson", "--judge", "{model: x}"], "a judge's settings must have a name"),
        (["--metrics", "crimson", "--judge", "{name: scripted, wait: 1}"], "argument --judge:"),
        (["--metrics", "crg", "--judge", "rules"], "argument --judge: no metric among crg takes one"),
        (["--metrics", "crimson", "--labeler", "rules:ct_rate"], "no metric among crimson takes one"),
        (["--metrics", "crimson", "--set", "crimson.prompt=mine"], "prompt: must be one of"),
        (["--metrics", "crimson", "--set", "crimson.profile=cte"], "profile: unknown name 'cte'; did you mean 'ct'?"),
        (
            ["--metrics", "crimson", "--judge", "scripted", "--set", "crimson.profile=ct"],
            "profile: needs judge='rules'",
        ),
        (["--metrics", "crimson", "--context", "weight=x"], "they take: age, indication, sex"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_before_any_work(run, pairs, options, message):
    result = run("score", pairs, *options)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err
