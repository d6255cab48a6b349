"""Running moments compared with NumPy, in one process and in several."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.rewards.compose import RunningMoments
from tests.distributed.helpers import run_distributed

numbers = st.floats(-1e6, 1e6)


@given(st.lists(st.lists(numbers, max_size=5), min_size=1, max_size=5))
def test_equal_those_of_all_values_at_once(batches):
    moments = RunningMoments()
    for batch in batches:
        moments.add(batch)
    values = [value for batch in batches for value in batch]
    assert moments.count == len(values)
    if values:
        assert moments.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    if len(values) > 1 and np.std(values) > 1e-6:
        assert moments.deviation == pytest.approx(np.std(values, ddof=1), rel=1e-6)


def test_large_values_that_hardly_differ():
    moments = RunningMoments()
    for value in (1e9, 1e9 + 1, 1e9 + 2):
        moments.add([value])
    assert moments.deviation == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("values", [[], [3.0], [2.0, 2.0, 2.0]])
def test_nothing_to_scale_by(values):
    moments = RunningMoments()
    moments.add(values)
    assert moments.deviation == 1.0


BATCHES = [[1.0, 2.0], [], [10.0, -3.0, 4.5]], [[7.0], [0.25], []]


def share(rank: int, world_size: int) -> tuple[list[tuple[int, float, float]], str]:
    moments = RunningMoments()
    seen = []
    for batch in BATCHES[rank]:
        moments.add(batch)
        before = (moments.count, moments.mean, moments.deviation)
        moments.synchronize()
        seen += [before, (moments.count, moments.mean, moments.deviation)]
    try:
        for _ in range(200):
            moments.add([0.0])
    except RuntimeError as error:
        return seen, str(error)
    return seen, ""


def test_processes_scale_alike():
    (first, error), (second, _) = run_distributed(share, 2)
    # Bit-equal, and without values that are not shared.
    assert first == second
    assert [count for count, _, _ in first] == [0, 3, 3, 4, 4, 7]
    values = [value for batches in BATCHES for batch in batches for value in batch]
    assert first[-1][1:] == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert "TrainerRewardStateCallback" in error
