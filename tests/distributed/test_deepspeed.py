"""The recipe under DeepSpeed in real processes, with a reward that has a model, equals the run without DeepSpeed.

These tests fail if the processes cannot start.
"""

import json

import pytest
from safetensors.torch import load_file
from tiny_labeler import save_tiny_labeler
from tiny_policy import save_tiny_policy

from rrg_rewards.labelers import RadBertLabeler
from rrg_rewards.metrics import ReportCRG
from tests.distributed.runs import TINY_RUN, Launcher, Run, assert_same_weights

pytestmark = pytest.mark.distributed

REPORTS = ["edema", "edema effusion", "nodule", "normal", "effusion nodule", "heart"]
PRIOR = 0.4
STEPS = 3


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
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
        **TINY_RUN,
        "max_steps": STEPS,
        "save_steps": STEPS - 1,
    }
    return Launcher(root, config)


@pytest.fixture(scope="module")
def plain(launch: Launcher) -> Run:
    return launch("plain")


@pytest.fixture(scope="module")
def zero3(launch: Launcher) -> Run:
    return launch("zero3", stage=3)


@pytest.fixture(scope="module", params=[2, 3], ids=["ZeRO-2", "ZeRO-3"])
def under_zero(request: pytest.FixtureRequest, launch: Launcher) -> Run:
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


def test_the_policy_is_partitioned_and_the_labeler_is_whole(plain: Run, under_zero: Run, zero3: Run) -> None:
    for run in (plain, under_zero):
        for call in (call for rank in run.ranks for call in rank["calls"]):
            assert bool(call["whole"]) == (run is not zero3)
            assert call["model_empty"] == [False]


def test_equals_one_process_with_the_same_batches(launch: Launcher, zero3: Run) -> None:
    """Each process has its own random numbers, so the single process gets the samples of the two."""
    options = ["--per_device_train_batch_size", "8"]
    one = launch("one", *options, stage=3, processes=1, replay=zero3)
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


def test_resumes_from_a_partitioned_checkpoint(launch: Launcher, zero3: Run) -> None:
    checkpoint = zero3.folder / f"checkpoint-{STEPS - 1}"
    resumed = launch("resumed", "--resume_from_checkpoint", str(checkpoint), stage=3)
    assert [entry["step"] for entry in resumed.steps()] == list(range(1, STEPS + 1))
    assert resumed.saw() == [rank[-1:] for rank in zero3.saw()]
    assert resumed.steps()[-1]["grad_norm"] == pytest.approx(zero3.steps()[-1]["grad_norm"], rel=1e-6)
    assert_same_weights(resumed, zero3)


def test_lora_trains_and_saves_an_adapter(launch: Launcher) -> None:
    lora = ["--use_peft", "true", "--lora_target_modules", "q_proj", "v_proj"]
    run = launch("lora", *lora, stage=3, processes=1)
    assert all(call["model_empty"] == [False] for call in run.ranks[0]["calls"])
    assert len(run.steps()) == STEPS
    adapter = load_file(run.folder / "adapter_model.safetensors")
    assert any(value.abs().sum() > 0 for name, value in adapter.items() if "lora_B" in name)
