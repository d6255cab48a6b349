"""BLEU, ROUGE-L and CIDEr of COCO captions in real processes: values equal those of one process with all reports."""

import random
import warnings
from typing import Any

import pytest

from rrg_rewards.metrics import make_metric
from tests.distributed.helpers import run_distributed
from tests.distributed.shares import ROWS, SHARES, WHOLE, assert_same, exercise, feed, rows_of

pytestmark = pytest.mark.distributed

NAMES = ["coco_bleu", "coco_rouge", "cider"]
WORDS = ["no", "small", "left", "right", "effusion", "mass", "nodule", "in", "the", "lower", "lobe", "is", "seen"]


def batch(rows: slice, seed: int) -> tuple[list[str | None], list[str | None]]:
    """Return rows of a corpus that is the same in all processes; some cannot be scored."""
    draw = random.Random(seed)
    preds, target = ([" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(ROWS)] for _ in range(2))
    return [None, *preds[1:]][rows], [*target[:-1], " "][rows]


def make(name: str) -> Any:
    return make_metric(name, **({"n_gram": 2} if name == "coco_bleu" else {}))


def update(metric: Any, rows: slice, seed: int) -> None:
    metric.update(*batch(rows, seed))


def results(metric: Any) -> dict[str, float]:
    value = metric.compute()
    return {"compute": float(value), "part": float(metric.statistics().get("bleu_1", value))}


def exercise_all(rank: int, world_size: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    return {
        share: {name: exercise(lambda name=name: make(name), rows, update, results) for name in NAMES}
        for share, rows in rows_of(rank, world_size)
    }


@pytest.mark.parametrize("world_size", SHARES)
def test_coco_metrics_of_processes_are_those_of_one(world_size: int) -> None:
    alone = {name: exercise(lambda name=name: make(name), WHOLE, update, results) for name in NAMES}
    by_rank = run_distributed(exercise_all, world_size)
    for rank, shares in enumerate(by_rank):
        for share, found in shares.items():
            assert_same(found, alone, (rank, share))


def test_data_tell_processes_apart() -> None:
    """If every share had the values of the whole, the test above would pass without any sync."""
    for name in NAMES:
        whole, share = (feed(make(name), rows, update).compute() for rows in (WHOLE, slice(0, 12)))
        assert abs(whole - share) > 1e-3
