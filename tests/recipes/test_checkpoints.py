"""Checkpoints of GRPO: killed and failed ones, and foreign ones."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

from rrg_rewards.recipes.grpo import parse, run
from rrg_rewards.utilities.checkpoints import CheckpointError


class Killed(BaseException):
    """Ends a run as SIGKILL does: nothing handles it."""


class KilledIn(TrainerCallback):  # type: ignore[misc]
    """Kills the run when the checkpoint of a step is written apart from what callbacks add."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise Killed


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "run").glob("checkpoint-*"))


def test_checkpoints_a_run_that_is_killed_between_files_resumes_from_the_former(
    recipe: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = recipe(
        heldout_rows=0, save_steps=1, max_steps=3, save_total_limit=1, resume_from_checkpoint="auto",
        rewards=["rouge"],
    )  # fmt: skip
    with pytest.raises(Killed):
        run(*parse(["--config", str(path)]), callbacks=[KilledIn(2)])
    # The former is not deleted yet, and all files of transformers are there.
    assert checkpoints(tmp_path) == ["checkpoint-1", "checkpoint-2"]
    assert (tmp_path / "run" / "checkpoint-2" / "trainer_state.json").exists()
    caplog.set_level("INFO")
    trainer = run(*parse(["--config", str(path)]))
    assert "checkpoint-2 is incomplete; looking for an earlier one" in caplog.text
    assert f"resuming from {tmp_path / 'run' / 'checkpoint-1'}" in caplog.text
    assert trainer.state.global_step == 3
    # One more than wanted: the former remains until the last is complete.
    assert checkpoints(tmp_path) == ["checkpoint-2", "checkpoint-3"]


def test_checkpoints_a_full_disk_leaves_the_former(
    recipe: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recipe(heldout_rows=0, save_steps=1, max_steps=3, resume_from_checkpoint="auto")
    save = torch.save

    def full(content: Any, file: Any, *args: Any, **options: Any) -> None:
        if str(file).endswith("checkpoint-2/optimizer.pt"):
            Path(file).write_bytes(b"a part")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(content, file, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(OSError, match="No space left on device"):
            run(*parse(["--config", str(path)]))
    assert not (tmp_path / "run" / "checkpoint-2" / "complete").exists()
    assert run(*parse(["--config", str(path)])).state.global_step == 3
    assert (tmp_path / "run" / "checkpoint-2" / "complete").exists()


def change_optimizer(file: Path) -> None:
    state = torch.load(file / "optimizer.pt", weights_only=True)
    for moments in state["state"].values():
        moments["exp_avg"] = torch.ones(1)
    torch.save(state, file / "optimizer.pt")


def cut_optimizer(file: Path) -> None:
    os.truncate(file / "optimizer.pt", 5000)


def change_weights(file: Path) -> None:
    names = load_file(file / "model.safetensors")
    save_file({name: torch.ones(3) for name in names}, file / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (change_optimizer, CheckpointError, r"optimizer\.pt .*exp_avg of weight 0 has the shape \(1,\)"),
        (cut_optimizer, OSError, "Invalid argument"),
        (change_weights, RuntimeError, "size mismatch"),
    ],
)
def test_checkpoints_of_another_run_are_refused(
    recipe: Callable[..., Path],
    tmp_path: Path,
    change: Callable[[Path], None],
    error: type[Exception],
    message: str,
) -> None:
    """Transformers' default optimiser, which is fused, takes states of any shape without an error."""
    path = recipe(heldout_rows=0, max_steps=1, save_steps=1, resume_from_checkpoint="auto")
    run(*parse(["--config", str(path)]))
    change(tmp_path / "run" / "checkpoint-1")
    with pytest.raises(error, match=message):
        run(*parse(["--config", str(path), "--max_steps", "2"]))
