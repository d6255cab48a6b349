"""Correlations compared with SciPy, and counts of pairs compared with all pairs."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, pearsonr, spearmanr

from rrg_rewards.functional import correlation, kendall_tau, spearman_rho
from rrg_rewards.functional.correlation import (
    PairCounts,
    pair_counts,
    permuted_pair_counts,
    weighted_pearson,
    weighted_ranks,
)


def brute_counts(first: Any, second: Any, weights: Any, units: Any = None) -> tuple[float, float, float]:
    """Count ordered pairs of rows one by one. Pairs within units have the weight of their unit."""
    first, second, weights, units = (
        None if column is None else torch.as_tensor(column).tolist() for column in (first, second, weights, units)
    )
    sums = np.zeros(3)
    for i in range(len(first)):
        for j in range(len(first)):
            if units is None:
                weight = weights[i] * weights[j]
            else:
                weight = weights[i] * (weights[j] > 0) * (units[i] == units[j])
            ours, theirs = np.sign(first[i] - first[j]), np.sign(second[i] - second[j])
            sums += np.array([ours * theirs, abs(ours), abs(theirs)]) * weight
    return tuple(sums.tolist())


def tied_sample(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two columns of equal, random length with ties on both sides."""
    generator = torch.Generator().manual_seed(seed)
    size = int(torch.randint(2, 300, (1,), generator=generator))
    first = torch.randint(-5, 20, (size,), generator=generator) / 4
    return first, torch.randint(0, 6, (size,), generator=generator)


