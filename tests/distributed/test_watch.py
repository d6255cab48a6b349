"""The watch in several real processes: numbers, alarms and the step of the stop equal those of one process."""

import random
from typing import Any

import pytest
from words import WordLabeler

from rrg_rewards.watch import RewardWatch
from tests.distributed.helpers import run_distributed

FINDINGS = ["effusion", "nodule", "hernia", "nodule and effusion", "normal", "hernia with effusion"]
STEPS = 16


def batches() -> list[list[tuple[str, str, float | None]]]:
    """By step: completion, reference, reward. From the sixth on the policy writes one report for all."""
    draw = random.Random(0)
    steps = []
    for step in range(STEPS):
        rows: list[tuple[str, str, float | None]] = []
        for _ in range(16 if step % 3 else 15):
            reference = f"{draw.choice(FINDINGS)} and no fracture"
            completion = reference if step < 6 or draw.random() < 0.1 else "normal heart"
            # Halves add up without rounding in any order.
            rows.append((completion, reference, None if draw.random() < 0.1 else (step + draw.randint(0, 2)) / 2))
        steps.append(rows)
    return steps


def watch_share(rank: int, world_size: int, spread: str) -> dict[str, Any]:
    watch = RewardWatch(
        labeler=WordLabeler(), block_reports=12, baseline_reports=72, window_reports=72, stop=["normal_reports"]
    )
    stopped_at = None
    for step, rows in enumerate(batches()):
        if spread == "even":
            own = rows[rank::world_size]
        elif spread == "uneven":
            own = rows[: 2 * len(rows) // 3] if rank == 0 else rows[2 * len(rows) // 3 :] if rank == 1 else []
        else:
            own = rows if rank == 0 else []
        # In several batches of a step, or in none at all.
        for start in range(0, len(own), 5):
            part = own[start : start + 5]
            watch.observe(
                [row[0] for row in part],
                [row[1] for row in part],
                rewards={"r": [row[2] for row in part]},
                judge_failures={"r": sum(row[2] is None for row in part)},
            )
        watch.step(step)
        if watch.should_stop and stopped_at is None:
            stopped_at = step
    history = watch.history()
    return {"blocks": history["blocks"], "alarms": history["alarms"], "stopped_at": stopped_at}


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return watch_share(0, 1, "even")


@pytest.mark.parametrize(
    ("world_size", "spread"),
    [(2, "even"), (2, "one rank has all"), pytest.param(3, "uneven", marks=pytest.mark.distributed)],
)
def test_processes_know_what_one_would(alone: dict[str, Any], world_size: int, spread: str) -> None:
    results = run_distributed(watch_share, world_size, spread)
    # Labels' F1 are thirds, which are added in another order.
    for result in results:
        assert result == results[0]
        assert result["stopped_at"] == alone["stopped_at"] is not None
        assert [alarm["cause"] for alarm in result["alarms"]] == [alarm["cause"] for alarm in alone["alarms"]]
        for block, expected in zip(result["blocks"], alone["blocks"], strict=True):
            assert block.keys() == expected.keys()
            for name, values in expected["sums"].items():
                rounded = "label_f1" in name
                assert block["sums"][name] == (pytest.approx(values, rel=1e-12) if rounded else values), name
