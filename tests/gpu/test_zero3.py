"""DeepSpeed ZeRO-3 in one process, on the CPU and on one GPU, against the same training without DeepSpeed."""

import json
import sys
from pathlib import Path

import pytest
import torch
from tiny_labeler import save_tiny_labeler
from tiny_policy import save_tiny_policy

from rrg_rewards.recipes import recipe_path
from tests.distributed.helpers import launch_and_wait
from tests.distributed.runs import TINY_RUN, TORCHRUN, WORKER, Launcher, Run, environment

REPORTS = ["edema", "edema effusion", "nodule", "normal", "effusion nodule", "heart"]
STEPS = 2

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    root = tmp_path_factory.mktemp("zero3")
    rows = [{"findings": f"lungs {report}", "impression": report} for report in REPORTS]
    (root / "reports.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "model_name_or_path": str(save_tiny_policy(root / "policy")),
        "dataset": str(root / "reports.jsonl"),
        "reference_column": "impression",
        "rewards": [{"name": "crg", "labeler": f"radbert:{save_tiny_labeler(root / 'labeler')}", "prior": 0.4}],
        **TINY_RUN,
        "max_steps": STEPS,
        "save_strategy": "no",
    }
    return Launcher(root, config)


def launched(
    launch: Launcher, command: list[str], name: str, *options: str, stage: int | None = 3, replay: Run | None = None
) -> Run:
    """Run the recipe in one process of a launcher, which selects a GPU by itself."""
    arguments = launch.prepare(name, *options, stage=stage, replay=replay)
    launch_and_wait([*command, str(WORKER), *arguments], environment(), timeout=300)
    return launch.recorded(name, 1)


@pytest.fixture(scope="module")
def plain(launch: Launcher) -> Run:
    """Return a run on the CPU; the other runs train on its completions."""
    return launched(launch, [*TORCHRUN, "1"], "plain", stage=None)


def test_equals_training_without_deepspeed_on_the_cpu(launch: Launcher, plain: Run, device: torch.device) -> None:
    pytest.importorskip("deepspeed", reason="ZeRO-3 needs DeepSpeed: pip install 'rrg-rewards[deepspeed]'")
    on_gpu = device.type == "cuda"
    options = ["--use_cpu", str(not on_gpu).lower()]
    run = launched(launch, [*TORCHRUN, "1"], f"zero3_{device.type}", *options, replay=plain)
    assert run.ranks[0]["distributed"] == "DEEPSPEED"
    assert torch.device(run.ranks[0]["device"]).type == device.type
    assert run.saw() == plain.saw()
    for ours, expected in zip(run.steps(), plain.steps(), strict=True):
        assert ours["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-3)
        assert ours["grad_norm"] > 0
    for name, value in run.weights().items():
        torch.testing.assert_close(value, plain.weights()[name], rtol=0, atol=1e-4, msg=name)


@pytest.mark.gpu
def test_the_published_launch_line_trains_in_bfloat16(launch: Launcher) -> None:
    """``accelerate launch`` with the configuration of the package."""
    pytest.importorskip("deepspeed", reason="ZeRO-3 needs DeepSpeed: pip install 'rrg-rewards[deepspeed]'")
    configuration = str(recipe_path("accelerate_configs/zero3"))
    accelerate = ["-m", "accelerate.commands.launch", "--config_file", configuration, "--num_processes", "1"]
    options = ("--use_cpu", "false", "--bf16", "true")
    run = launched(launch, [sys.executable, *accelerate], "published", *options, stage=None)
    assert run.ranks[0]["distributed"] == "DEEPSPEED"
    assert len(run.steps()) == STEPS
    assert all(0 < step["grad_norm"] < float("inf") for step in run.steps())
    start = Run(Path(launch.root, "policy"), []).weights()
    assert any(not torch.equal(value, start[name].to(value.dtype)) for name, value in run.weights().items())
