"""``rrg-rewards demo`` at a very small size."""

import json
import os
import time
from pathlib import Path

import pytest

from rrg_rewards.cli.demo import MEASURES, _stage, _verdict
from rrg_rewards.cli.main import main
from rrg_rewards.cli.terminal import Terminal

SMALL = ["--steps", "2", "--warm-start-steps", "3", "--train-rows", "200", "--heldout-rows", "40"]


@pytest.mark.slow
def test_demo_runs_from_corpus_to_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE", "1"))
    folder = tmp_path / "demo"
    assert main(["demo", "--output", str(folder), *SMALL]) == 0
    out, err = capsys.readouterr()
    # Without a terminal, each stage prints a line when it starts, and one each minute.
    stages = [line.split(": ") for line in err.splitlines() if line.endswith("s elapsed)") and " of " not in line]
    assert [(stage[1], stage[2].rpartition(" (")[0]) for stage in stages] == [
        ("phantom corpus", "write 200 training and 40 held-out studies"),
        ("warm start", "imitate abridged impressions for 3 steps"),
        ("GRPO", "evaluate, train on the recommended reward for 2 steps, evaluate"),
    ]
    evaluation = json.loads((folder / "grpo" / "evaluation.json").read_text())
    for stage in ("before", "after", "change", "images_of_others"):
        for metric, statistic in (("crg", "crg"), ("crg", "label_f1"), ("crg_macro", "crg"), ("crimson", "score")):
            assert f"{evaluation[stage][metric][statistic]['estimate']:.3f}" in out
    assert out.count("reference: ") == out.count("after: ") == 3
    assert "With the volumes of other studies, macro CRG is" in out.splitlines()[-1]
    history = json.loads((folder / "grpo" / "history.json").read_text())
    assert [entry["step"] for entry in history if "rewards/recommended/mean" in entry] == [1, 2]
    assert len((folder / "grpo" / "heldout_after.jsonl").read_text().splitlines()) == 40


def test_stages_show_progress_bars_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    terminal = Terminal()
    monkeypatch.setattr(Terminal, "note", lambda _, text: messages.append(text))
    for interactive, expected in ((True, []), (False, ["warm start: imitate (0 s elapsed)"])):
        monkeypatch.setattr(Terminal, "is_interactive", interactive)
        with _stage(terminal, time.monotonic(), "warm start", "imitate") as progress:
            progress(1, 2)
        assert messages == expected


def test_verdict_leaves_out_changes_without_an_interval() -> None:
    known, unknown = {"estimate": 0.1, "low": 0.05, "high": 0.2}, {"estimate": None, "low": None, "high": None}
    change: dict[str, dict[str, object]] = {}
    for metric, statistic in MEASURES.values():
        change.setdefault(metric, {})[statistic] = known if metric == "crimson" else unknown
    found = _verdict({"change": change, "images_of_others": change})
    assert found.startswith("\nCRIMSON rose (intervals")


def test_demo_keeps_an_existing_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--output", str(tmp_path)]) == 1
    assert "exists; choose another --output" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
