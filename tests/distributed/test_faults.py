"""Faults in one of two real processes of a run; the tests fail if they cannot start."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_policy import save_tiny_policy

from tests.distributed.runs import TINY_RUN, environment

pytestmark = pytest.mark.distributed

WORKER = str(Path(__file__).with_name("fault_worker.py"))
TINY_LIGHTNING_RUN: dict[str, Any] = {
    "use_cpu": True,
    "batch_size": 1,
    "num_generations": 4,
    "max_new_tokens": 4,
    "save_steps": 1,
    "devices": 2,
    "strategy": "ddp",
}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


def write_recipe(folder: Path, **options: Any) -> Path:
    rows = [{"findings": f"lungs {report}", "impression": report} for report in ("edema", "nodule", "effusion") * 4]
    (folder / "reports.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "model_name_or_path": str(save_tiny_policy(folder / "policy")),
        "dataset": str(folder / "reports.jsonl"),
        "reference_column": "impression",
        "heldout_rows": 0,
        "rewards": [{"name": "crg", "labeler": "keywords:edema effusion nodule", "prior": 0.3}],
        "output_dir": str(folder / "run"),
        "max_steps": 4,
        **options,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def output_of_failed(*command: str) -> str:
    """Return what a run prints that must fail, and not by its time limit."""
    done = subprocess.run(
        [sys.executable, *command], env=environment(), capture_output=True, text=True, timeout=330, check=False
    )
    assert done.returncode not in (0, None), done.stderr
    assert "Timeout (0:05:00)" not in done.stderr
    return done.stdout + done.stderr


def test_a_killed_process_leaves_the_former_checkpoint_and_a_hanging_reward_is_named(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, **TINY_RUN, save_steps=1, resume_from_checkpoint="auto", reward_timeout=3)
    output = output_of_failed(*TORCHRUN, WORKER, "killed", "grpo", str(recipe))
    assert "Signal 9 (SIGKILL) received" in output
    run = tmp_path / "run"
    second = run / "checkpoint-2"
    assert (run / "checkpoint-1" / "complete").exists()
    assert not (second / "complete").exists()

    output = output_of_failed(*TORCHRUN, WORKER, "hangs", "grpo", str(recipe))
    assert f"resuming from {run / 'checkpoint-1'}" in output
    assert "RewardTimeoutError: rank 1 of 2 on " in output
    assert "the reward crg has not returned after 3 s" in output
    # Written after the first step since then; the last complete one remains.
    assert (second / "complete").exists()
    assert json.loads((second / "trainer_state.json").read_text())["global_step"] == 2


def test_a_reward_that_hangs_ends_the_run_of_lightning(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, **TINY_LIGHTNING_RUN, reward_timeout=3)
    output = output_of_failed(WORKER, "hangs", "policy", str(recipe))
    assert "RewardTimeoutError: rank 1 of 2 on " in output


def test_a_process_of_lightning_that_dies_ends_the_run(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, **TINY_LIGHTNING_RUN)
    output_of_failed(WORKER, "dies", "policy", str(recipe))
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step=1.ckpt"]
