"""The recipe under DeepSpeed on real processes, with a reward that holds a model: as without DeepSpeed, to the digit.

A machine that cannot start the processes fails these tests.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tiny_labeler import save_tiny_labeler
from tiny_policy import save_tiny_policy

from rrg_rewards.labelers import RadBertLabeler
from rrg_rewards.metrics import ReportCRG
from tests.distributed.helpers import launch_and_wait

HERE = Path(__file__).parent
REPORTS = ["edema", "edema effusion", "nodule", "normal", "effusion nodule", "heart"]
PRIOR = 0.4
STEPS = 3


@dataclass(frozen=True)
class Run:
    folder: Path
    ranks: list[dict[str, Any]]

    def steps(self) -> list[dict[str, Any]]:
        return [entry for entry in self.ranks[0]["history"] if "reward" in entry]

    def saw(self) -> list[list[list[Any]]]:
        """Completions and rewards by process and step."""
        return [[[call["completions"], call["values"]] for call in rank["calls"]] for rank in self.ranks]

    def by_step(self, key: str) -> list[list[Any]]:
        """What the reward was given or gave, of all processes together."""
        steps = zip(*(rank["calls"] for rank in self.ranks), strict=True)
        return [[row for call in calls for row in call[key]] for calls in steps]

    def weights(self) -> dict[str, torch.Tensor]:
        return load_file(self.folder / "model.safetensors")

    def heldout(self, stage: str) -> list[str]:
        lines = (self.folder / f"heldout_{stage}.jsonl").read_text().splitlines()
        return [json.loads(line)["report"] for line in lines]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Run the recipe: by torchrun, or with no number of processes, by itself."""
    root = tmp_path_factory.mktemp("deepspeed")
    rows = [{"findings": f"lungs {report}", "impression": report} for report in REPORTS * 2]
    (root / "reports.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    labeler = save_tiny_labeler(root / "labeler")
    config = {
        "model_name_or_path": str(save_tiny_policy(root / "policy")),
        "dataset": str(root / "reports.jsonl"),
        "reference_column": "impression",
        "heldout_fraction": 0.25,
        "heldout_batch_size": 2,
        "rewards": [{"name": "crg", "labeler": f"radbert:{labeler}", "prior": PRIOR}],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "max_steps": STEPS,
        "save_steps": STEPS - 1,
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 6,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
    }
    (root / "recipe.yaml").write_text(yaml.safe_dump(config))

    def start(
        name: str, *options: str, stage: int | None = None, processes: int | None = 2, replay: Run | None = None
    ) -> Run:
        folder, notes = root / name, root / f"{name}_notes"
        notes.mkdir()
        if replay is not None:
            (notes / "replay.json").write_text(json.dumps(replay.by_step("tokens")))
        argv = ["--config", str(root / "recipe.yaml"), "--output_dir", str(folder), *options]
        if stage is not None:
            argv += ["--deepspeed", str(write_deepspeed(root / f"{name}.json", stage))]
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        command = [sys.executable, *(torchrun if processes else []), str(HERE / "deepspeed_worker.py"), str(notes)]
        launch_and_wait([*command, *argv], environment(), timeout=150)
        return Run(folder, [json.loads((notes / f"rank{rank}.json").read_text()) for rank in range(processes or 1)])

    return start


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


@pytest.fixture(scope="module")
def plain(launch: Callable[..., Run]) -> Run:
    return launch("plain")


@pytest.fixture(scope="module")
def zero3(launch: Callable[..., Run]) -> Run:
    return launch("zero3", stage=3)


@pytest.fixture(scope="module", params=[2, 3], ids=["ZeRO-2", "ZeRO-3"])
def under_zero(request: pytest.FixtureRequest, launch: Callable[..., Run]) -> Run:
    run: Run = request.getfixturevalue("zero3") if request.param == 3 else launch("zero2", stage=2)
    return run


def test_equals_training_without_deepspeed(plain: Run, under_zero: Run) -> None:
    assert [rank["distributed"] for rank in plain.ranks] == ["MULTI_CPU"] * 2
    assert [rank["distributed"] for rank in under_zero.ranks] == ["DEEPSPEED"] * 2
    assert {(rank["world_size"], rank["device"]) for rank in under_zero.ranks} == {(2, "cpu")}
    assert under_zero.saw() == plain.saw()
    assert len(under_zero.steps()) == STEPS
    for ours, expected in zip(under_zero.steps(), plain.steps(), strict=True):
        for key in ("reward", "rewards/crg/mean", "rewards/crg/std", "crg/predicted_positives"):
            assert ours[key] == expected[key], key
        assert ours["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
        assert ours["grad_norm"] > 0
    for stage in ("before", "after"):
        assert under_zero.heldout(stage) == plain.heldout(stage)
    assert_same_weights(under_zero, plain)


def assert_same_weights(first: Run, second: Run) -> None:
    weights, expected = first.weights(), second.weights()
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-6, msg=name)


def test_the_policy_is_partitioned_and_the_labeler_is_whole(plain: Run, under_zero: Run, zero3: Run) -> None:
    for run in (plain, under_zero):
        for call in (call for rank in run.ranks for call in rank["calls"]):
            assert call["empty"] == [run is zero3]
            assert call["labeler_empty"] == [False]


def test_equals_one_process_with_the_same_batches(launch: Callable[..., Run], zero3: Run) -> None:
    """Processes sample by random numbers of their own, so the one is given what the two have sampled."""
    options = ["--per_device_train_batch_size", "8"]
    one = launch("one", *options, stage=3, processes=None, replay=zero3)
    assert (one.ranks[0]["world_size"], one.ranks[0]["distributed"]) == (1, "DEEPSPEED")
    for key in ("completions", "references", "values"):
        assert one.by_step(key) == zero3.by_step(key), key
    assert [step["reward"] for step in one.steps()] == pytest.approx([step["reward"] for step in zero3.steps()])
    norms = [[step["grad_norm"] for step in run.steps()] for run in (one, zero3)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    assert_same_weights(one, zero3)


def test_rewards_are_those_of_the_metric_in_this_process(under_zero: Run) -> None:
    labeler = f"radbert:{under_zero.folder.parent / 'labeler'}"
    metric = ReportCRG(labeler, prior=PRIOR)
    assert isinstance(metric.labeler, RadBertLabeler)
    keys = ("completions", "references", "values")
    for logged, *step in zip(under_zero.steps(), *map(under_zero.by_step, keys), strict=True):
        completions, references, values = step
        assert values == metric.score(completions, references).value.tolist()
        assert logged["rewards/crg/mean"] == pytest.approx(sum(values) / len(values), rel=1e-5)
        assert len(set(values)) > 2, "rewards hardly differ: the test says little"


def test_resumes_from_a_partitioned_checkpoint(launch: Callable[..., Run], zero3: Run) -> None:
    checkpoint = zero3.folder / f"checkpoint-{STEPS - 1}"
    resumed = launch("resumed", "--resume_from_checkpoint", str(checkpoint), stage=3)
    assert [entry["step"] for entry in resumed.steps()] == list(range(1, STEPS + 1))
    assert resumed.saw() == [rank[-1:] for rank in zero3.saw()]
    assert resumed.steps()[-1]["grad_norm"] == pytest.approx(zero3.steps()[-1]["grad_norm"], rel=1e-6)
    assert_same_weights(resumed, zero3)


def test_lora_trains_and_saves_an_adapter(launch: Callable[..., Run]) -> None:
    lora = ["--use_peft", "true", "--lora_target_modules", "q_proj", "v_proj"]
    run = launch("lora", *lora, stage=3, processes=None)
    assert all(call["labeler_empty"] == [False] for call in run.ranks[0]["calls"])
    assert len(run.steps()) == STEPS
    adapter = load_file(run.folder / "adapter_model.safetensors")
    assert any(value.abs().sum() > 0 for name, value in adapter.items() if "lora_B" in name)
