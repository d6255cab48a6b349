"""A training process: ddp_worker.py TASK RECIPE DEVICES OUTPUT ZERO_STAGE ROLE. The main process writes the report."""

import json
import sys
from pathlib import Path

import torch.distributed as dist
from training_runs import interrupted_in_second_epoch

from rrg_rewards.training import CrepeModule, ER2ScoreModule
from rrg_rewards.training.metrics import cli

MODULES = {"crepe": CrepeModule, "er2score": ER2ScoreModule}


def main() -> None:
    """Train, test and write the report."""
    task, recipe, devices, output, stage, role = sys.argv[1:]
    many = ["--trainer.strategy", "ddp"] if devices != "1" else []
    if stage != "0":
        many = ["--trainer.strategy", "cpu_deepspeed.CPUDeepSpeedStrategy", "--trainer.strategy.stage", stage]
    if role == "resumed":
        many += ["--resume_from_checkpoint", "auto"]
    run = cli.build(task, ["--config", recipe, "--trainer.devices", devices, "--output_dir", output, *many])
    if role == "stopped":
        with interrupted_in_second_epoch(MODULES[task]):
            cli.run(run)
        return
    report = cli.run(run)
    world = dist.get_world_size() if dist.is_initialized() else 1
    if report is not None:
        (Path(output) / "told.json").write_text(json.dumps({"world": world, "report": report}))


if __name__ == "__main__":
    main()
