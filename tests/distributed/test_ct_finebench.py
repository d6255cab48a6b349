"""CT-FineBench in real processes: scores and tables equal those of one process, for any distribution of the reports."""

import warnings
from typing import Any

import pytest
from exam_judge import ExamJudge
from torchmetrics import MetricCollection

from rrg_rewards.metrics import CTFineBench
from tests.distributed.helpers import run_distributed
from tests.distributed.shares import ROWS, SHARES, WHOLE, assert_same, exercise, feed, picked, rows_of

pytestmark = pytest.mark.distributed

REPORTS = [
    "Nodule of 8 mm in the left upper lobe.",
    "Nodule of 10 mm in the right upper lobe. Small left pleural effusion.",
    "Small left pleural effusion.",
    "Large right pleural effusion. Atelectasis in the right lower lobe.",
    "Normal chest CT.",
    "",
    None,
]
FAILURES: dict[str, Any] = {"10 mm": "deadline", "Large": "malformed"}
ITEM = {
    "finding": "Lung nodule",
    "attribute": "size",
    "question": "What is the size of the nodule?",
    "answer": "9 mm",
    "answer_type": "numeric",
}
COLUMN = [[ITEM], [], None, [ITEM, {**ITEM, "answer": "20 mm"}]]


def make(mode: str, judged: bool, failing_rank: int | None = None) -> CTFineBench:
    # If only one process's judge fails, it fails on every report.
    fail_on: Any = FAILURES if failing_rank is None else {"": "status"}
    answerer: Any = ExamJudge(True, fail_on, failing_rank) if judged else "engine"
    return CTFineBench(mode=mode, answerer=answerer)  # type: ignore[arg-type]


def update(metric: Any, rows: slice, seed: int, **context: Any) -> None:
    metric.update(*picked(REPORTS, rows, seed), **context)


def update_with_items(metric: Any, rows: slice, seed: int) -> None:
    update(metric, rows, seed, items=[COLUMN[row % len(COLUMN)] for row in range(ROWS)][rows])


def results(metric: CTFineBench) -> dict[str, Any]:
    return {
        "compute": metric.compute().item(),
        "counts": {name: value.item() for name, value in metric.counts().items()},
        "statistics": {name: value.item() for name, value in metric.statistics().items()},
        "tables": metric.tables(),
    }


def exercise_one(rows: slice, mode: str, judged: bool) -> dict[str, Any]:
    found = exercise(lambda: make(mode, judged), rows, update, results)
    collection = feed(MetricCollection({"a": make(mode, judged), "b": make(mode, False)}), rows, update)
    found["collection"] = {name: value.item() for name, value in collection.compute().items()}
    if mode != "precision":
        found["with items"] = results(feed(make(mode, judged), rows, update_with_items))
    return found


def exercise_all(rank: int, world_size: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for share, rows in rows_of(rank, world_size):
        found[share] = {case: exercise_one(rows, *case) for case in CASES}
        # Only the judge of the last process fails.
        metric = feed(make("f1", True, failing_rank=world_size - 1), rows, update)
        found[share]["last"] = results(metric)
    return found


CASES = [("recall", False), ("recall", True), ("precision", False), ("f1", True)]


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
def test_equals_one_process(by_rank: Any, alone: Any, case: Any) -> None:
    for rank, shares in enumerate(by_rank):
        for share in SHARES[len(by_rank)]:
            assert_same(shares[share][case], alone[case], (rank, share))


def test_all_processes_have_the_same(by_rank: Any) -> None:
    first, *others = by_rank
    for other in others:
        for share in SHARES[len(by_rank)]:
            for case in CASES:
                # As texts: NaN equals nothing.
                assert str(other[share][case]) == str(first[share][case])


@pytest.mark.filterwarnings("ignore:ct_finebench. the judge failed", "ignore:The ``compute`` method")
def test_a_judge_that_fails_on_one_process(by_rank: Any) -> None:
    for share, lengths in SHARES[len(by_rank)].items():
        before = ROWS - lengths[-1]
        metric = feed(make("f1", False), slice(0, before), update)
        metric.examiner = make("f1", True, failing_rank=0).examiner
        expected = results(feed(metric, slice(before, ROWS), update))
        failed = sum(value for name, value in expected["counts"].items() if name.startswith("failed_"))
        assert (failed > 0) == (lengths[-1] > 0), "the judge fails where there are reports"
        for rank, shares in enumerate(by_rank):
            assert_same(shares[share]["last"], expected, (rank, share))


def test_data_tell_processes_apart() -> None:
    """If every share had the values of the whole, the tests above would pass without any sync."""
    whole, share = (feed(make("f1", False), rows, update) for rows in (WHOLE, slice(0, 12)))
    assert whole.compute() != share.compute()
    assert whole.tables() != share.tables()
    assert len(whole.tables()["finding"]) > 1
