"""Ratios over blocks and their tests, compared with SciPy and loops."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from rrg_rewards.watch.checks import Estimate, estimate, spread, student_tail, upper_tail
from rrg_rewards.watch.counts import Block


def test_upper_tail_is_that_of_welchs_test_for_blocks_of_one_size():
    random.seed(1)
    one, other = ([random.gauss(mean, 1) for _ in range(6)] for mean in (11, 10))
    estimates = []
    for values in (one, other):
        blocks = [Block(step, 8, {"words": (8 * value, 8.0)}) for step, value in enumerate(values)]
        estimates.append(estimate(blocks, "words"))
        assert estimates[-1].mean == pytest.approx(np.mean(values))
        assert estimates[-1].error == pytest.approx(stats.sem(values))
    welch = stats.ttest_ind(one, other, equal_var=False, alternative="greater")
    # Degrees of freedom are rounded down, which is conservative.
    assert upper_tail(*estimates) == pytest.approx(stats.t.sf(welch.statistic, int(welch.df)), abs=1e-12)
    assert upper_tail(*estimates) >= welch.pvalue


def test_estimate_of_a_share_without_a_case_has_an_error():
    blocks = [Block(step, 8, {"rare": (0.0, 8.0)}) for step in range(5)]
    assert estimate(blocks, "rare").error == 0
    likely = 1 / 42
    assert estimate(blocks, "rare", share=True).error == pytest.approx(math.sqrt(likely * (1 - likely) / 42))
    assert estimate(blocks, "other") is None


def test_upper_tail_of_constants_is_0_or_1():
    one, other = Estimate(2.0, 0.0, 5), Estimate(1.0, 0.0, 5)
    assert upper_tail(one, one) == 1
    assert upper_tail(one, other) == 0
    assert upper_tail(other, one) == 1
    assert upper_tail(one, other, factor=2.0) == 1


def test_spread_is_that_of_numpy():
    y = np.random.default_rng(0).normal(size=40)
    parts = (y[:15], y[15:])
    blocks = [
        Block(0, len(b), {"metrics/m": (b.sum(), len(b)), "metrics_squared/m": ((b * b).sum(), len(b))}) for b in parts
    ]
    assert spread(blocks, "metrics", "m") == pytest.approx(y.std())


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8, 9, 10, 17, 60, 101, 1000])
@pytest.mark.parametrize("t", [-3.0, -2.5, -0.5, 0.0, 0.3, 0.7, 2.0, 7.0, 9.0])
def test_student_tail_equals_scipy(degrees, t):
    assert student_tail(t, degrees) == pytest.approx(stats.t.sf(t, degrees), rel=1e-9, abs=1e-14)
