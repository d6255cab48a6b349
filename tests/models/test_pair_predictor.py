"""Batches of sequences; the predictors are tested in `tests/metrics/test_crepe.py` and `test_er2score.py`."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.models.pair_predictor import packed_batches


def cost(batches, lengths, batch_cost):
    return sum(batch_cost + len(batch) * max(lengths[row] for row in batch) for batch in batches)


def all_divisions(order):
    if not order:
        yield []
        return
    for first in range(1, len(order) + 1):
        for rest in all_divisions(order[first:]):
            yield [order[:first], *rest]


@given(st.lists(st.integers(1, 60), max_size=9), st.integers(1, 150), st.integers(0, 40))
def test_packed_batches_no_division_within_the_budget_costs_less(lengths, budget, batch_cost):
    batches = packed_batches(lengths, budget, batch_cost)

    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    allowed = [
        batches
        for batches in all_divisions(sorted(range(len(lengths)), key=lengths.__getitem__))
        if all(len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget for batch in batches)
    ]
    assert cost(batches, lengths, batch_cost) == min(cost(each, lengths, batch_cost) for each in allowed)
    assert all(len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget for batch in batches)


def test_packed_batches_the_longest_come_first():
    lengths = [5, 400, 30, 100, 200]
    longest = [max(lengths[row] for row in batch) for batch in packed_batches(lengths, 400)]
    assert all(before >= after for before, after in pairwise(longest))


@pytest.mark.parametrize("lengths", [[], [1000]])
def test_packed_batches_nothing_and_what_is_longer_than_the_budget(lengths):
    assert packed_batches(lengths, 10) == [[row] for row in range(len(lengths))]
