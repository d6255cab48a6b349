"""``rrg-rewards grade``: a dry run sends nothing, no report is requested twice, and no answer is lost."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fault_server import FaultServer, reset, says, silent, status
from grading_answers import asked_report, graded, honest
from judge_answers import block

from rrg_rewards.data.records.graded_reports import read_graded_reports
from rrg_rewards.schemas.scoring import get_scoring_system

RADCLIQ = get_scoring_system("radcliq")
REFERENCES = ["Small left effusion.", "Cardiomegaly. No edema.", "Normal chest."]
TIERS = ["-2 to 0", "-4 to -3", "-6 to -5"]
ITEMS = [f"{reference} | {tier} | 1" for reference in REFERENCES for tier in TIERS]
HELPERS = str(Path(__file__).parent.parent / "helpers")


async def well(request, writer):
    """Answer in the requested tier."""
    await says(honest(RADCLIQ, request.item))(request, writer)


def serve(script=None, otherwise=well):
    return FaultServer(script, otherwise, item_of=asked_report)


@pytest.fixture
def reports(write_csv):
    return write_csv("reports.csv", ["id", "report"], *([str(row), text] for row, text in enumerate(REFERENCES)))


@pytest.fixture
def output(tmp_path):
    return tmp_path / "graded.jsonl"


def judge(server, **settings):
    """The value of --judge."""
    return json.dumps({"name": "openai", "model": "tiny", "base_url": server.url, "first_pause": 0.01, **settings})


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def held(path):
    """Items of the reports in an output."""
    return [f"{line['reference']} | {line['tier']} | {line['draw']}" for line in lines(path)]


def test_a_dry_run_sends_and_writes_nothing(run, reports, output, tmp_path):
    with serve() as server:
        result = run(
            *("grade", reports, "--output", output, "--dry-run", "--per-tier", 2),
            *("--judge", judge(server, price=[2, 8]), "--json", tmp_path / "plan.json"),
        )
        assert server.requests == []
    assert result.code == 0
    assert not output.exists()
    assert "reports: 18 (6 of -2 to 0, 6 of -4 to -3, 6 of -6 to -5); in the output: 0; to request: 18" in result.out
    assert block(result.out, "reference_report") == '"Small left effusion."'
    assert "reports would be sent to 127.0.0.1" in result.out
    assert "nothing was sent" in result.err
    plan = json.loads((tmp_path / "plan.json").read_text())
    told = plan["estimate"]
    assert told["requests"] == plan["to_ask"] == 18
    assert told["cost"] == pytest.approx((2 * told["prompt_tokens"] + 8 * told["completion_tokens"]) / 1e6)
    # 18 prompts of some 4,500 characters.
    assert 18 * 900 < told["prompt_tokens"] < 18 * 1800


def test_a_dry_run_needs_no_judge(run, reports, output):
    result = run("grade", reports, "--output", output, "--dry-run", "--system", "mrscore")
    assert result.code == 0
    assert "3 of 70 to 100" in result.out
    assert "cost: unknown without a `price`" in result.out


def test_reports_are_written_with_where_they_are_from(run, reports, output, tmp_path):
    with serve() as server:
        result = run(
            *("grade", reports, "--output", output, "--judge", judge(server, price=[1, 10])),
            *("--source", "tiny", "--json", tmp_path / "summary.json"),
        )
    assert result.code == 0
    assert sorted(held(output)) == sorted(ITEMS)
    found = {f"{line['reference']} | {line['tier']} | {line['draw']}": line for line in lines(output)}
    line = found[ITEMS[1]]
    assert line["scores"] == {**dict.fromkeys(RADCLIQ.names, 0), "false_finding": 3}
    assert (line["total"], line["in_tier"], line["source"], line["system"]) == (-3.0, True, "tiny", "radcliq")
    assert line["judge"].startswith("openai|model:tiny|host:loopback|")
    assert len(line["prompt_hash"]) == 12
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["written"] == summary["in_tier"] == dict.fromkeys(TIERS, 3)
    assert summary["usage"]["calls"] == 9
    assert summary["usage"]["cost"] == pytest.approx(9 * (100 + 10 * 10) / 1e6)
    assert (
        "9 calls (0 retries), 0 answers from the cache, 900 prompt tokens, 90 completion tokens, cost 0.00"
        in result.err
    )
    graded_reports = read_graded_reports(output, "radcliq")
    assert {report.tier for report in graded_reports} == set(TIERS)
    assert {report.total(RADCLIQ) for report in graded_reports} == {0.0, -3.0, -5.0}


FAULTS = {
    "reset": ([reset(), well], {}, 2),
    "out of range once": ([says(graded(RADCLIQ, "Other.", false_finding=-1)), well], {}, 2),
    "malformed": ([says("{")] * 2, {"malformed": 1}, 2),
    "a copy": ([says(graded(RADCLIQ, REFERENCES[0], false_finding=3))] * 2, {"inconsistent": 1}, 2),
    "refused": ([status(400)], {"status": 1}, 1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_the_item_at_most(run, reports, output, tmp_path, name):
    script, failures, calls = FAULTS[name]
    with serve({ITEMS[1]: script}) as server:
        result = run(
            "grade", reports, "--output", output, "--judge", judge(server), "--json", tmp_path / "summary.json"
        )
        assert server.asked == {**dict.fromkeys(ITEMS, 1), ITEMS[1]: calls}
        assert result.code == 0
        assert json.loads((tmp_path / "summary.json").read_text())["failures"] == failures
        kind = next(iter(failures), None)
        assert (f"1 failed with {kind}; the first: " in result.err) == bool(failures)
        assert "effusion" not in result.err
        assert sorted(held(output)) == sorted(set(ITEMS) - ({ITEMS[1]} if failures else set()))
        # The item that failed is asked for by the next run, and it alone.
        before = len(server.requests)
        assert run("grade", reports, "--output", output, "--judge", judge(server)).code == 0
        assert [request.item for request in server.requests[before:]] == ([ITEMS[1]] if failures else [])
    assert sorted(held(output)) == sorted(ITEMS)


def test_nothing_but_failures_is_a_failed_run(run, reports, output):
    with serve(otherwise=status(401)) as server:
        result = run("grade", reports, "--output", output, "--judge", judge(server))
    assert result.code == 1
    assert "9 failed with status; the first: the server answered HTTP 401" in result.err
    assert "9 reports are missing" in result.err


START = "import sys; from rrg_rewards.cli.main import main; sys.exit(main(sys.argv[1:]))"


def start(server, reports, output, **settings):
    """Run the command in another process."""
    command = [sys.executable, "-c", START, "grade", reports, "--output", output, "--judge", judge(server, **settings)]
    return subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, stdout=subprocess.PIPE)


def wait_for(condition):
    for _ in range(12_000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen within 120 s")


def test_killed_and_taken_up(run, reports, output):
    stuck = ITEMS[4]
    with serve({stuck: [silent()]}) as server:
        process = start(server, reports, output, concurrency=1, timeout=60)
        try:
            wait_for(lambda: server.asked[stuck])
        finally:
            process.kill()
            process.communicate(timeout=120)
        # All that was answered is there.
        assert held(output) == ITEMS[:4]
        assert run("grade", reports, "--output", output, "--judge", judge(server)).code == 0
        assert server.asked == {**dict.fromkeys(ITEMS, 1), stuck: 2}
    assert sorted(held(output)) == sorted(ITEMS)


OPENAI = "{name: openai, model: m}"
REMOTE = "{name: openai, model: m, base_url: 'https://api.example.org/v1'}"
WRONG = {
    "no judge": ((), 2, "--judge is required unless --dry-run is set"),
    "another machine": (("--judge", REMOTE), 2, "report text would leave this one"),
    "another machine, dry": (("--judge", REMOTE, "--dry-run"), 2, "report text would leave this one"),
    "no reports a tier": (("--per-tier", "0"), 2, "argument --per-tier: must be"),
    "no such file": (("--dry-run", "--system", "mine.yaml"), 1, "mine.yaml"),
    "no such column": (("--dry-run", "--report-column", "text"), 1, "text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told(run, reports, output, name):
    options, code, message = WRONG[name]
    result = run("grade", reports, "--output", output, *options)
    assert result.code == code
    assert message in result.err
    assert not output.exists()


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("-", 2, "must be a file of JSON lines (.jsonl), got '-'"),
        ("a.csv", 2, "must be a file of JSON lines"),
        ("no/a.jsonl", 1, "the folder"),
    ],
)
def test_outputs_that_will_not_do(run, reports, tmp_path, path, code, message):
    result = run("grade", reports, "--output", path if path == "-" else tmp_path / path, "--dry-run")
    assert result.code == code
    assert message in result.err


def test_a_users_own_system(run, reports, output, tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(
        "name: own\ndirection: add\ncriteria:\n"
        "  - {name: complete, description: 'How complete is the report?', kind: grade, range: [0, 9]}\n"
        "  - {name: right_side, description: 'Is every side right?', kind: yes_no, weight: 3}\n"
    )
    system = get_scoring_system(own)

    async def answer(request, writer):
        tier = request.item.split(" | ")[1]
        await says(graded(system, f"Text for {tier}", complete=float(tier.split(" to ")[0])))(request, writer)

    with serve(otherwise=answer) as server:
        result = run("grade", reports, "--output", output, "--judge", judge(server), "--system", own)
    assert result.code == 0
    assert {line["tier"] for line in lines(output) if line["reference"] == REFERENCES[0]} == {
        "8 to 12",
        "4 to 8",
        "0 to 4",
    }
    assert all(line["in_tier"] for line in lines(output))
    assert len(read_graded_reports(output, own)) == 9
