"""Agreement statistics against scipy and brute force, on ties, units and weights; tests against all permutations."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import accuracy_score

from rrg_rewards.functional import agreement as agreement_module
from rrg_rewards.functional import (
    agreement_interval,
    agreement_permutation_test,
    bootstrap,
    bootstrap_interval,
    correlation,
    human_agreement,
    kendall_tau,
    perm_both_test,
)
from rrg_rewards.functional.agreement import _permuted_agreement, _weighted_agreement

SCIPY = {"kendall": stats.kendalltau, "spearman": stats.spearmanr, "pearson": stats.pearsonr}
STATISTICS = (*SCIPY, "accuracy", "preference", "binary")


SCORES = torch.tensor([3.0, 1.0, 4.0, 1.5, 5.0, -2.0])
OTHERS = torch.tensor([10.0, 30.0, 20.0, -50.0, 40.0, 25.0])
TARGET = torch.tensor([2, 1, 3, -1, 2, -2])


def sample(rows: int = 60, seed: int = 0, units: int = 20) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return scores and judgements with ties and negative values, and units of unequal size."""
    generator = np.random.default_rng(seed)
    target = generator.integers(-2, 3, rows)
    scores = np.round(target + generator.normal(size=rows) * 2)
    return torch.tensor(scores), torch.tensor(target), torch.tensor(generator.integers(0, units, rows))


def brute_accuracy(scores: Any, target: Any, units: Any = None) -> float:
    points = [
        0.5 if scores[i] == scores[j] else float((scores[i] > scores[j]) == (target[i] > target[j]))
        for i, j in itertools.combinations(range(len(scores)), 2)
        if target[i] != target[j] and (units is None or units[i] == units[j])
    ]
    return float(np.mean(points)) if points else math.nan


def brute_preference(scores: Any, target: Any) -> float:
    points = [0.5 if s == 0 else float((s > 0) == (t > 0)) for s, t in zip(scores, target, strict=True) if t != 0]
    return float(np.mean(points)) if points else math.nan


def expected(statistic: str, scores: Any, target: Any, units: Any = None) -> float:
    if statistic == "accuracy":
        return brute_accuracy(scores, target, units)
    if statistic == "preference":
        return brute_preference(scores, target)
    if statistic == "binary":
        return sum((s >= 0.5) == (t >= 0.5) for s, t in zip(scores, target, strict=True)) / len(target)
    if len(set(scores)) < 2 or len(set(target)) < 2:
        return math.nan
    return float(SCIPY[statistic](scores, target).statistic)


@pytest.mark.parametrize("statistic", STATISTICS)
@given(rows=st.lists(st.tuples(st.integers(-3, 3), st.integers(-2, 2), st.integers(0, 2)), min_size=2, max_size=12))
def test_equals_the_definition(statistic: Any, rows: list[tuple[int, int, int]]) -> None:
    scores, target, units = (list(column) for column in zip(*rows, strict=True))
    columns = [torch.tensor(column) for column in (scores, target)]
    assert float(human_agreement(*columns, statistic)) == pytest.approx(
        expected(statistic, scores, target), nan_ok=True
    )
    if statistic == "accuracy":
        found = human_agreement(*columns, statistic, torch.tensor(units))
        assert float(found) == pytest.approx(brute_accuracy(scores, target, units), nan_ok=True)


def test_kendall_is_that_of_kendall_tau() -> None:
    scores, target, _ = sample()
    assert torch.equal(human_agreement(scores, target), kendall_tau(scores, target))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_a_constant_side_has_no_correlation_at_any_scale(scale: float) -> None:
    constant = torch.full((7,), 0.1 * scale)
    for statistic in SCIPY:
        assert math.isnan(human_agreement(constant, torch.arange(7), statistic)), statistic
    assert human_agreement(constant, torch.arange(7), "accuracy") == 0.5


@pytest.mark.parametrize("statistic", STATISTICS)
def test_weights_repeat_rows(statistic: Any) -> None:
    scores, target, _ = sample(20)
    weights = torch.randint(0, 4, (5, 20), generator=torch.Generator().manual_seed(1))
    agreement = _weighted_agreement(scores, target, statistic)
    found = agreement(weights)
    # What is computed once for the rows serves any number of weightings.
    assert agreement(weights[:2]).equal(found[:2])
    for value, counts in zip(found, weights, strict=True):
        rows = torch.arange(20).repeat_interleave(counts)
        assert float(value) == pytest.approx(float(human_agreement(scores[rows], target[rows], statistic)))


