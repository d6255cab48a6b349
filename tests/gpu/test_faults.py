"""Errors of the GPU in a training: the run ends, and its last checkpoint is complete."""

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.runs import TINY_RUN
from tests.distributed.test_faults import TINY_LIGHTNING_RUN, WORKER, output_of_failed, write_recipe

pytestmark = [pytest.mark.gpu, pytest.mark.distributed]

MESSAGES = {"memory": "out of memory", "assertion": "device-side assert"}


@pytest.mark.parametrize("fault", MESSAGES)
@pytest.mark.parametrize("kind", ["grpo", "policy"])
def test_a_run_with_an_error_of_the_gpu_ends_and_keeps_its_checkpoint(tmp_path: Path, kind: str, fault: str) -> None:
    options: dict[str, Any] = TINY_RUN if kind == "grpo" else {**TINY_LIGHTNING_RUN, "devices": 1, "strategy": "auto"}
    recipe = write_recipe(tmp_path, **{**options, "use_cpu": False, "save_steps": 1})
    output = output_of_failed(WORKER, fault, kind, str(recipe))
    assert MESSAGES[fault] in output
    run = tmp_path / "run"
    if kind == "grpo":
        assert [path.name for path in run.glob("checkpoint-*")] == ["checkpoint-1"]
        assert (run / "checkpoint-1" / "complete").exists()
    else:
        assert [path.name for path in (run / "checkpoints").iterdir()] == ["step=1.ckpt"]
