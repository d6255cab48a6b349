"""``rrg-rewards score`` with a cascade of rules and a language model."""

import json
import re

import pytest
from crimson_servers import answers_of
from fault_server import FaultServer, completion, raw, reply_bytes
from judge_answers import block

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.judges.base import ReportPair

PAIRS = [
    ReportPair("Small left pleural effusion.", "No effusion."),
    ReportPair("Quorblid. Hiatal hernia.", "Emphysema."),
    ReportPair("Large right pneumothorax.", "Vextramal, cardiomegaly."),
]


@pytest.fixture
def table(write_csv):
    return write_csv("pairs.csv", ["reference", "prediction"], *[[pair.reference, pair.candidate] for pair in PAIRS])


@pytest.fixture
def server():
    texts = {pair.candidate: answers_of([pair])[pair.reference + pair.candidate] for pair in PAIRS}

    async def behave(request, writer):
        await raw(reply_bytes(completion(texts[request.item])))(request, writer)

    with FaultServer(
        otherwise=behave, item_of=lambda messages: json.loads(block(messages[-1]["content"], "candidate_report"))
    ) as served:
        yield served


def cascade(server, **settings):
    second = {"name": "openai", "model": "m", "base_url": server.url, "max_retries": 0, "price": [1.0, 4.0]}
    return json.dumps({"name": "cascade", "second": second, **settings})


def test_score_by_a_cascade_names_the_judge_of_each_row(run, table, server, tmp_path):
    files = ("--output", tmp_path / "out.csv", "--json", tmp_path / "summary.json")
    result = run("score", table, "--metrics", "crimson", "--judge", cascade(server), *files)
    assert result.code == 0, result.err
    assert sorted(request.item for request in server.requests) == sorted(pair.candidate for pair in PAIRS[1:])
    assert read_table(tmp_path / "out.csv").columns["crimson_judge"] == ["rules", "openai:m", "openai:m"]
    found = json.loads((tmp_path / "summary.json").read_text())["metrics"]["crimson"]
    assert found["judged_by"] == {"rules": 1, "openai:m": 2}
    assert found["usage"]["judge"]["calls"] == 2
    assert found["means"]["by_second_judge"] == pytest.approx(2 / 3)
    assert found["scored"] == 3
    assert "crimson, pairs by judge: rules 1, openai:m 2" in result.err
    assert "crimson: 2 calls" in result.err


def test_score_estimates_the_pairs_of_the_second_judge(run, table, server, tmp_path):
    path = tmp_path / "judge.yaml"
    path.write_text(cascade(server))
    result = run(
        "score", table, "--metrics", "crimson", "--judge", path, "--dry-run", "--json", tmp_path / "estimate.json"
    )
    assert result.code == 0, result.err
    assert not server.requests
    found = json.loads((tmp_path / "estimate.json").read_text())["crimson"]
    assert found["requests"] == 2
    assert found["judged_by"] == {"rules": 1, "openai:m": 2}
    assert found["cost"] > 0
    assert "crimson: 2 requests" in result.out
    assert "different pairs by judge: rules 1, openai:m 2" in result.out


def test_score_by_a_cascade_without_unread_pairs_sends_nothing(run, write_csv, server, tmp_path):
    table = write_csv("read.csv", ["reference", "prediction"], [PAIRS[0].reference, PAIRS[0].candidate])
    result = run("score", table, "--metrics", "crimson", "--judge", cascade(server), "--json", tmp_path / "s.json")
    assert result.code == 0, result.err
    assert not server.requests
    dry = run("score", table, "--metrics", "crimson", "--judge", cascade(server), "--dry-run")
    assert (dry.code, "crimson: 0 requests" in dry.out) == (0, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--judge", "cascade"], "argument --judge: second: a cascade needs"),
        (["--judge", "cascade:cascade:openai:m"], "argument --judge: second: a cascade needs|must not be a cascade"),
        (["--judge", "{name: cascade, second: openai:m, max_unraed: 1}"], "did you mean 'max_unread'"),
        (["--judge", "cascade:openai:m", "--workers", "2"], "argument --workers: .*leave out --workers"),
    ],
)
def test_score_names_what_is_wrong_with_a_cascade(run, table, options, message):
    result = run("score", table, "--metrics", "crimson", *options)
    assert result.code == 2, result.err
    assert re.search(message, result.err), result.err


def test_a_labeler_refuses_a_cascade(run, table):
    result = run("score", table, "--metrics", "crg", "--labeler", "judge:ct_rate", "--judge", "cascade:openai:m")
    assert result.code == 2
    assert "the judge 'cascade' evaluates CRIMSON only" in result.err
