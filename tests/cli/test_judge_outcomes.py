"""Runs with a language model: what it has used, and exit codes if it fails on some or on all reports."""

import json
from pathlib import Path

import pytest
from crimson_servers import answers_of
from fault_server import FaultServer, completion, raw, reply_bytes, status
from judge_answers import block
from label_judge import rule_answer

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.judges.base import ReportPair
from rrg_rewards.schemas import CT_RATE

PAIRS = [
    ReportPair("Small left pleural effusion.", "No effusion."),
    ReportPair("Large right pneumothorax.", "Cardiomegaly."),
    ReportPair("Hiatal hernia.", "Emphysema."),
]
KINDS = ("calls", "retries", "cached", "prompt_tokens", "cached_prompt_tokens", "completion_tokens")


def answer(text):
    """A reply of 100 prompt tokens, 60 of them from the server's cache, and 10 tokens of answer."""
    reply = completion(text)
    reply["usage"]["prompt_tokens_details"] = {"cached_tokens": 60}
    return raw(reply_bytes(reply))


def item_of(messages):
    """The candidate of a pair, or the report that is labelled."""
    content = messages[-1]["content"]
    return json.loads(block(content, "candidate_report" if "<candidate_report>" in content else "report"))


def server(fails=(), dead=False, pairs=PAIRS):
    """A server that answers about all pairs and reports, but refuses the reports in ``fails``, or all of them."""
    texts = {pair.candidate: answers_of(pairs)[pair.reference + pair.candidate] for pair in pairs}
    reports = {text for pair in pairs for text in (pair.reference, pair.candidate)}
    labels = {text: json.dumps({"labels": rule_answer(text, CT_RATE.labels)}) for text in reports}

    async def behave(request, writer):
        failing = dead or request.item in fails
        is_pair = "candidate_report" in request.body["messages"][-1]["content"]
        known = texts if is_pair else labels
        await (status(401) if failing else answer(known[request.item]))(request, writer)

    return FaultServer(otherwise=behave, item_of=item_of)


@pytest.fixture
def table(write_csv):
    rows = [[pair.reference, pair.candidate, pair.candidate, place] for place, pair in enumerate(PAIRS)]
    return write_csv("pairs.csv", ["reference", "prediction", "again", "rating"], *rows)


def judge(url):
    settings = {"name": "openai", "model": "m", "base_url": url, "max_retries": 0, "concurrency": 1}
    return json.dumps({**settings, "price": [1.0, 4.0], "price_cached": 0.5})


COMMANDS = {
    "score": ("score", "--metrics", "crimson", "--output"),
    "label": ("label", "--text-column", "prediction", "--labeler", "judge:ct_rate", "--output"),
    "agreement": ("agreement", "--metrics", "crimson", "--human", "rating", "--output"),
    "compare": (
        *("compare", "--metrics", "crimson", "--prediction-column", "prediction"),
        *("--prediction-column", "again", "--output"),
    ),
}


def call(run, name, table, url, tmp_path):
    command, *options = COMMANDS[name]
    files = (tmp_path / "out.csv", "--json", tmp_path / "summary.json", "--judge", judge(url))
    result = run(command, table, *options, *files)
    return result, json.loads((tmp_path / "summary.json").read_text()), read_table(tmp_path / "out.csv")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_judge_that_fails_on_every_report_is_an_error_after_the_outputs(run, name, table, tmp_path):
    with server(dead=True) as dead:
        result, _, found = call(run, name, table, dead.url, tmp_path)
    assert result.code == 1, result.err
    error = next(line for line in result.err.splitlines() if line.startswith("rrg-rewards: error: "))
    what = "no report has labels" if name == "label" else "no report pair has a score"
    assert what in error
    assert f"{'all 3' if name == 'label' else '3 of 3'}; the first: status: the server answered HTTP 401" in error
    assert name == "label" or "error: crimson" in error
    assert len(found) == (4 if name == "agreement" else 3)
    if name == "score":
        assert found.columns["crimson_failure"][0].startswith("status: the server answered HTTP 401")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_judge_that_fails_on_some_reports_is_a_warning(run, name, table, tmp_path):
    with server(fails=[PAIRS[0].candidate]) as some:
        result, _, _ = call(run, name, table, some.url, tmp_path)
    assert result.code == 0, result.err
    warning = next(line for line in result.err.splitlines() if "failed on 1 of 3" in line)
    assert "(status 1)" in warning
    assert "the first: status: the server answered HTTP 401" in warning


@pytest.mark.parametrize("name", COMMANDS)
def test_usage_of_the_judge_is_printed_and_in_the_summary(run, name, table, tmp_path):
    with server() as good:
        result, summary, _ = call(run, name, table, good.url, tmp_path)
        calls = len(good.requests)
    assert result.code == 0, result.err
    found = summary["usage"] if name != "score" else summary["metrics"]["crimson"]["usage"]
    usage = (found if name in ("score", "label") else found["crimson"])["judge"]
    # Both systems of `compare` have the same reports, in batches of their own.
    assert calls == (6 if name == "compare" else 3)
    assert [usage[kind] for kind in KINDS] == [calls, 0, 0, 100 * calls, 60 * calls, 10 * calls]
    cost = calls * (40 * 1.0 + 60 * 0.5 + 10 * 4.0) / 1e6
    assert usage["cost"] == pytest.approx(cost)
    line = (
        f"{calls} calls (0 retries), 0 answers from the cache, {100 * calls} prompt tokens ({60 * calls} from the "
        f"server's prefix cache), {10 * calls} completion tokens, cost {cost:.4f}"
    )
    assert f"{'labels' if name == 'label' else 'crimson'}: {line}" in result.err


