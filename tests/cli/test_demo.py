"""``rrg-rewards demo`` at a size that trains nothing worth reading."""

import json
import os
from pathlib import Path

import pytest

from rrg_rewards.cli.main import main

SMALL = ["--steps", "2", "--warm-start-steps", "3", "--train-rows", "200", "--heldout-rows", "40"]


def test_demo_runs_from_corpus_to_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE", "1"))
    folder = tmp_path / "demo"
    assert main(["demo", "--output", str(folder), *SMALL]) == 0
    out = capsys.readouterr().out
    evaluation = json.loads((folder / "grpo" / "evaluation.json").read_text())
    for stage in ("before", "after", "change"):
        assert f"{evaluation[stage]['crg']['crg']['estimate']:.3f}" in out
    assert out.count("reference: ") == out.count("after: ") == 3
    assert "CRG " in out.splitlines()[-1]
    assert (folder / "grpo" / "curve_crg.png").read_bytes().startswith(b"\x89PNG")
    history = json.loads((folder / "grpo" / "history.json").read_text())
    assert [entry["step"] for entry in history if "rewards/crg/mean" in entry] == [1, 2]
    assert len((folder / "grpo" / "heldout_after.jsonl").read_text().splitlines()) == 40


def test_demo_keeps_an_existing_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--output", str(tmp_path)]) == 1
    assert "exists; choose another --output" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
