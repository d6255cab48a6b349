"""Metrics with a model in real processes: totals equal those of one process, also in a GRPO run under ZeRO-3."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny_crepe import random_pairs, save_tiny_crepe
from tiny_er2score import LORA, save_tiny_er2score
from tiny_policy import save_tiny_policy
from torchmetrics import MetricCollection

from rrg_rewards.metrics import make_metric
from tests.distributed.helpers import run_distributed
from tests.distributed.runs import TINY_RUN, Launcher, Run, assert_same_weights
from tests.distributed.shares import ROWS, SHARES, WHOLE, exercise, feed, rows_of

REPORTS = ["edema", "edema effusion", "nodule", "normal", "effusion nodule", "heart"]
WEIGHTS = {"omitted_finding": 2.0, "false_comparison": 0.5}
STEPS = 2


@dataclass(frozen=True)
class Subject:
    """A metric with a model: a function that writes the model, and the reward of a score."""

    save: Callable[[Path], Path]
    reward_of: Callable[[float], float]


SUBJECTS = {
    "crepe": Subject(lambda root: save_tiny_crepe(root / "model"), lambda score: -score),
    # The adapter is loaded on the backbone under ZeRO-3.
    "er2score": Subject(lambda root: save_tiny_er2score(root, lora=LORA), lambda score: score),
}


def batch(rows: slice, seed: int) -> tuple[list[str | None], list[str | None]]:
    """Return rows of a corpus that is the same in all processes; some cannot be scored."""
    preds, target = random_pairs(ROWS, seed, longest=20)
    return [None, *preds[1:]][rows], [*target[:-1], " "][rows]


def update(metric: Any, rows: slice, seed: int) -> None:
    metric.update(*batch(rows, seed))


def results(metric: Any) -> dict[str, float]:
    return {"compute": metric.compute().item(), **{name: mean.item() for name, mean in metric.statistics().items()}}


def exercise_one(name: str, folder: str, rows: slice) -> dict[str, dict[str, float]]:
    found = exercise(lambda: make_metric(name, model=folder, dtype="float32"), rows, update, results)
    weights = {"plain": None, "weighted": WEIGHTS}
    collection = MetricCollection(
        {use: make_metric(name, model=folder, weights=given, dtype="float32") for use, given in weights.items()}
    )
    found["collection"] = {use: value.item() for use, value in feed(collection, rows, update).compute().items()}
    return found


def exercise_all(rank: int, world_size: int, name: str, folder: str) -> dict[str, Any]:
    return {share: exercise_one(name, folder, rows) for share, rows in rows_of(rank, world_size)}


@pytest.fixture(scope="module", params=["crepe", pytest.param("er2score", marks=pytest.mark.distributed)])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> str:
    return str(SUBJECTS[name].save(tmp_path_factory.mktemp(name)))


@pytest.fixture(
    scope="module",
    params=[2, pytest.param(3, marks=pytest.mark.distributed)],
    ids=lambda world_size: f"{world_size} processes",
)
def by_rank(request: pytest.FixtureRequest, name: str, folder: str) -> list[dict[str, Any]]:
    """Return the results of each process; the processes run once for all tests."""
    return run_distributed(exercise_all, request.param, name, folder)


@pytest.fixture(scope="module")
def alone(name: str, folder: str) -> dict[str, dict[str, float]]:
    """Return the results of one process with all rows."""
    return exercise_one(name, folder, WHOLE)


@pytest.mark.parametrize("use", ["first", "repeated", "cloned", "unpickled", "after reset", "collection"])
def test_equals_one_process(by_rank: Any, alone: Any, use: str) -> None:
    for rank, shares in enumerate(by_rank):
        for share in SHARES[len(by_rank)]:
            found = shares[share][use]
            # Other batches, other rounding of float32; the sums themselves are in float64.
            assert found == pytest.approx(alone[use], rel=1e-5, abs=1e-6), (rank, share)
            assert found == by_rank[0][share][use], "processes differ"


def test_data_tell_processes_apart(name: str, folder: str) -> None:
    """If every share had the values of the whole, the tests above would pass without any sync."""
    whole, share = (
        feed(make_metric(name, model=folder, dtype="float32"), rows, update).compute() for rows in (WHOLE, slice(0, 12))
    )
    assert abs(whole - share) > 1e-3


def messages_of_two_types(rank: int, world_size: int, name: str, folder: str) -> list[str]:
    """Score in another type than the other process; return the errors of what is computed."""
    metric = make_metric(name, model=folder, dtype=("float32", "bfloat16")[rank])
    metric.update(*batch(slice(1, 4 + rank), seed=0))
    found = []
    for compute in (metric.compute, metric.statistics):
        with pytest.raises(ValueError, match="computed") as raised:
            compute()
        found.append(str(raised.value))
    return found


def test_processes_that_computed_in_different_types_all_refuse(name: str, folder: str) -> None:
    found = run_distributed(messages_of_two_types, 2, name, folder)
    (message,) = {message for messages in found for message in messages}
    assert message.startswith(f"{name} computed 3 pairs in float32 and 4 pairs in bfloat16")


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory, name: str, folder: str) -> Launcher:
    root = tmp_path_factory.mktemp(f"{name}_grpo")
    rows = [{"findings": f"lungs {report}", "impression": report} for report in REPORTS * 2]
    (root / "reports.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward = {"name": name, "model": folder, "weights": WEIGHTS, "dtype": "float32"}
    config = {
        "model_name_or_path": str(save_tiny_policy(root / "policy")),
        "dataset": str(root / "reports.jsonl"),
        "reference_column": "impression",
        "rewards": [reward],
        **TINY_RUN,
        "max_steps": STEPS,
    }
    return Launcher(root, config)


@pytest.fixture(scope="module")
def plain(launch: Launcher) -> Run:
    return launch("plain")


@pytest.fixture(scope="module")
def zero3(launch: Launcher) -> Run:
    return launch("zero3", stage=3)


@pytest.mark.distributed
@pytest.mark.parametrize("kind", ["plain", "zero3"])
def test_rewards_are_those_of_the_metric_in_this_process(
    request: pytest.FixtureRequest, kind: str, name: str, folder: str
) -> None:
    run: Run = request.getfixturevalue(kind)
    metric = make_metric(name, model=folder, weights=WEIGHTS, dtype="float32")
    keys = ("completions", "references", "values")
    assert len(run.ranks) == 2
    for logged, *step in zip(run.steps(), *map(run.by_step, keys), strict=True):
        completions, references, values = step
        scores = metric.score(completions, references)
        assert values == pytest.approx([SUBJECTS[name].reward_of(score) for score in scores.value.tolist()], abs=1e-5)
        assert logged[f"rewards/{name}/mean"] == pytest.approx(sum(values) / len(values), rel=1e-5)
        assert logged[f"{name}/omitted_finding"] == pytest.approx(
            scores.details["omitted_finding"].mean().item(), rel=1e-4, abs=1e-6
        )
        assert logged[f"{name}/unscorable"] == 0
        assert len(set(values)) > 2, "rewards hardly differ: the test says little"


@pytest.mark.distributed
def test_zero3_partitions_the_policy_and_not_the_reward_and_changes_nothing(plain: Run, zero3: Run) -> None:
    assert [rank["distributed"] for rank in zero3.ranks] == ["DEEPSPEED"] * 2
    for run in (plain, zero3):
        for call in (call for rank in run.ranks for call in rank["calls"]):
            assert bool(call["whole"]) == (run is plain)
            assert call["model_empty"] == [False]
    assert zero3.saw() == plain.saw()
    assert len(zero3.steps()) == STEPS
    assert_same_weights(zero3, plain)
