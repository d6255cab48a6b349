"""BLEU, ROUGE-L and CIDEr of COCO captions in real processes: values equal those of one process with all reports."""

import pickle
import random
import warnings
from typing import Any

import pytest

from rrg_rewards.metrics import make_metric
from tests.distributed.helpers import run_distributed

pytestmark = pytest.mark.distributed

NAMES = ["coco_bleu", "coco_rouge", "cider"]
ROWS = 24
# Number of rows of each process.
SHARES = {
    2: {"even": (12, 12), "uneven": (19, 5), "last empty": (24, 0), "first empty": (0, 24)},
    3: {"even": (8, 8, 8), "uneven": (3, 20, 1), "two empty": (0, 24, 0)},
}
WORDS = ["no", "small", "left", "right", "effusion", "mass", "nodule", "in", "the", "lower", "lobe", "is", "seen"]


def batch(rows: slice, seed: int) -> tuple[list[str | None], list[str | None]]:
    """Return rows of a corpus that is the same in all processes; some cannot be scored."""
    draw = random.Random(seed)
    preds, target = ([" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(ROWS)] for _ in range(2))
    return [None, *preds[1:]][rows], [*target[:-1], " "][rows]


def feed(metric: Any, rows: slice, seed: int = 0) -> Any:
    """Update a metric with its rows in two batches; a process without rows never calls update."""
    middle = (rows.start + rows.stop) // 2
    for part in (slice(rows.start, middle), slice(middle, rows.stop)):
        if part.start < part.stop:
            metric.update(*batch(part, seed))
    return metric


def exercise(name: str, rows: slice) -> dict[str, float]:
    """Use a metric in every way, in the same order in all processes."""
    metric = feed(make_metric(name, **({"n_gram": 2} if name == "coco_bleu" else {})), rows)
    found = {"first": metric.compute(), "repeated": metric.compute(), "cloned": metric.clone().compute()}
    found["unpickled"] = pickle.loads(pickle.dumps(metric)).compute()
    found["part"] = metric.statistics().get("bleu_1", found["first"])
    metric.reset()
    found["after reset"] = feed(metric, rows, seed=1).compute()
    return {use: float(value) for use, value in found.items()}


def exercise_all(rank: int, world_size: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    found = {}
    for share, lengths in SHARES[world_size].items():
        start = sum(lengths[:rank])
        found[share] = {name: exercise(name, slice(start, start + lengths[rank])) for name in NAMES}
    return found


@pytest.mark.parametrize("world_size", SHARES)
def test_coco_metrics_of_processes_are_those_of_one(world_size: int) -> None:
    alone = {name: exercise(name, slice(0, ROWS)) for name in NAMES}
    by_rank = run_distributed(exercise_all, world_size)
    for rank, shares in enumerate(by_rank):
        for share, found in shares.items():
            for name in NAMES:
                assert found[name] == pytest.approx(alone[name], rel=1e-12), (rank, share, name)


def test_data_tell_processes_apart() -> None:
    """If every share had the values of the whole, the test above would pass without any sync."""
    for name in NAMES:
        whole, share = (exercise(name, rows)["first"] for rows in (slice(0, ROWS), slice(0, 12)))
        assert abs(whole - share) > 1e-3
