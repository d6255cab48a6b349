"""``rrg-rewards judge``: candidates, evaluations that can be resumed, and comparison with another judge."""

import json
from pathlib import Path

import pytest
from fault_server import FaultServer, says, status
from judge_answers import block, make_answer

from rrg_rewards.functional import crimson_score
from rrg_rewards.judges import ReportPair, RuleJudge
from rrg_rewards.judges.evaluations import read_evaluations

REPORTS = ["Large left effusion.", "Cardiomegaly.", "Small right effusion. Cardiomegaly.", "Nodule of 8 mm."]
EMPTY = json.dumps(make_answer())


@pytest.fixture
def pairs(write_csv):
    rows = [["Large left effusion.", "Small left effusion.", "82", "a"], ["Clear lungs.", "Clear.", "", "b"]]
    return write_csv("pairs.csv", ["reference", "candidate", "years", "origin"], *rows, ["", "Clear.", "", "b"])


@pytest.fixture
def output(tmp_path):
    return tmp_path / "evaluations.jsonl"


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def candidate_of(messages):
    content = messages[-1]["content"]
    return block(content, "candidate_report").strip('"')


def server(script=None, otherwise=None):
    return FaultServer(script, otherwise or says(EMPTY), item_of=candidate_of)


def judge(server, **settings):
    return json.dumps({"name": "openai", "model": "m", "base_url": server.url, "first_pause": 0.01, **settings})


def test_candidates_keep_the_columns_of_the_input(run, write_csv, tmp_path):
    table = write_csv("reports.csv", ["id", "report"], *([str(i), text] for i, text in enumerate(REPORTS)), ["9", ""])
    result = run(
        *("judge", "candidates", table, "--per-report", 2, "--output", tmp_path / "pairs.jsonl"),
        *("--json", tmp_path / "counts.json"),
    )
    assert result.code == 0, result.err
    assert "1 of 5 reports are missing or blank" in result.err
    rows, counts = lines(tmp_path / "pairs.jsonl"), json.loads((tmp_path / "counts.json").read_text())
    assert {(row["id"], row["report"]) for row in rows} <= {(str(i), text) for i, text in enumerate(REPORTS)}
    assert all(row["candidate"] != row["report"] for row in rows if row["regime"] == "random")
    assert counts["candidates"] == {name: sum(row["regime"] == name for row in rows) for name in ("random", "edited")}
    assert sum(counts["candidates"].values()) + sum(counts["declined"].values()) == 8
    assert run("judge", "candidates", table, "--regimes", "matched").code == 2
    again = run("judge", "candidates", tmp_path / "pairs.jsonl", "--report-column", "report", "--output", "-")
    assert "the output replaces input columns of the same name: candidate, regime" in again.err


def test_rules_label_pairs_with_context_and_source(run, pairs, output, tmp_path):
    command = ("judge", "label", pairs, "--context", "age=years", "--source-column", "origin", "--output", output)
    result = run(*command, "--json", tmp_path / "summary.json")
    assert result.code == 0, result.err
    assert "1 of 3 pairs lack a candidate or a reference" in result.err
    first, second = read_evaluations(output)
    assert first.pair == ReportPair("Large left effusion.", "Small left effusion.", (("age", "82"),))
    assert first.evaluation == RuleJudge().evaluation(first.pair)
    assert (first.source, second.source, first.prompt) == ("a", "b", "")
    assert lines(output)[0]["score"] == crimson_score(first.evaluation).item()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["written"], summary["unscorable"], summary["failures"]) == (2, 1, {})
    assert run(*command).code == 0
    assert len(lines(output)) == 2


def test_failures_are_counted_and_asked_again(run, pairs, output, tmp_path):
    command = ("judge", "label", pairs, "--output", output, "--json", tmp_path / "summary.json", "--overwrite")
    with server({"Clear.": [status(400)]}) as served:
        # The effusion is missing in an empty answer, which the task therefore rejects twice.
        result = run(*command, "--judge", judge(served, max_reasks=0))
        assert result.code == 1
        assert lines(output) == []
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert summary["failures"] == {"status": 1, "inconsistent": 1}
        assert summary["written"] == 0
        result = run(*command, "--judge", judge(served, max_reasks=0))
        assert result.code == 0
        assert [row["candidate"] for row in lines(output)] == ["Clear."]
        assert lines(output)[0]["prompt"].startswith("own@")
        before = len(served.requests)
        run(*command, "--judge", judge(served, max_reasks=0))
        assert [request.item for request in served.requests[before:]] == ["Small left effusion."]
        # Another prompt is another judge.
        run(*command, "--judge", judge(served, max_reasks=0), "--prompt", "guidelines")
    assert [row["prompt"].partition("@")[0] for row in lines(output)] == ["own", "guidelines"]


def test_a_judge_agrees_with_itself(run, write_csv, output, tmp_path):
    rows = [[one, other] for one in REPORTS for other in REPORTS]
    table = write_csv("pairs.csv", ["reference", "candidate"], *rows)
    assert run("judge", "label", table, "--output", output).code == 0
    result = run("judge", "compare", output, "--judge", "rules", "--json", tmp_path / "report.json")
    assert result.code == 0, result.err
    assert "valid answers: 16 of 16; failed: none" in result.out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["agreement"]["score"]["tau"] == pytest.approx(1)
    assert report["agreement"]["errors"] == {"tau": 1, "low": 1, "high": 1, "mae": 0, "equal": 1}
    assert report["severity"]["equal"] == 1
    assert f"significance of {report['severity']['matched']} errors that both list: 100.0% equal" in result.out
    with server() as served:
        result = run("judge", "compare", output, "--judge", judge(served, max_reasks=0))
    assert "valid answers: 0 of 16; failed: 16 inconsistent" in result.out
    assert "undefined" in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--output", "out.csv"), "must be a file of JSON lines"),
        (("--output", "out.jsonl", "--context", "weight=years"), "crimson takes no column weight"),
        (("--output", "out.jsonl", "--judge", "ruls"), "unknown judge 'ruls'"),
    ],
)
def test_usage_errors(run, pairs, arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = run("judge", "label", pairs, *arguments)
    assert result.code == 2
    assert message in result.err
    assert not Path("out.jsonl").exists()
