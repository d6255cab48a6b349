"""CRIMSON in real processes: totals equal those of one process, however reports and failures are distributed."""

import warnings
from typing import Any

import pytest
from scripted_judge import ScriptedJudge
from torchmetrics import MetricCollection

from rrg_rewards.judges import CascadeJudge
from rrg_rewards.metrics import CRIMSON
from tests.distributed.helpers import run_distributed
from tests.distributed.shares import ROWS, SHARES, WHOLE, assert_same, exercise, feed, picked, rows_of

pytestmark = pytest.mark.distributed

REPORTS = ["Left effusion.", "Right effusion.", "Nodule, scar.", "Edema. Pneumothorax.", "Quorblid.", "", None]
FAILURES: dict[str, dict[str, Any]] = {
    "none": {},
    "some": {"Edema": "deadline", "scar": "malformed"},
    "all": {"": "status"},
    "cascade": {"Edema": "deadline", "scar": "malformed"},
}
TRAINING = [
    "No acute abnormality.",
    "Possible 4 mm nodule in the right upper lobe.",
    "Small left pleural effusion. Cardiomegaly.",
    "Large right pneumothorax or bulla. Nodules in the right upper and left lower lobe.",
]
RULES = ["No acute abnormality.", "Small left pleural effusion.", "Large right pneumothorax. Cardiomegaly."]


def make(failures: str, waits: bool, failing_rank: int | None = None) -> CRIMSON:
    judge = ScriptedJudge(waits, FAILURES[failures], failing_rank)
    return CRIMSON(CascadeJudge(judge) if failures == "cascade" else judge)


def update(metric: Any, rows: slice, seed: int) -> None:
    metric.update(*picked(REPORTS, rows, seed), age=list(range(ROWS))[rows])


def results(metric: CRIMSON) -> dict[str, Any]:
    return {
        "compute": metric.compute().item(),
        "counts": {name: value.item() for name, value in metric.error_counts().items()},
        "statistics": {name: value.item() for name, value in metric.statistics().items()},
    }


def exercise_one(rows: slice, failures: str, waits: bool) -> dict[str, Any]:
    found = exercise(lambda: make(failures, waits), rows, update, results)
    collection = feed(MetricCollection({"a": make(failures, waits), "b": make("none", waits)}), rows, update)
    return {**found, "collection": {name: value.item() for name, value in collection.compute().items()}}


def exercise_all(rank: int, world_size: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for share, rows in rows_of(rank, world_size):
        found[share] = {case: exercise_one(rows, *case) for case in CASES}
        for failures in ("some", "all"):
            # Only the judge of the last process fails.
            metric = feed(make(failures, True, failing_rank=world_size - 1), rows, update)
            found[share][failures, "last"] = results(metric)
    rules = CRIMSON()
    rules.update(RULES[rank:], RULES[:1] * len(RULES[rank:]), age=[60] * len(RULES[rank:]))
    found["rules"] = results(rules)
    found["training"] = results(feed_training(CRIMSON(form="training"), rank, world_size))
    return found


def feed_training(metric: CRIMSON, rank: int, world_size: int) -> CRIMSON:
    """Update a metric with every ``world_size``-th of some pairs."""
    pairs = [(pred, target) for pred in TRAINING for target in TRAINING][rank::world_size]
    metric.update(*map(list, zip(*pairs, strict=True)))
    return metric


CASES = [(failures, waits) for failures in FAILURES for waits in (False, True)]


@pytest.fixture(scope="module", params=SHARES, ids=lambda world_size: f"{world_size} processes")
def by_rank(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Return the results of each process; the processes run once for all tests."""
    return run_distributed(exercise_all, request.param)


@pytest.fixture(scope="module")
def alone() -> dict[Any, dict[str, Any]]:
    """Return the results of one process with all rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case: exercise_one(WHOLE, *case) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("use", ["first", "repeated", "cloned", "unpickled", "after reset", "collection"])
def test_equals_one_process(by_rank: Any, alone: Any, case: Any, use: str) -> None:
    for rank, shares in enumerate(by_rank):
        for share in SHARES[len(by_rank)]:
            assert_same(shares[share][case][use], alone[case][use], (rank, share))


@pytest.mark.filterwarnings("ignore:crimson. the judge failed", "ignore:The ``compute`` method")
@pytest.mark.parametrize("failures", ["some", "all"])
def test_a_judge_that_fails_on_one_process(by_rank: Any, failures: str) -> None:
    for share, lengths in SHARES[len(by_rank)].items():
        before = ROWS - lengths[-1]
        metric = feed(make("none", False), slice(0, before), update)
        metric.judge = make(failures, False).judge
        expected = results(feed(metric, slice(before, ROWS), update))
        failed = sum(value for name, value in expected["counts"].items() if name.startswith("failed_"))
        assert (failed > 0) == (lengths[-1] > 0), "the judge fails where there are reports"
        for rank, shares in enumerate(by_rank):
            assert_same(shares[share][failures, "last"], expected, (rank, share))


def test_the_rules_in_processes(by_rank: Any) -> None:
    metric = CRIMSON()
    for rank in range(len(by_rank)):
        metric.update(RULES[rank:], RULES[:1] * len(RULES[rank:]), age=[60] * len(RULES[rank:]))
    for rank, shares in enumerate(by_rank):
        assert_same(shares["rules"], results(metric), (rank,))
    assert metric.error_counts()["false_findings"] > 0


def test_the_training_form_in_processes(by_rank: Any) -> None:
    metric = feed_training(CRIMSON(form="training"), 0, 1)
    for rank, shares in enumerate(by_rank):
        assert_same(shares["training"], results(metric), (rank,))
    assert metric.compute() != feed_training(CRIMSON(form="training"), 0, 2).compute(), "each process has its own pairs"
    assert 0 < metric.statistics()["training_credit"] < metric.statistics()["training_price"]


def test_data_tell_processes_apart() -> None:
    """If every share had the values of the whole, the tests above would pass without any sync."""
    whole, share = (feed(make("none", False), rows, update).compute() for rows in (WHOLE, slice(0, 12)))
    assert whole != share