@pytest.fixture(params=[1, 2, 5, 192])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Size of the blocks of rows that are compared as a matrix before they are merged."""
    monkeypatch.setattr(correlation, "_BLOCK", request.param)
    return int(request.param)


@pytest.mark.parametrize("seed", range(20))
def test_rank_correlations_are_scipys(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    preds, target = tied_sample(seed)
    expected = kendalltau(preds, target).statistic
    assert float(kendall_tau(preds, target)) == pytest.approx(expected, nan_ok=True, abs=1e-12)
    rho = spearmanr(preds, target).statistic
    assert float(spearman_rho(preds, target)) == pytest.approx(rho, nan_ok=True, abs=1e-12)
    monkeypatch.setattr(correlation, "_BLOCK", 7)
    assert float(kendall_tau(preds, target)) == pytest.approx(expected, nan_ok=True, abs=1e-12)


@pytest.mark.parametrize("size", [10_000, 65_537])
@pytest.mark.parametrize("kinds", [7, 10**9])
def test_kendall_tau_of_many_rows_is_scipys(size: int, kinds: int) -> None:
    generator = np.random.default_rng(size + kinds)
    preds, target = generator.integers(0, kinds, size), generator.normal(size=size)
    found = kendall_tau(torch.from_numpy(preds), torch.from_numpy(target))
    assert float(found) == pytest.approx(kendalltau(preds, target).statistic, abs=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_weighted_correlations_repeat_rows(seed: int) -> None:
    first, second = (values.double() for values in tied_sample(seed))
    weights = torch.randint(0, 4, (3, len(first)), generator=torch.Generator().manual_seed(seed)).double()
    tau = pair_counts(first, second, weights).tau()
    rho = weighted_pearson(weighted_ranks(first)(weights), weighted_ranks(second)(weights), weights)
    r = weighted_pearson(first.expand_as(weights), second.expand_as(weights), weights)
    for draw, counts in enumerate(weights.long()):
        rows = torch.arange(len(first)).repeat_interleave(counts)
        for found, scipy in ((tau, kendalltau), (rho, spearmanr), (r, pearsonr)):
            assert float(found[draw]) == pytest.approx(scipy(first[rows], second[rows]).statistic, abs=1e-12)


ROWS = st.lists(st.tuples(*[st.integers(-3, 3)] * 2, *[st.integers(0, 2)] * 3), min_size=1, max_size=14)


@given(rows=ROWS)
def test_pair_counts_are_those_of_all_pairs(rows: list[tuple[int, ...]]) -> None:
    first, second, units, *weights = torch.tensor(rows).T
    for block in (1, 3, 192):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(correlation, "_BLOCK", block)
            found = torch.stack(pair_counts(first, second, torch.stack(weights)), 1)
            whole_units = torch.stack([torch.ones_like(units), (units != 1) * 3, weights[0] > 0])
            within = torch.stack(pair_counts(first, second, whole_units, units), 1)
        assert [tuple(row) for row in found.tolist()] == [brute_counts(first, second, one) for one in weights]
        assert [tuple(row) for row in within.tolist()] == [
            brute_counts(first, second, one, units) for one in whole_units.int()
        ]


def test_pair_counts_of_weights_that_are_no_integers(block: int) -> None:
    generator = np.random.default_rng(block)
    first, second = generator.integers(0, 6, (2, 40))
    weights = generator.random((2, 40))
    found = pair_counts(*map(torch.from_numpy, (first, second, weights)))
    for draw, one in enumerate(weights):
        assert [float(count[draw]) for count in found] == pytest.approx(brute_counts(first, second, one))


@pytest.mark.parametrize("kinds", [2, 6, 1000])
@pytest.mark.parametrize("size", [1, 2, 3, 13, 32, 33])
def test_permuted_pair_counts_are_those_of_permuted_columns(size: int, kinds: int) -> None:
    generator = torch.Generator().manual_seed(size)
    first, second = (torch.randint(kinds, (size,), generator=generator) for _ in range(2))
    permutations = torch.stack([torch.randperm(size, generator=generator) for _ in range(5)])
    found = torch.stack(permuted_pair_counts(first, second, permutations), 1)
    one = torch.ones(1, size)
    expected = [torch.cat(pair_counts(first, second[order], one)).tolist() for order in permutations]
    assert found.tolist() == expected
    assert expected[0] == list(brute_counts(first, second[permutations[0]], one[0]))


def test_permuted_pair_counts_within_units() -> None:
    units = torch.tensor([4, 1, 4, 1, 4, 2])
    first, second = torch.tensor([1, 2, 2, 3, 5, 6]), torch.tensor([3, 3, 1, 2, 2, 9])
    permutations = torch.tensor([[0, 1, 2, 3, 4, 5], [2, 3, 4, 1, 0, 5], [4, 3, 2, 1, 0, 5]])
    found = torch.stack(permuted_pair_counts(first, second, permutations, units), 1)
    expected = [brute_counts(first, second[order], torch.ones(6), units) for order in permutations]
    assert [tuple(row) for row in found.tolist()] == expected


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0]])
def test_rank_correlations_without_an_order_are_nan(values: list[float]) -> None:
    others = torch.arange(len(values)).float()
    assert math.isnan(kendall_tau(torch.tensor(values), others))
    assert math.isnan(kendall_tau(others, torch.tensor(values)))
    assert math.isnan(spearman_rho(torch.tensor(values), others))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_pair_counts_of_few_rows(rows: int) -> None:
    column = torch.arange(rows)
    pairs = float(rows * (rows - 1))
    found = pair_counts(column, -column, torch.ones(1, rows))
    assert [count.tolist() for count in found] == [[-pairs], [pairs], [pairs]]
    assert float(found.tau()) == pytest.approx(-1.0 if rows == 2 else math.nan, nan_ok=True)


def test_rows_without_weight_do_not_count() -> None:
    first, second = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0, 9.0, 7.0])
    found = pair_counts(first, second, torch.tensor([[1, 0, 1], [0, 0, 0], [1, 0, 0]]))
    assert found.tau().tolist() == pytest.approx([1.0, math.nan, math.nan], nan_ok=True)


def test_accuracy_counts_ties_of_the_first_column_half() -> None:
    found = pair_counts(torch.tensor([1, 1, 2, 0]), torch.tensor([1, 2, 3, 3]), torch.ones(1, 4))
    # Five pairs differ in the second column: two right, two wrong, one tied.
    assert found.accuracy().tolist() == [0.5]
    nothing = PairCounts(*torch.zeros(3, 1))
    assert math.isnan(nothing.accuracy())
    assert math.isnan(nothing.tau())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.uint8, torch.bool])
def test_columns_of_any_type_are_ordered(dtype: torch.dtype) -> None:
    assert float(kendall_tau(torch.tensor([0, 1, 1, 0]).to(dtype), torch.tensor([3, 9, 9, 3]))) == 1.0


def test_infinite_values_are_ordered() -> None:
    preds = torch.tensor([-math.inf, 0.0, -0.0, math.inf])
    assert float(kendall_tau(preds, torch.tensor([1, 2, 2, 3]))) == 1.0
    assert float(spearman_rho(preds, torch.tensor([1, 2, 2, 3]))) == pytest.approx(1.0)


@pytest.mark.parametrize("correlate", [kendall_tau, spearman_rho])
def test_wrong_columns_are_named(correlate: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(ValueError, match=r"must both be \(N,\), got \(2,\) and \(3,\)"):
        correlate(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="must not contain NaN"):
        correlate(torch.tensor([0.0, math.nan]), torch.zeros(2))
