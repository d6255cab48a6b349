"""Runs of a recipe in separate processes, with a record of the calls of its rewards."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file
from tiny_policy import save_tiny_policy

from tests.distributed.helpers import run_script

HERE = Path(__file__).parent
WORKER = HERE / "recipe_worker.py"
REPORTS = ["edema", "edema effusion", "nodule", "normal", "effusion nodule", "heart"]
LABELER = "keywords:edema effusion nodule"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]
# Settings of a run with fast steps.
TINY_RUN: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "per_device_train_batch_size": 4,
    "num_generations": 4,
    "max_completion_length": 6,
    "learning_rate": 1e-3,
    "logging_steps": 1,
    "report_to": "none",
    "disable_tqdm": True,
}


def tiny_recipe(folder: Path, **settings: Any) -> dict[str, Any]:
    """Write a policy and a table of reports; return a recipe with them and further settings."""
    rows = [{"findings": f"lungs {report}", "impression": report} for report in REPORTS * 2]
    (folder / "reports.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "model_name_or_path": str(save_tiny_policy(folder / "policy")),
        "dataset": str(folder / "reports.jsonl"),
        "reference_column": "impression",
        **settings,
    }


@dataclass(frozen=True)
class Run:
    folder: Path
    ranks: list[dict[str, Any]]

    def steps(self) -> list[dict[str, Any]]:
        return [entry for entry in self.ranks[0]["history"] if "reward" in entry]

    def saw(self) -> list[list[list[Any]]]:
        """Return completions and rewards by process and step."""
        return [[[call["completions"], call["values"]] for call in rank["calls"]] for rank in self.ranks]

    def by_step(self, key: str) -> list[list[Any]]:
        """Return one input or output of the reward by step, of all processes together."""
        steps = zip(*(rank["calls"] for rank in self.ranks), strict=True)
        return [[row for call in calls for row in call[key]] for calls in steps]

    def weights(self) -> dict[str, torch.Tensor]:
        (file,) = self.folder.glob("*model.safetensors")
        return load_file(file)

    def heldout(self, stage: str) -> list[str]:
        lines = (self.folder / f"heldout_{stage}.jsonl").read_text().splitlines()
        return [json.loads(line)["report"] for line in lines]


def assert_same_weights(first: Run, second: Run) -> None:
    weights, expected = first.weights(), second.weights()
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-6, msg=name)


class Launcher:
    """Runs a recipe below a folder: in processes as torchrun starts them, or in one without it."""

    def __init__(self, root: Path, config: dict[str, Any]) -> None:
        self.root = root
        (root / "recipe.yaml").write_text(yaml.safe_dump(config))

    def __call__(
        self, name: str, *options: str, stage: int | None = None, processes: int = 2, replay: Run | None = None
    ) -> Run:
        run_script(WORKER, *self.prepare(name, *options, stage=stage, replay=replay), processes=processes)
        return self.recorded(name, processes)

    def recorded(self, name: str, processes: int) -> Run:
        """Return a run that has ended."""
        notes = self.root / f"{name}_notes"
        return Run(
            self.root / name, [json.loads((notes / f"rank{rank}.json").read_text()) for rank in range(processes)]
        )

    def prepare(self, name: str, *options: str, stage: int | None = None, replay: Run | None = None) -> list[str]:
        """Return the arguments of the worker of a run."""
        notes = self.root / f"{name}_notes"
        notes.mkdir(exist_ok=True)
        if replay is not None:
            (notes / "replay.json").write_text(json.dumps(replay.by_step("tokens")))
        argv = ["--config", str(self.root / "recipe.yaml"), "--output_dir", str(self.root / name), *options]
        if stage is not None:
            argv += ["--deepspeed", str(write_deepspeed(self.root / f"{name}.json", stage))]
        return [str(notes), *argv]


def write_deepspeed(path: Path, stage: int) -> Path:
    settings = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_optimization": {
            "stage": stage,
            # A policy of this size would stay whole on every process.
            "stage3_param_persistence_threshold": 0,
            "stage3_gather_16bit_weights_on_model_save": True,
        },
    }
    path.write_text(json.dumps(settings))
    return path


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(HERE.parent / "helpers"), os.environ.get("PYTHONPATH", "")])
    ours = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    launched = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return {**{name: value for name, value in os.environ.items() if name not in launched}, **ours}
