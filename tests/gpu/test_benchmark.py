"""benchmarks/gpu.py: its exit code without a GPU, its arithmetic, and its measurements of a small model on the CPU."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def functions() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=600)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_ends_with_its_own_code(tmp_path: Path) -> None:
    done = run("--output", str(tmp_path / "gpu.json"))
    assert done.returncode == 3
    assert done.stdout.startswith("no GPU: torch.cuda.is_available() is False (torch ")
    assert not done.stderr
    assert not (tmp_path / "gpu.json").exists()


def test_outcomes_of_checks_are_read(functions: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_right(): pass\n"
        "def test_wrong(): assert 1 == 2\n"
        "def test_absent(): pytest.skip('needs bitsandbytes')\n"
        "@pytest.fixture\ndef broken(): raise OSError('no driver')\n"
        "def test_broken(broken): pass\n"
    )
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path), f"--junitxml={report}"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    found = {row["check"]: (row["outcome"], row.get("reason", "")) for row in functions["outcomes"](report)}
    assert found["test_right"] == ("passed", "")
    assert found["test_wrong"] == ("failed", "assert 1 == 2")
    assert found["test_absent"] == ("skipped", "needs bitsandbytes")
    assert found["test_broken"][0] == "failed"
    assert "no driver" in found["test_broken"][1]


def test_times_are_compared_with_both_ends_of_the_estimate(functions: dict[str, Any]) -> None:
    estimated = {name: {"seconds": [1.0, 2.0], "gb": 5.0} for name in ("fast", "right", "slow")}
    found = functions["compare"]({"fast": (0.9, None), "right": (1.5, 4.0), "slow": (2.1, 6.0)}, estimated)
    assert [row["within_estimate"] for row in found.values()] == [False, True, False]
    assert found["right"] == {
        "seconds": 1.5,
        "estimated_seconds": [1.0, 2.0],
        "within_estimate": True,
        "gb": 4.0,
        "estimated_gb": 5.0,
    }


@pytest.mark.slow
def test_a_small_model_is_measured_on_the_cpu(tmp_path: Path) -> None:
    done = run("--cpu", "--output", str(tmp_path / "gpu.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["checks"] == []
    assert found["layers"] == 2
    assert found["rates"].keys() == {"bf16_tflops", "copy_gb_per_second"}
    assert found["attention"]["flash_attention"]["seconds"] > 0
    assert "seconds" in found["attention"]["math"]
    assert found["phases"].keys() == {"generation", "reference", "training"}
    for row in found["phases"].values():
        assert row["seconds"] > 0
        assert 0 < row["estimated_seconds"][0] <= row["estimated_seconds"][1]
        assert row["gb"] is None
