"""Checkpoints of GRPO: killed and failed ones, foreign ones, and the limit of their number."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from transformers import TrainerCallback

from rrg_rewards.recipes._training import _is_of_disk
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


def test_whole_checkpoints_a_run_that_is_killed_between_files_resumes_from_the_former(
    recipe: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = recipe(
        heldout_rows=0, save_steps=1, max_steps=3, save_total_limit=1, resume_from_checkpoint="auto",
        rewards=[{"name": "composed", "parts": [{"name": "rouge", "normalize": True}]}],
    )  # fmt: skip
    with pytest.raises(Killed):
        run(*parse(["--config", str(path)]), callbacks=[KilledIn(2)])
    # The former is not deleted yet, and all files of transformers are there.
    assert checkpoints(tmp_path) == ["checkpoint-1", "checkpoint-2"]
    assert (tmp_path / "run" / "checkpoint-2" / "trainer_state.json").exists()
    with pytest.raises(CheckpointError, match="checkpoint-2 is incomplete"):
        run(*parse(["--config", str(path), "--resume_from_checkpoint", str(tmp_path / "run" / "checkpoint-2")]))
    caplog.set_level("INFO")
    trainer = run(*parse(["--config", str(path)]))
    assert "checkpoint-2 is incomplete; looking for an earlier one" in caplog.text
    assert f"resuming from {tmp_path / 'run' / 'checkpoint-1'}" in caplog.text
    assert trainer.state.global_step == 3
    assert checkpoints(tmp_path) == ["checkpoint-3"]
    assert not (tmp_path / "run" / "checkpoint-3" / "unfinished").exists()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        # As torch and safetensors say it.
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534: No space left"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
    ids=["system", "torch", "safetensors"],
)
def test_whole_checkpoints_a_full_disk_leaves_the_former(
    recipe: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    path = recipe(heldout_rows=0, save_steps=1, max_steps=3, save_total_limit=1, resume_from_checkpoint="auto")
    save = torch.save

    def full(content: Any, file: Any, *args: Any, **options: Any) -> None:
        if str(file).endswith("checkpoint-2/optimizer.pt"):
            Path(file).write_bytes(b"a part")
            raise error
        save(content, file, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        message = (
            r"checkpoint-2 could not be written .*No space left.* GB of free .*last complete one is .*checkpoint-1"
        )
        with pytest.raises(CheckpointError, match=message):
            run(*parse(["--config", str(path)]))
    assert checkpoints(tmp_path) == ["checkpoint-1"]
    assert run(*parse(["--config", str(path)])).state.global_step == 3


def test_whole_checkpoints_an_error_with_a_file_is_of_the_disk_if_the_file_is_in_the_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-2"
    for name, expected in (("checkpoint-2/optimizer.pt", True), ("checkpoint-20/optimizer.pt", False)):
        error = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / name))
        assert _is_of_disk(error, folder) is expected


class FailsIn(TrainerCallback):  # type: ignore[misc]
    """Raises an error when the checkpoint of a step is written apart from what callbacks add."""

    def __init__(self, step: int, error: Exception) -> None:
        self.step, self.error = step, error

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise self.error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("an error of a callback"),
        ConnectionRefusedError(111, "refused"),
        PermissionError(errno.EACCES, "Permission denied", "/somewhere/else"),
        SafetensorError("Error while deserializing header: No such file or directory (os error 2)"),
    ],
    ids=repr,
)
def test_whole_checkpoints_another_error_is_raised_as_it_is_and_deletes_nothing(
    recipe: Callable[..., Path], tmp_path: Path, error: Exception
) -> None:
    path = recipe(heldout_rows=0, save_steps=1, max_steps=3)
    with pytest.raises(type(error)) as raised:
        run(*parse(["--config", str(path)]), callbacks=[FailsIn(2, error)])
    assert raised.value is error
    assert checkpoints(tmp_path) == ["checkpoint-1", "checkpoint-2"]
    assert (tmp_path / "run" / "checkpoint-2" / "unfinished").exists()


def change_shapes(state: dict[str, Any]) -> None:
    for moments in state["state"].values():
        moments["exp_avg"] = torch.ones(1)


def change_groups(state: dict[str, Any]) -> None:
    state["param_groups"][0]["params"].append(99)


def change_optimizer(state: dict[str, Any]) -> None:
    state["param_groups"][0]["momentum"] = 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_shapes, r"optimizer\.pt belongs to another run: exp_avg of weight 0 has the shape \(1,\), and not"),
        (change_groups, r"optimizer\.pt belongs to another run: it has groups of \[17, 5\] weights"),
        (change_optimizer, "its group 0 has the settings momentum of another optimiser"),
        (None, r"optimizer\.pt cannot be read"),
    ],
)
def test_whole_checkpoints_the_optimizer_of_another_run_is_refused(
    recipe: Callable[..., Path], tmp_path: Path, change: Callable[[dict[str, Any]], None] | None, message: str
) -> None:
    """Transformers' default optimiser, which is fused, takes states of any shape without an error."""
    path = recipe(heldout_rows=0, max_steps=1, save_steps=1, resume_from_checkpoint="auto")
    run(*parse(["--config", str(path)]))
    file = tmp_path / "run" / "checkpoint-1" / "optimizer.pt"
    if change is None:
        file.write_bytes(file.read_bytes()[:5000])
    else:
        state = torch.load(file, weights_only=True)
        change(state)
        torch.save(state, file)
    with pytest.raises(CheckpointError, match=message):
        run(*parse(["--config", str(path), "--max_steps", "2"]))


def test_whole_checkpoints_the_weights_of_another_model_are_refused(
    recipe: Callable[..., Path], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    path = recipe(heldout_rows=0, max_steps=1, save_steps=1, resume_from_checkpoint="auto")
    run(*parse(["--config", str(path)]))
    file = tmp_path / "run" / "checkpoint-1" / "model.safetensors"
    save_file({name: torch.ones(3) for name in load_file(file)}, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"checkpoint-1 .*size mismatch"):
        run(*parse(["--config", str(path), "--max_steps", "2"]))
