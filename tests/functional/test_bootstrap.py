"""Bootstrap intervals."""

import math

import numpy as np
import pytest
import torch

from rrg_rewards.functional.bootstrap import bootstrap_interval


def ratio(hits, misses):
    return hits.sum() / (hits.sum() + misses.sum())


def test_interval_of_a_mean_is_that_of_the_central_limit_theorem():
    values = torch.randn(400, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    low, high = bootstrap_interval(torch.mean, [values], num_resamples=4000)
    spread = 1.96 * float(values.std(correction=0)) / math.sqrt(len(values))
    assert low == pytest.approx(float(values.mean()) - spread, abs=0.1 * spread)
    assert high == pytest.approx(float(values.mean()) + spread, abs=0.1 * spread)


def test_interval_agrees_with_numpy_percentiles_of_another_generator():
    hits, misses = torch.tensor([3, 0, 1, 2, 5, 0, 1, 1]), torch.tensor([1, 1, 0, 0, 2, 3, 1, 0])
    rows = np.random.default_rng(0).integers(8, size=(20_000, 8))
    draws = hits.numpy()[rows].sum(1) / (hits + misses).numpy()[rows].sum(1)
    expected = np.quantile(draws, [0.05, 0.95])
    assert bootstrap_interval(ratio, [hits, misses], 5000, confidence=0.9) == pytest.approx(expected, abs=0.02)


def test_columns_are_drawn_together_and_a_seed_fixes_the_draws():
    column = torch.arange(10.0)

    def difference(first, second):
        assert torch.equal(first, second)
        return first.mean()

    first = bootstrap_interval(difference, [column, column], 50, seed=5)
    assert first == bootstrap_interval(difference, [column, column], 50, seed=5)
    assert first != bootstrap_interval(difference, [column, column], 50, seed=6)


def test_the_state_of_torch_is_left_alone():
    before = torch.get_rng_state()
    bootstrap_interval(torch.mean, [torch.arange(10.0)], 10)
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_without_a_value_are_left_out():
    low, high = bootstrap_interval(ratio, [torch.tensor([1, 0, 0]), torch.zeros(3)], 200)
    assert (low, high) == (1.0, 1.0)


@pytest.mark.parametrize("column", [[], [1.0], [math.nan, math.nan]])
def test_nothing_to_draw_from_has_no_interval(column):
    assert all(map(math.isnan, bootstrap_interval(torch.mean, [torch.tensor(column)], 10)))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ([], {}, "at least one tensor"),
        ([torch.zeros(2), torch.zeros(3)], {}, r"same length, got \[2, 3\]"),
        ([torch.zeros(2)], {"num_resamples": 0}, "num_resamples must"),
        ([torch.zeros(2)], {"confidence": 95}, "confidence must"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(columns, options, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(torch.mean, columns, **options)
