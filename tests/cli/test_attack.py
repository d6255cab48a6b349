"""``rrg-rewards attack``."""

import json

import pytest
from fault_server import FaultServer, status

HEADER = ["reference", "prediction"]
ROWS = [
    (f"{finding} {filler}", f"{finding} The heart is normal.")
    for finding in ("Cardiomegaly.", "Pleural effusion.", "Lung nodule.", "Emphysema.", "Normal chest.")
    for filler in ("Bones are intact.", "The lungs are clear.", "No pneumothorax.", "Aorta is normal.")
]
SMALL = ["--budget", "3000", "--max-references", "20", "--families", "labels,normal,evolved"]


@pytest.fixture
def pairs(write_csv):
    return write_csv("pairs.csv", HEADER, *ROWS)


def test_writes_json(run, pairs, tmp_path):
    told = tmp_path / "attack.json"
    result = run("attack", pairs, "--reward", "crg", "--honest-column", "prediction", *SMALL,
                 "--json", told)  # fmt: skip
    assert result.code == 0, result.err
    found = json.loads(told.read_text())
    assert {family["family"] for family in found["families"]} == {"labels", "normal", "evolved"}
    assert found["calls"] <= 3000
    assert found["baseline"] == "honest"
    assert found["honest"] > found["blank"]
    assert found["signature"].startswith("crg|")
    assert all(family["text"] for family in found["families"] if family["family"] == "labels")
    assert "95 % interval" in result.out
    assert "labels" in result.out
    again = tmp_path / "again.json"
    assert run("attack", pairs, "--reward", "crg", "--honest-column", "prediction", *SMALL, "--json", again).code == 0
    assert json.loads(again.read_text()) == found


def test_texts_of_the_users_reports_are_left_out(run, pairs):
    result = run("attack", pairs, "--reward", "rouge", "--families", "reports", "--budget", "3000", "--json", "-",
                 "--no-quotes", "--quiet")  # fmt: skip
    assert result.code == 0, result.err
    (family,) = json.loads(result.out)["families"]
    assert (family["text"], family["quotes_reports"]) == (None, True)
    assert family["gain"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--against", "honest"], "needs --honest-column"),
        (["--families", "label"], "did you mean 'labels'"),
        (["--budget", "10"], "budget"),
        (["--reference-column", "report"], "unknown column 'report'"),
        (["--html", "-"], "--html"),
        (["--threshold", "nan"], "must be a number"),
        (["--held-out", "1"], "held_out"),
        (["--max-references", "3"], "max_references"),
    ],
)
def test_errors_name_the_option(run, pairs, options, message):
    result = run("attack", pairs, "--reward", "rouge", *options)
    assert result.code in (1, 2)
    assert message in result.err


def test_help_explains_the_outcome(run):
    result = run("attack", "--help")
    assert result.code == 0
    assert '"exploit" if the whole' in " ".join(result.out.split())


def test_a_judge_that_fails_is_named(run, pairs):
    with FaultServer(otherwise=status(401), item_of=lambda _: "report") as dead:
        judge = f"{{name: openai, model: m, base_url: {dead.url}, max_retries: 0}}"
        result = run("attack", pairs, "--reward", "crimson", "--judge", judge, *SMALL)
        labels = ("--labeler", "judge:ct_rate", "--judge", judge, "--set", "prior=0.2")
        labelled = run("attack", pairs, "--reward", "crg", *labels, *SMALL)
    for one in (result, labelled):
        assert one.code != 0
        assert "on any reference; its judge failed, the first time with status: the server answered HTTP 401" in one.err
        assert "another text" not in one.err


def test_a_reward_that_fails_its_own_check_is_an_error_after_all_files(run, pairs, tmp_path):
    told = tmp_path / "attack.json"
    page = tmp_path / "attack.html"
    result = run("attack", pairs, "--reward", "repetition", *SMALL, "--json", told, "--html", page)
    assert result.code == 1
    failure = "an empty text scores as much as the reference on 10 of 10 references"
    assert f"error: the reward itself: {failure}" in result.err
    assert result.out.startswith(f"the reward itself fails its check: {failure}\n")
    found = json.loads(told.read_text())
    assert found["check"]["failures"] == [failure]
    assert len(found["families"]) == 3
    assert f"A{failure[1:]}." in page.read_text()
    assert run("attack", pairs, "--reward", "rouge", *SMALL, "--json", tmp_path / "rouge.json").code == 0
    assert json.loads((tmp_path / "rouge.json").read_text())["check"]["failures"] == []


def test_an_interrupted_attack_writes_its_result(run, pairs, tmp_path, monkeypatch):
    from rrg_rewards.attack.calls import RewardFunction

    whole, left = RewardFunction.__call__, iter(range(70))

    def call(self, batch):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return whole(self, batch)

    monkeypatch.setattr(RewardFunction, "__call__", call)
    told = tmp_path / "told.json"
    stopped = run("attack", pairs, "--reward", "rouge", *SMALL, "--batch-size", "20", "--json", told)
    assert stopped.code == 130
    assert "error: interrupted after" in stopped.err
    found = json.loads(told.read_text())
    assert found["complete"] is False
    assert 0 < len(found["families"]) < 3
    assert [path.name for path in tmp_path.glob("told*")] == ["told.json"]
