"""``rrg-rewards count``: counts by a judge become records for training; no pair is requested twice or lost."""

import json

import pytest
from counting_answers import asked_pair, counts_of
from fault_server import FaultServer, says

from rrg_rewards.data import read_error_records
from rrg_rewards.training import CrepeDataModule, JsonlRecords

PAIRS = [
    ("Small left effusion.", "Cardiomegaly."),
    ("Normal chest.", "Right lung nodule."),
    ("Pulmonary edema.", "Normal chest."),
]
ITEMS = [" | ".join(pair) for pair in PAIRS]
COUNTS = [(1, 1, 0, 0, 0, 0), (1, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0)]


async def well(request, writer):
    await says(counts_of(request.item))(request, writer)


def serve(script=None, otherwise=well):
    return FaultServer(script, otherwise, item_of=asked_pair)


@pytest.fixture
def pairs(write_csv):
    return write_csv("pairs.csv", ["reference", "prediction"], *map(list, PAIRS))


@pytest.fixture
def output(tmp_path):
    return tmp_path / "counts.jsonl"


def judge(server, **settings):
    return json.dumps({"name": "openai", "model": "tiny", "base_url": server.url, "first_pause": 0.01, **settings})


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_dry_run_without_a_summary_needs_no_pydantic(run, pairs, output, monkeypatch):
    def fail(*arguments, **options):
        raise AssertionError("a form of answers needs pydantic")

    monkeypatch.setattr("rrg_rewards.judges.tasks.base.require", fail)
    monkeypatch.setattr("rrg_rewards.judges.tasks.base._prompt_hash", fail)
    assert run("count", pairs, "--output", output, "--dry-run").code == 0


def test_counts_are_records(run, pairs, output, tmp_path):
    with serve() as server:
        result = run(
            *("count", pairs, "--output", output, "--judge", judge(server), "--source", "tiny"),
            *("--json", tmp_path / "summary.json"),
        )
    assert result.code == 0
    found = {record.reference: record for record in read_error_records(output)}
    assert [found[reference].counts for reference, _ in PAIRS] == COUNTS
    assert found["Small left effusion."].significant == (1, 0, 0, 0, 0, 0)
    assert {record.source for record in found.values()} == {"tiny"}
    line = next(line for line in lines(output) if line["reference"] == "Pulmonary edema.")
    assert line["errors"][0]["reference_quote"] == "Pulmonary edema."
    assert line["judge"].startswith("openai|model:tiny|host:loopback|")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["written"] == summary["usage"]["calls"] == 3
    assert summary["categories"]["false_finding"] == {"errors": 2, "significant": 2}
    assert summary["categories"]["omitted_finding"] == {"errors": 2, "significant": 0}


def test_counts_are_a_source_of_training(run, pairs, output):
    with serve() as server:
        run("count", pairs, "--output", output, "--judge", judge(server))
    data = CrepeDataModule([JsonlRecords(str(output))], tokenizer="unused", heads="significance")
    assert sorted(record.counts for record in data.read()) == sorted(COUNTS)
