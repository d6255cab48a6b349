"""The share of rewards in the time of a run."""

from types import SimpleNamespace

import pytest

from rrg_rewards.rewards import overlap
from rrg_rewards.rewards.overlap import RewardClock


@pytest.mark.parametrize("seconds", [0.02, 0.005])
def test_reward_clock_leaves_out_the_first_batch(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now, shares = [0.0], []
    monkeypatch.setattr(overlap, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    clock = RewardClock()
    for batch in range(9):
        if clock.count_batch():
            shares.append(clock.share)
        with clock.timed():
            now[0] += seconds if batch else 10.0
        now[0] += 1 - seconds
    assert shares == [pytest.approx(seconds)]