def test_usage_is_that_of_each_metric_and_judge(run, table, tmp_path):
    with server() as good:
        options = ("--metrics", "crg,label_f1,crimson,bleu", "--labeler", "judge:ct_rate", "--judge", judge(good.url))
        crimson = ("--set", f"crimson.judge={judge(good.url)}")
        result = run("score", table, *options, *crimson, "--json", tmp_path / "summary.json")
        requests = len(good.requests)
    assert result.code == 0, result.err
    metrics = json.loads((tmp_path / "summary.json").read_text())["metrics"]
    assert {name: list(one.get("usage", {})) for name, one in metrics.items()} == {
        "crg": ["labels"],
        "label_f1": [],
        "crimson": ["judge"],
        "bleu": [],
    }
    assert metrics["crg"]["usage"]["labels"]["calls"] == 6
    assert metrics["crimson"]["usage"]["judge"]["calls"] == 3
    # Both metrics share the labeler, which asks once about each report.
    assert requests == 6 + 3
    assert "crg and label_f1, labels: 6 calls" in result.err
    assert "crimson: 3 calls" in result.err


def test_usage_is_printed_if_the_run_fails(run, table, tmp_path, monkeypatch):
    with server() as good:
        monkeypatch.setattr("rrg_rewards.analysis.scoring.Scoring._with_columns", lambda *_: 1 / 0)
        options = ("--metrics", "crimson", "--output", tmp_path / "out.csv", "--judge", judge(good.url))
        result = run("score", table, *options)
    assert result.code == 1
    assert "crimson: 3 calls" in result.err


@pytest.mark.parametrize("name", ["score", "label"])
def test_a_dry_run_bounds_the_requests_for_labels(run, table, tmp_path, name):
    options = {
        "score": ("--metrics", "crg,bleu", "--labeler", "judge:ct_rate"),
        "label": ("--text-column", "prediction", "--labeler", "judge:ct_rate"),
    }
    with server() as unasked:
        files = ("--output", tmp_path / "out.csv", "--json", tmp_path / "estimate.json")
        result = run(name, table, *options[name], "--judge", judge(unasked.url), "--dry-run", *files)
        assert not unasked.requests
    assert result.code == 0, result.err
    assert not (tmp_path / "out.csv").exists()
    estimate = json.loads((tmp_path / "estimate.json").read_text())
    most = 6 if name == "score" else 3
    assert (estimate["crg"] if name == "score" else estimate) == {"labels": {"most_requests": most}}
    assert f"{'crg, labels' if name == 'score' else 'labels'}: at most {most} requests" in result.out
    assert "nothing was" in result.err
    if name == "score":
        assert "bleu: asks no language model" in result.out


def test_a_dry_run_writes_only_the_estimate_to_standard_output(run, table):
    options = ("--metrics", "crg", "--labeler", "judge:ct_rate", "--judge", "openai:m", "--json", "-", "--dry-run")
    result = run("score", table, *options)
    assert json.loads(result.out) == {"crg": {"labels": {"most_requests": 6}}}
    assert "at most 6 requests" in result.err


def test_rules_use_nothing(run, table, tmp_path):
    result = run("score", table, "--metrics", "crimson,crg", "--json", tmp_path / "summary.json")
    assert result.code == 0
    assert " calls " not in result.err
    assert "usage" not in Path(tmp_path / "summary.json").read_text()


def test_a_table_without_a_scorable_pair_is_an_error(run, write_csv):
    table = write_csv("pairs.csv", ["prediction", "reference"], ["", "Emphysema."])
    result = run("score", table, "--metrics", "crg")
    assert result.code == 1
    assert "error: no report pair has a score: 1 prediction in column 'prediction' is missing or blank" in result.err


@pytest.mark.parametrize("dead", [False, True])
def test_pairs_say_that_the_judge_failed_and_what_it_has_used(run, write_csv, tmp_path, dead):
    reference = PAIRS[0].reference
    pairs = [ReportPair(reference, text) for text in ("No effusion.", "Small left pleural effusion.")]
    rows = [["p", pair.candidate, pair.reference] for pair in pairs]
    table = write_csv("completions.csv", ["prompt", "completion", "reference"], *rows)
    with server(dead=dead, pairs=pairs) as judged:
        files = ("--output", tmp_path / "pairs.jsonl", "--json", tmp_path / "summary.json")
        result = run("pairs", table, "--reward", "crimson", "--judge", judge(judged.url), *files)
    assert "crimson: 2 calls (0 retries)" in result.err
    warning = (
        "warning: the judge failed on 2 of 2 completions (status 2); the first: status: the server answered HTTP 401"
    )
    assert (warning in result.err) == dead
    assert result.code == int(dead), result.err
    if not dead:
        assert json.loads((tmp_path / "summary.json").read_text())["usage"]["judge"]["calls"] == 2