@pytest.mark.parametrize("statistic", STATISTICS)
def test_large_tables_are_compared_in_parts(statistic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, target, units = sample(50)
    permutations = torch.stack([torch.randperm(50) for _ in range(3)])
    whole = human_agreement(scores, target, statistic, units)
    ends = agreement_interval(scores, target, statistic, units, num_resamples=9)
    test = agreement_permutation_test(scores, target, statistic, units, num_permutations=9)
    moved = statistic != "preference" and _permuted_agreement(scores, target, permutations, statistic)
    monkeypatch.setattr(agreement_module, "_CHUNK", 120)
    monkeypatch.setattr(agreement_module, "_PERMUTED_AT_ONCE", 120)
    monkeypatch.setattr(bootstrap, "_COUNTS_AT_ONCE", 120)
    monkeypatch.setattr(correlation, "_BLOCK", 7)
    torch.testing.assert_close(human_agreement(scores, target, statistic, units), whole)
    assert agreement_interval(scores, target, statistic, units, num_resamples=9) == pytest.approx(ends)
    assert agreement_permutation_test(scores, target, statistic, units, num_permutations=9) == pytest.approx(test)
    if statistic != "preference":
        torch.testing.assert_close(_permuted_agreement(scores, target, permutations, statistic), moved)


@pytest.mark.parametrize("statistic", [*SCIPY, "accuracy", "binary"])
def test_permuted_judgements(statistic: Any) -> None:
    scores, target, _ = sample(30)
    permutations = torch.stack([torch.randperm(30, generator=torch.Generator().manual_seed(i)) for i in range(4)])
    found = _permuted_agreement(scores, target, permutations, statistic)
    for value, permutation in zip(found, permutations, strict=True):
        assert float(value) == pytest.approx(float(human_agreement(scores, target[permutation], statistic)))


@pytest.mark.parametrize("statistic", STATISTICS)
def test_interval_without_units_is_that_of_the_bootstrap(statistic: Any) -> None:
    scores, target, _ = sample(40)
    found = agreement_interval(scores, target, statistic, num_resamples=50, seed=3)
    plain = bootstrap_interval(lambda *drawn: human_agreement(*drawn, statistic), [scores, target], 50, seed=3)
    assert found == pytest.approx(plain)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_units_are_drawn_whole(statistic: Any) -> None:
    scores, target, units = sample(40)
    kinds = sorted(set(units.tolist()))
    draws = [torch.randint(len(kinds), (len(kinds),), generator=torch.Generator().manual_seed(i)) for i in range(30)]
    values = []
    for draw in draws:
        rows, copies = [], []
        for copy, kind in enumerate(draw.tolist()):
            own = (units == kinds[kind]).nonzero().flatten().tolist()
            rows += own
            # Two copies of a unit are two units.
            copies += [copy] * len(own)
        values.append(expected(statistic, scores[rows].tolist(), target[rows].tolist(), copies))
    found = agreement_interval(scores, target, statistic, units, draws=draws, confidence=0.9)
    assert found == pytest.approx(np.nanquantile(values, (0.05, 0.95)))


def test_binary_accuracy_of_a_published_table() -> None:
    """ER²Score, Table 3, on 100 reports: 73 right answers of 100 are 0.730, and 41 are 0.410."""
    truth = torch.arange(100) % 4 == 0
    for right in (73, 41):
        predicted = torch.where(torch.arange(100) < right, truth, ~truth)
        found = float(human_agreement(predicted.double(), truth, "binary"))
        assert found == accuracy_score(truth, predicted) == right / 100
    # A sub-score counts as an error from 0.5 on.
    assert human_agreement(torch.tensor([0.5, 0.49]), torch.tensor([1, 0]), "binary") == 1.0


def test_interval_of_a_difference_uses_the_same_draws() -> None:
    scores, target, _ = sample(40)
    assert agreement_interval(scores, target, minus=scores, num_resamples=20) == (0.0, 0.0)
    other = torch.flip(scores, (0,))
    low, high = agreement_interval(scores, target, minus=other, num_resamples=200)
    reverse = agreement_interval(other, target, minus=scores, num_resamples=200)
    assert (low, high) == pytest.approx((-reverse[1], -reverse[0]))
    assert low < float(human_agreement(scores, target) - human_agreement(other, target)) < high


def test_one_unit_has_no_interval() -> None:
    scores, target, _ = sample(5)
    ends = agreement_interval(scores, target, units=torch.zeros(5, dtype=torch.long))
    assert all(map(math.isnan, ends))


def test_wrong_arguments_are_named() -> None:
    two, three = torch.zeros(2), torch.zeros(3)
    with pytest.raises(ValueError, match=r"both be \(N,\), got \(2,\) and \(3,\)"):
        human_agreement(two, three)
    with pytest.raises(ValueError, match="statistic must"):
        human_agreement(two, two, "tau")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"scores\[1\] must"):
        human_agreement(torch.tensor([0.0, math.nan]), two)
    with pytest.raises(ValueError, match="units must"):
        human_agreement(two, two, "accuracy", three)
    with pytest.raises(ValueError, match="at least one row"):
        human_agreement(torch.zeros(0), torch.zeros(0))


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
    with pytest.raises(ValueError, match="num_permutations must"):
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


@pytest.mark.parametrize("statistic", ["kendall", "pearson", "preference"])
def test_permutations_do_not_depend_on_how_many_are_in_memory(statistic, monkeypatch):
    generator = torch.Generator().manual_seed(5)
    first, second, target = (torch.randn(70, generator=generator).double() for _ in range(3))

    def tests():
        both = perm_both_test(first, second, target, statistic, num_permutations=101)
        return both, agreement_permutation_test(first, target, statistic, num_permutations=101)

    expected = tests()
    drawn = []
    rand = torch.rand
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: drawn.append(shape) or rand(*shape, **options))
    monkeypatch.setattr("rrg_rewards.functional.agreement._CHUNK", 500)
    monkeypatch.setattr("rrg_rewards.functional.agreement._PERMUTED_AT_ONCE", 2000)
    assert tests() == expected
    assert drawn
    assert max(math.prod(shape) for shape in drawn) <= 1000
