"""A recipe with vLLM in two processes, which is killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from rrg_rewards.recipes import recipe_path
from rrg_rewards.recipes.ct_chat import phantom

STEPS = 20


def launch(config: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0"]
    command += ["--standalone", "-m", "rrg_rewards.recipes.grpo", "--config", str(config)]
    with (config.parent / "log.txt").open("ab") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        )


def kill(launcher: subprocess.Popen[bytes]) -> None:
    """End the launcher and its processes as a machine that fails does."""
    # The launcher starts each process in a session of its own, which a signal to its group would not reach.
    processes = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    for process in (launcher.pid, *map(int, processes)):
        os.kill(process, signal.SIGKILL)
    launcher.wait()
    while any(
        Path(f"/proc/{process}/cmdline").read_bytes() for process in processes if Path(f"/proc/{process}").exists()
    ):
        time.sleep(0.05)


def write_config(folder: Path) -> Path:
    phantom.main(["--output", str(folder), "--train-rows", "40", "--heldout-rows", "10", "--head-size", "32"])
    config: dict[str, Any] = yaml.safe_load(recipe_path("ct_chat/mini_grpo_crg_vllm").read_text())
    config |= {
        "model_name_or_path": str(folder / "model"),
        "dataset": str(folder / "train.jsonl"),
        "heldout_file": str(folder / "heldout.jsonl"),
        "heldout_rows": 10,
        "output_dir": str(folder / "run"),
        # CRG is the same for all reports of an untrained model, and no weight would change with it.
        "rewards": [{"name": "repetition", "n_gram": 1}],
        "max_steps": STEPS,
        "per_device_train_batch_size": 8,
        "max_completion_length": 24,
        "learning_rate": 3e-3,
        "save_strategy": "steps",
        "save_steps": 6,
        "resume_from_checkpoint": "auto",
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.vllm
@pytest.mark.slow
def test_grpo_with_vllm_a_killed_run_goes_on_and_vllm_samples_from_the_trained_policy(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM has an environment of its own")
    config = write_config(tmp_path / "mini")
    run = tmp_path / "mini" / "run"
    first = launch(config)
    while not (run / "checkpoint-6" / "trainer_state.json").is_file():
        assert first.poll() is None, (tmp_path / "mini" / "log.txt").read_text()[-3000:]
        time.sleep(0.2)
    kill(first)
    assert not (run / "history.json").exists(), "the run was done before it was killed"

    assert launch(config).wait() == 0, (tmp_path / "mini" / "log.txt").read_text()[-3000:]
    history = json.loads((run / "history.json").read_text())
    steps = [entry for entry in history if "sampling/sampling_logp_difference/mean" in entry]
    assert [entry["step"] for entry in steps] == list(range(1, STEPS + 1))
    differences = [entry["sampling/sampling_logp_difference/mean"] for entry in steps]
    # vLLM computes in bfloat16 and the trainer in float32.
    assert max(differences) < 0.01
    assert "resuming from" in (tmp_path / "mini" / "log.txt").read_text()
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path / "mini" / "model", run))
    projector = [name for name in after if "mm_projector" in name]
    assert projector
    assert max(float((after[name] - before[name]).abs().max()) for name in projector) > 0.01
