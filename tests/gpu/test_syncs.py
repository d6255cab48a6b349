"""How often training steps and metrics wait for the device, counted on the second device."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import second_device  # noqa: F401 (registers the device before the first backward pass)

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_syncs.py"


@pytest.fixture(scope="module")
def counting() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("algorithm", "reads", "uploads"), [("grpo", 18, 32), ("ppo", 24, 40)])
def test_a_step_waits_seldom_and_hardly_more_for_longer_completions(
    counting: dict[str, Any], algorithm: str, reads: int, uploads: int
) -> None:
    short, long = (counting["count_step"](algorithm, tokens) for tokens in (4, 16))
    assert 0 < sum(short.reads.values()) <= reads
    assert 0 < sum(short.uploads.values()) <= uploads
    # Sampling reads once in 8 tokens which rows have ended.
    assert sum(long.reads.values()) <= sum(short.reads.values()) + 1
