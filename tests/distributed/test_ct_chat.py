"""GRPO on a CT-CHAT: one process, DDP, ZeRO-2 and ZeRO-3 train equally, and a killed run resumes exactly.

The runs use LoRA with a trained projector, a KL term, gradient accumulation, one volume per row, and a reward with an
encoder. These tests fail if the processes cannot start.
"""

import json
import subprocess
import time
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file
from tiny_ct_chat import save_tiny_ct_chat, save_volumes
from tiny_labeler import save_tiny_labeler

from tests.distributed.runs import TORCHRUN, WORKER, Launcher, Run, assert_same_weights, environment

pytestmark = pytest.mark.distributed

REPORTS = ["edema", "edema effusion", "nodule", "normal", "effusion nodule", "heart", "lungs"]
STEPS = 4


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    root = tmp_path_factory.mktemp("ct_chat")
    save_volumes(root / "volumes", 2 * len(REPORTS))
    rows = [{"impression": report, "volume": f"volumes/study_{index}.npz"} for index, report in enumerate(REPORTS * 2)]
    (root / "reports.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "model_name_or_path": str(save_tiny_ct_chat(root / "policy")),
        "dataset": str(root / "reports.jsonl"),
        "image_column": "volume",
        "reference_column": "impression",
        "prompt_template": "report <report_generation>",
        "heldout_fraction": 0.25,
        "heldout_batch_size": 2,
        "rewards": [{"name": "crg", "labeler": f"radbert:{save_tiny_labeler(root / 'labeler')}", "prior": 0.4}],
        "use_peft": True,
        "lora_r": 4,
        # One process drops other numbers than two.
        "lora_dropout": 0.0,
        "lora_target_modules": ["q_proj", "v_proj", "down_proj"],
        "lora_modules_to_save": ["mm_projector"],
        "beta": 0.1,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "max_steps": STEPS,
        "save_steps": 2,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 6,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
    }
    return Launcher(root, config)


@pytest.fixture(scope="module")
def zero3(launch: Launcher) -> Run:
    return launch("zero3", stage=3)


@pytest.fixture(scope="module", params=["ddp", "ZeRO-2", "one process"])
def other(request: pytest.FixtureRequest, launch: Launcher, zero3: Run) -> Run:
    if request.param == "ddp":
        return launch("ddp")
    if request.param == "ZeRO-2":
        return launch("zero2", stage=2)
    # Each process has its own random numbers, so the single process gets the samples of the two.
    return launch("one", "--per_device_train_batch_size", "8", processes=1, replay=zero3)


def test_the_policy_learns_from_rewards_that_differ(zero3: Run) -> None:
    assert [rank["distributed"] for rank in zero3.ranks] == ["DEEPSPEED"] * 2
    assert len(zero3.steps()) == STEPS
    assert all(len(set(values)) > 2 for values in zero3.by_step("values"))
    assert all(step["grad_norm"] > 0 for step in zero3.steps())
    assert [step["kl"] > 0 for step in zero3.steps()] == [False, True, True, True]
    for call in (call for rank in zero3.ranks for call in rank["calls"]):
        # PEFT looks at these weights' type, for which they are gathered and kept; they are small.
        assert all("lora_A" in name for name in call["whole"]), call["whole"]
        assert call["model_empty"] == [False]


def test_every_way_of_training_is_the_same(other: Run, zero3: Run) -> None:
    for key in ("completions", "references", "values"):
        assert other.by_step(key) == zero3.by_step(key), key
    # The logged term is a mean of micro-batches' means, and one process has other micro-batches.
    for key in ("reward", "rewards/crg/mean", "grad_norm", *(["kl"] if len(other.ranks) == 2 else [])):
        found, expected = ([step[key] for step in run.steps()] for run in (other, zero3))
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-7), key
    assert_same_weights(other, zero3)


def test_adapter_and_projector_are_saved(zero3: Run) -> None:
    adapter = zero3.weights()
    start = load_file(zero3.folder.parent / "policy" / "model.safetensors")
    assert any(value.any() for name, value in adapter.items() if "lora_B" in name)
    projector = {name: value for name, value in adapter.items() if "mm_projector" in name}
    assert len(projector) == 14
    for name, value in projector.items():
        before = start[name.removeprefix("base_model.model.")]
        assert value.shape == before.shape
        assert not value.equal(before), name


def test_held_out_reports_depend_on_their_volumes(zero3: Run) -> None:
    assert zero3.heldout("after") != zero3.heldout("images_of_others")
    assert len(set(zero3.heldout("before"))) > 1


def test_a_killed_run_goes_on_to_the_same_curve(launch: Launcher, zero3: Run) -> None:
    options = ["--save_steps", "1", "--resume_from_checkpoint", "auto"]
    command = [*TORCHRUN, "2", str(WORKER), *launch.prepare("killed", *options, stage=3)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as launcher:  # fmt: skip
        folder = launch.root / "killed"
        wait_for(lambda: (folder / "checkpoint-2" / "trainer_state.json").is_file(), launcher)
        kill(launcher)
    assert not (folder / "history.json").exists(), "the run was done before it was killed"
    # The remains of a kill during a write.
    (folder / f"checkpoint-{STEPS - 1}").mkdir(exist_ok=True)
    (folder / f"checkpoint-{STEPS - 1}" / "trainer_state.json").unlink(missing_ok=True)
    resumed = launch("killed", *options, stage=3)
    assert [step["step"] for step in resumed.steps()] == list(range(1, STEPS + 1))
    assert 0 < len(resumed.ranks[0]["calls"]) < STEPS
    for key in ("reward", "grad_norm", "kl", "completions/mean_length"):
        assert [step[key] for step in resumed.steps()] == pytest.approx([step[key] for step in zero3.steps()], rel=1e-6)
    assert_same_weights(resumed, zero3)


def kill(launcher: "subprocess.Popen[bytes]") -> None:
    """End the launcher and its processes, as a machine that fails does."""
    # The launcher starts each process in a session of its own, which a signal to its group would not reach.
    processes = psutil.Process(launcher.pid).children(recursive=True)
    for process in (launcher, *processes):
        process.kill()
    launcher.wait()
    while any(map(runs, processes)):
        time.sleep(0.01)


def runs(process: psutil.Process) -> bool:
    """Whether a process is running. A zombie, for which its parent has not waited, has ended."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for(done: Any, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert process.poll() is None, (process.stdout.read() if process.stdout else b"")[-4000:]
        assert time.monotonic() < deadline, "the run wrote no checkpoint"
        time.sleep(0.01)
