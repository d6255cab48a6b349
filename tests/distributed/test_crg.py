"""CRG metrics in real processes: every process computes the value of one process, however reports are distributed."""

from typing import Any

import pytest
from label_judge import LabelJudge
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from words import WordLabeler

from rrg_rewards.labelers import JudgeLabeler
from rrg_rewards.metrics import CRGScore, MultiLevelCRGScore, ReportCRG
from tests.distributed.helpers import run_distributed
from tests.distributed.shares import WHOLE, exercise, feed, picked, rows_of

pytestmark = pytest.mark.filterwarnings("ignore:crg. the judge failed")

KINDS = ("pooled", "per label", "levels", "text", "macro", "macro levels", "macro text", "levels of text", "judge text")
REPORTS = ["Effusion.", "A nodule and a hernia.", "Normal.", "", "Nodule, effusion.", "Hernia."]


def make(kind: str) -> Metric:
    metrics = {
        "pooled": lambda: CRGScore(3),
        "per label": lambda: CRGScore(3, per_label=True),
        "levels": lambda: MultiLevelCRGScore([3, 3]),
        "text": lambda: ReportCRG(WordLabeler()),
        "macro": lambda: CRGScore(3, average="macro", min_prevalence=0.3),
        "macro levels": lambda: MultiLevelCRGScore([3, 3], average="macro"),
        "macro text": lambda: ReportCRG(WordLabeler(), average="macro"),
        "levels of text": lambda: ReportCRG(levels=("abnormality", "side")),
        "judge text": lambda: ReportCRG(JudgeLabeler("ct_rate", LabelJudge({"hernia": "inconsistent"}))),
    }
    made: Metric = metrics[kind]()
    return made


def batch(kind: str, rows: slice, seed: int) -> tuple[Any, Any]:
    """Return rows of a corpus that is the same in all processes, in the metric's form."""
    preds, target = picked(REPORTS, rows, seed)
    if kind.endswith("text"):
        # Sides differ from report to report.
        sides = {text: f"{'Right' if place % 2 else 'Left'} {text.lower()}" for place, text in enumerate(REPORTS)}
        if kind == "levels of text":
            return [sides[text] for text in preds], [sides[text] for text in target]
        return preds, target
    labels: tuple[Tensor, Tensor] = (WordLabeler()(preds), WordLabeler()(target))
    return ([labels[0], labels[1]], [labels[1], labels[1]]) if kind.endswith("levels") else labels


def updates(kind: str) -> Any:
    return lambda metric, rows, seed: metric.update(*batch(kind, rows, seed))


def results(kind: str, metric: Metric) -> dict[str, Any]:
    found: dict[str, Any] = {"compute": metric.compute().item()}
    found["statistics"] = {name: value.item() for name, value in metric.statistics().items()}
    if kind not in ("pooled", "levels", "macro levels"):
        found["label_statistics"] = {name: value.tolist() for name, value in metric.label_statistics().items()}
    if kind == "judge text":
        found["failures"] = {name: value.item() for name, value in metric.failure_counts().items()}
    if kind.endswith("levels") or kind == "levels of text":
        found["levels"] = metric.level_scores().tolist()
    return found


def exercise_one(kind: str, rows: slice) -> dict[str, Any]:
    found = exercise(lambda: make(kind), rows, updates(kind), lambda metric: results(kind, metric))
    metric = feed(make(kind), rows, updates(kind))
    metric.sync()
    metric.statistics()
    found["synced by hand"] = metric._is_synced
    metric.unsync(should_unsync=metric._is_synced)
    collection = feed(MetricCollection({"a": make(kind), "b": make(kind)}), rows, updates(kind))
    found["collection"] = {name: value.item() for name, value in collection.compute().items()}
    fresh = make(kind)
    found["forward"] = fresh(*batch(kind, rows, 0)).item()
    found["after forward"] = results(kind, fresh)
    return found


def exercise_all(rank: int, world_size: int) -> dict[str, dict[str, dict[str, Any]]]:
    return {share: {kind: exercise_one(kind, rows) for kind in KINDS} for share, rows in rows_of(rank, world_size)}


@pytest.fixture(
    scope="module",
    params=[2, pytest.param(3, marks=pytest.mark.distributed)],
    ids=lambda world_size: f"{world_size} processes",
)
def by_rank(request: pytest.FixtureRequest) -> list[dict[str, dict[str, dict[str, Any]]]]:
    """Return the results of each process; the processes run once for all tests."""
    return run_distributed(exercise_all, request.param)


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    """Return the results of one process with all rows."""
    return {kind: exercise_one(kind, WHOLE) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "use",
    ["first", "repeated", "cloned", "unpickled", "after reset", "collection", "after forward"],
)
def test_equals_one_process(by_rank: Any, alone: Any, kind: str, use: str) -> None:
    for rank, shares in enumerate(by_rank):
        for share, found in shares.items():
            # Equal and not close: counters are added before anything is divided. repr takes NaN for equal to NaN.
            assert repr(found[kind][use]) == repr(alone[kind][use]), (rank, share)


def test_a_sync_by_hand_outlives_statistics(by_rank: Any) -> None:
    assert all(found[kind]["synced by hand"] for shares in by_rank for found in shares.values() for kind in KINDS)


# A process without rows has no value of its own.
@pytest.mark.filterwarnings("ignore:CRG.*is undefined", "ignore:The ``compute`` method")
@pytest.mark.parametrize("kind", KINDS)
def test_forward_gives_the_processes_own_batch(by_rank: Any, kind: str) -> None:
    for rank, shares in enumerate(by_rank):
        for share, found in shares.items():
            rows = dict(rows_of(rank, len(by_rank)))[share]
            own = feed(make(kind), rows, updates(kind)).compute().item()
            assert repr(found[kind]["forward"]) == repr(own), (rank, share)


def test_data_tell_processes_apart() -> None:
    """If every share had the value of the whole, the tests above would pass without any sync."""
    whole, share = (feed(make("text"), rows, updates("text")).compute() for rows in (WHOLE, slice(0, 12)))
    assert whole != share
