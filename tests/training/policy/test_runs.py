"""Whole runs in separate processes: two processes equal one, and a resumed run equals an uninterrupted one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_labeler import save_tiny_labeler

from tests.distributed.helpers import run_script

pytestmark = pytest.mark.distributed

WORKER = Path(__file__).with_name("policy_worker.py")


def run(folder: Path, *settings: dict[str, Any]) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    run_script(WORKER, folder, json.dumps(settings), processes=settings[0].get("devices", 1))
    told: list[dict[str, Any]] = json.loads((folder / "told.json").read_text())
    assert all(one["world"] == own.get("devices", 1) for one, own in zip(told, settings, strict=True))
    return told


def test_policy_module_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    # Each of them depends on numbers of all processes: the deviation of the batch, its tokens, whitening.
    modules = [
        {"scale": "batch", "loss": {"aggregation": "token_mean"}, "beta": 0.05},
        {"algorithm": "ppo", "beta": 0.05, "epochs": 2},
        {"algorithm": "rloo", "beta": 0.05},
        {"beta": 0.05, "micro_batch_tokens": 16},
    ]
    shared = {"by_row": True, "steps": 4}
    alone = run(tmp_path / "one", *({**shared, "module": module, "batch_size": 8} for module in modules))
    together = run(
        tmp_path / "two", *({**shared, "module": module, "batch_size": 4, "devices": 2} for module in modules)
    )
    for ours, theirs in zip(together, alone, strict=True):
        found, expected = (torch.tensor(one["weights"]) for one in (ours, theirs))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        for name in ("reward", "reward_std", "completions/mean_length", "rewards/word_value/std"):
            values = [[row[name] for row in one["history"]] for one in (ours, theirs)]
            assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.slow
def test_policy_module_two_processes_with_compiled_steps_take_those_of_eager_decoding(tmp_path: Path) -> None:
    shared = {"module": {"beta": 0.05}, "batch_size": 4, "devices": 2, "steps": 3}
    eager, graph = run(tmp_path / "runs", shared, {**shared, "decoding": "graph"})
    found, expected = (torch.tensor(one["weights"]) for one in (graph, eager))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("devices", [1, 2])
def test_policy_module_a_run_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path: Path, devices: int) -> None:
    # Two rollouts an epoch of one process, one of two; killed twice, within a rollout and after one.
    module = {"minibatches": 2, "epochs": 2, "beta": 0.05, "scale": "gdpo", "mask_truncated": True, "max_draws": 2}
    shared = {"module": module, "batch_size": 8, "devices": devices, "steps": 14}
    (whole,) = run(tmp_path / "whole", shared)
    going_on: dict[str, Any] = {}
    for step in (6, 8):
        folder = tmp_path / f"killed-{step}"
        # The other process may have noticed first.
        with pytest.raises(AssertionError, match=r"rank \d (ended with exit code -9|failed)"):
            run(folder, {**shared, **going_on, "killed_before": step})
        assert not (folder / "told.json").exists()
        going_on = {"resume": str(folder / "0" / f"step={step}.ckpt")}
    (resumed,) = run(tmp_path / "resumed", {**shared, **going_on})
    assert resumed["weights"] == whole["weights"]
    assert resumed["history"] == whole["history"][8:]


def test_policy_module_under_zero_takes_the_steps_of_ddp_and_resumes(tmp_path: Path) -> None:
    labeler = f"radbert:{save_tiny_labeler(tmp_path / 'labeler')}"
    module = {"minibatches": 2, "epochs": 2, "beta": 0.05}
    shared = {"module": module, "batch_size": 4, "devices": 2, "steps": 6, "by_row": True, "labeler": labeler}
    zero2, zero3 = ({**shared, "zero": stage} for stage in (2, 3))
    resumed = [
        {**own, "resume": str(tmp_path / "runs" / str(index) / "step=5.ckpt")}
        for index, own in ((1, zero2), (2, zero3))
    ]
    # The last run generates with partitioned weights, and evaluates before and after the training.
    sampled = {"module": {"algorithm": "ppo"}, "batch_size": 4, "devices": 2, "steps": 2, "zero": 3, "validate": 8}
    plain, *others, generated = run(tmp_path / "runs", shared, zero2, zero3, *resumed, sampled)
    assert [one["partitioned"] for one in (plain, *others, generated)] == [False, False, True, False, True, True]
    assert min(row["reward_std"] for row in plain["history"]) > 0
    for one in others:
        found, expected = (torch.tensor(told["weights"]) for told in (one, plain))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        for ours, theirs in zip(one["history"], plain["history"][-len(one["history"]) :], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    for whole, again in zip(others[:2], others[2:], strict=True):
        assert again["weights"] == whole["weights"]
        assert again["history"] == whole["history"][5:]
    assert generated["weights"] != plain["weights"]
    assert generated["history"][-1]["completions/mean_length"] > 1


def test_policy_module_a_checkpoint_of_two_processes_is_not_resumed_by_one(tmp_path: Path) -> None:
    shared = {"module": {}, "batch_size": 4, "steps": 1}
    run(tmp_path / "two", {**shared, "devices": 2})
    with pytest.raises(AssertionError, match="the checkpoint was saved by 2 processes and cannot be resumed with 1"):
        run(tmp_path / "one", {**shared, "steps": 2, "resume": str(tmp_path / "two" / "0" / "step=1.ckpt")})
