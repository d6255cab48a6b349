"""Permutation tests against all permutations and brute force, and Williams' test against published values."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from rrg_rewards.functional import agreement_permutation_test, human_agreement, perm_both_test, williams_test
from rrg_rewards.functional.significance import student_tail

STATISTICS = ("kendall", "spearman", "pearson", "accuracy", "preference", "binary")
SCORES = torch.tensor([3.0, 1.0, 4.0, 1.5, 5.0, -2.0])
OTHERS = torch.tensor([10.0, 30.0, 20.0, -50.0, 40.0, 25.0])
TARGET = torch.tensor([2, 1, 3, -1, 2, -2])


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8, 9, 10, 17, 60, 101, 1000])
@pytest.mark.parametrize("t", [-3.0, -2.5, -0.5, 0.0, 0.3, 0.7, 2.0, 7.0, 9.0])
def test_student_tail_equals_scipy(degrees: int, t: float) -> None:
    assert student_tail(t, degrees) == pytest.approx(stats.t.sf(t, degrees), rel=1e-9, abs=1e-14)


def test_williams_equals_published_values() -> None:
    """Steiger 1980, p. 248: N = 103, correlations 0.4, 0.5 and 0.1; and the determinant by numpy."""
    t, p = williams_test(0.5, 0.4, 0.1, 103)
    assert (round(t, 2), round(p, 2)) == (0.89, 0.37)
    for r12, r13, r23, rows in ((0.8, 0.3, 0.2, 20), (0.1, -0.4, 0.6, 57), (0.62, 0.6, 0.95, 300)):
        size = np.linalg.det([[1, r12, r13], [r12, 1, r23], [r13, r23, 1]])
        below = 2 * (rows - 1) / (rows - 3) * size + ((r12 + r13) / 2) ** 2 * (1 - r23) ** 3
        expected = (r12 - r13) * math.sqrt((rows - 1) * (1 + r23) / below)
        t, p = williams_test(r12, r13, r23, rows)
        assert t == pytest.approx(expected)
        assert p == pytest.approx(2 * stats.t.sf(abs(expected), rows - 3))
        assert williams_test(r13, r12, r23, rows) == pytest.approx((-t, p))


def test_williams_holds_its_level() -> None:
    """Metrics that are equally good are told apart in 5 % of samples."""
    generator = np.random.default_rng(0)
    rejected = 0
    for _ in range(1000):
        target = generator.normal(size=40)
        first, second = (target + generator.normal(size=40) for _ in range(2))
        r = np.corrcoef([target, first, second])
        rejected += williams_test(r[0, 1], r[0, 2], r[1, 2], 40).p_value < 0.05
    assert 30 <= rejected <= 70


def test_williams_of_equal_metrics_is_undefined() -> None:
    assert all(map(math.isnan, williams_test(0.5, 0.5, 1.0, 10)))
    assert all(map(math.isnan, williams_test(math.nan, 0.5, 0.2, 10)))
    with pytest.raises(ValueError, match="rows must be at least 4, got 3"):
        williams_test(0.1, 0.2, 0.3, 3)
    with pytest.raises(ValueError, match=r"between must lie in \[-1, 1\], got 1.5"):
        williams_test(0.1, 0.2, 1.5, 30)


def standardised(values: torch.Tensor, statistic: str) -> torch.Tensor:
    if statistic == "binary":
        return values
    centred = values if statistic == "preference" else values - values.mean()
    return centred / centred.square().mean().sqrt()


@pytest.mark.parametrize("statistic", STATISTICS)
def test_perm_both_approaches_all_exchanges(statistic: Any) -> None:
    """The p-value of 20,000 random exchanges is that of all 64, within four standard errors."""
    found = perm_both_test(SCORES, OTHERS, TARGET, statistic, num_permutations=20_000)
    one, two = (standardised(values, statistic) for values in (SCORES, OTHERS))
    differences = []
    for exchanged in itertools.product([False, True], repeat=6):
        mask = torch.tensor(exchanged)
        ours, theirs = torch.where(mask, two, one), torch.where(mask, one, two)
        differences.append(float(human_agreement(ours, TARGET, statistic) - human_agreement(theirs, TARGET, statistic)))
    value = float(human_agreement(SCORES, TARGET, statistic) - human_agreement(OTHERS, TARGET, statistic))
    assert found.value == pytest.approx(value)
    known = np.array([d for d in differences if not math.isnan(d)])
    exact = float(np.mean(np.abs(known) >= abs(value) - 1e-9))
    assert found.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000) + 1e-4)
    assert found.low == pytest.approx(-found.high, abs=0.2)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_permutation_test_approaches_all_permutations(statistic: Any) -> None:
    found = agreement_permutation_test(SCORES, TARGET, statistic, num_permutations=5_000)
    if statistic == "preference":
        targets = [TARGET * torch.tensor(signs) for signs in itertools.product([-1, 1], repeat=6)]
    else:
        targets = [TARGET[list(order)] for order in itertools.permutations(range(6))]
    values = np.array([float(human_agreement(SCORES, target, statistic)) for target in targets])
    # The value without agreement is the mean of all permutations.
    centre = values.mean()
    values -= centre
    assert found.value == pytest.approx(float(human_agreement(SCORES, TARGET, statistic)))
    exact = float(np.mean(np.abs(values) >= abs(found.value - centre) - 1e-9))
    assert found.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 5_000) + 1e-3)


def test_accuracy_within_units_permutes_within_units() -> None:
    """One unit has equal judgements and one has two reports, so that half of all permutations are as good."""
    scores, target = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0, 0, 1, 2])
    units = torch.tensor([5, 5, 3, 3])
    found = agreement_permutation_test(scores, target, "accuracy", units, num_permutations=400)
    assert found.value == 1
    assert (found.low, found.high) == (0, 1)
    # An accuracy of 0 is as far from 0.5 as 1 is.
    assert found.p_value == 1


def test_undefined_values_have_no_test() -> None:
    constant = torch.ones(6)
    for test in (
        agreement_permutation_test(constant, TARGET),
        perm_both_test(constant, SCORES, TARGET),
        perm_both_test(SCORES, constant, TARGET),
    ):
        assert all(map(math.isnan, test))
    with pytest.raises(ValueError, match="num_permutations must be positive, got 0"):
        perm_both_test(SCORES, OTHERS, TARGET, num_permutations=0)


def test_perm_both_holds_its_level() -> None:
    generator = torch.Generator().manual_seed(0)
    rejected = 0
    for seed in range(200):
        target = torch.randn(30, generator=generator)
        first, second = (target + torch.randn(30, generator=generator) for _ in range(2))
        # Another unit of measurement changes nothing.
        rejected += perm_both_test(first, 100 * second + 7, target, num_permutations=99, seed=seed).p_value <= 0.05
    assert 2 <= rejected <= 20
