"""Paired tests against sacrebleu, SciPy and brute force."""

import itertools
import math
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from rrg_rewards.functional import (
    crg_score_from_counts,
    holm_correction,
    paired_bootstrap,
    paired_randomisation,
)
from rrg_rewards.functional.significance_tests import bootstrap_values, weighted_mean

WORDS = [
    *("no", "small", "large", "pleural", "effusion", "nodule", "in"),
    *("the", "left", "right", "lung", "lobe", "4", "mm"),
]


def _corpus(seed: int, rows: int = 60) -> tuple[list[str], list[str], list[str]]:
    """Return references, and reports of two systems that change words at different rates."""
    source = random.Random(seed)
    references = [" ".join(source.choices(WORDS, k=source.randint(8, 20))) for _ in range(rows)]

    def changed(rate: float) -> list[str]:
        return [" ".join(source.choice(WORDS) if source.random() < rate else w for w in t.split()) for t in references]

    return references, changed(0.30), changed(0.33)


def _sacrebleu(seed: int, kind: str, samples: int) -> tuple[Any, Any, list[Tensor], Any]:
    """Return sacrebleu's test and results, statistics of both systems' reports, and the BLEU of weighted sums."""
    references, *systems = _corpus(seed)
    bleu = pytest.importorskip("sacrebleu").BLEU()
    columns = [
        torch.tensor(bleu._extract_corpus_statistics(reports, [references]), dtype=torch.float64) for reports in systems
    ]

    def corpus_bleu(weights: Tensor, column: Tensor) -> Tensor:
        sums = (weights.double() @ column).tolist()
        return torch.tensor([bleu._compute_score_from_stats([int(n) for n in row]).score for row in sums])

    named = list(zip(("base", "other"), systems, strict=True))
    paired = pytest.importorskip("sacrebleu.significance").PairedTest
    test = paired(named, {"bleu": bleu}, [references], test_type=kind, n_samples=samples)
    return test, test()[1]["BLEU"], columns, corpus_bleu


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_randomisation_equals_sacrebleu(seed: int) -> None:
    test, expected, (base, other), statistic = _sacrebleu(seed, "ar", 300)
    kept = torch.from_numpy(np.random.default_rng(test._seed).integers(2, size=(300, 60), dtype=bool))
    places = [torch.stack([~row, row]).long() for row in kept]
    found = paired_randomisation([[other]], [[base]], statistic, places=places)
    assert found.value == pytest.approx(expected[1].score - expected[0].score)
    assert found.p_value == pytest.approx(expected[1].p_value)
    assert 0 < found.p_value < 1


@pytest.mark.parametrize("seed", [0, 1])
def test_bootstrap_equals_sacrebleu(seed: int) -> None:
    """Sacrebleu shifts absolute differences and tests one side; the draws give its p-value, mean and interval."""
    test, (_, expected), (base, other), statistic = _sacrebleu(seed, "bs", 200)
    significance = pytest.importorskip("sacrebleu.significance")
    draws = torch.from_numpy(np.random.default_rng(test._seed).choice(60, size=(200, 60), replace=True))
    ours, theirs = (bootstrap_values([[column]], statistic, draws=draws)[:, 0].numpy() for column in (other, base))
    assert significance.estimate_ci(ours) == pytest.approx((expected.mean, expected.ci))
    found = paired_bootstrap([[other]], [[base]], statistic, draws=draws)
    shifted = np.abs(ours - theirs) - np.abs(ours - theirs).mean()
    assert significance._compute_p_value(shifted, abs(found.value)) == pytest.approx(expected.p_value)
    low, high = np.quantile(ours - theirs, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high))
    two_sided = np.abs(ours - theirs - (ours - theirs).mean()) >= abs(found.value)
    assert found.p_value == pytest.approx((1 + two_sided.sum()) / 201)


def test_randomisation_of_means_equals_scipy() -> None:
    generator = np.random.default_rng(0)
    for shift in (0.0, 0.4, 1.5):
        first = generator.normal(size=9) + shift
        second = generator.normal(size=9)
        expected = stats.permutation_test(
            (first, second), lambda a, b: np.mean(a) - np.mean(b), permutation_type="samples", n_resamples=np.inf
        )
        exchanges = [torch.tensor([row, [1 - one for one in row]]) for row in itertools.product((0, 1), repeat=9)]
        columns = [[[torch.from_numpy(values)]] for values in (first, second)]
        found = paired_randomisation(*columns, places=exchanges)
        assert found.value == pytest.approx(expected.statistic)
        assert found.p_value * (1 + 2**9) - 1 == pytest.approx(expected.pvalue * 2**9)
        random_p = paired_randomisation(*columns, num_permutations=20_000).p_value
        assert random_p == pytest.approx(expected.pvalue, abs=0.02)


def _label_counts(generator: torch.Generator, rows: int, found: float) -> tuple[Tensor, Tensor]:
    target = torch.rand(rows, 4, generator=generator) < 0.4
    return target, torch.where(torch.rand(rows, 4, generator=generator) < found, target, ~target)


def _crg(weights: Tensor, *counts: Tensor) -> Tensor:
    return crg_score_from_counts(*(weights.double() @ count.double() for count in counts))


def _counts(preds: Tensor, target: Tensor) -> list[Tensor]:
    pairs = ((preds, target), (~preds, target), (preds, ~target), (~preds, ~target))
    return [(ours & theirs).sum(1) for ours, theirs in pairs]


def test_crg_differences_are_those_of_the_resampled_corpus() -> None:
    generator = torch.Generator().manual_seed(3)
    target = torch.rand(7, 4, generator=generator) < 0.4
    first, second = (torch.rand(7, 4, generator=generator) < 0.5 for _ in range(2))
    columns = [_counts(first, target), _counts(second, target)]
    for draw in torch.randint(7, (20, 7), generator=generator):
        one = paired_bootstrap([columns[0]], [columns[1]], _crg, draws=[draw])
        expected = [
            float(crg_score_from_counts(*(count.sum() for count in _counts(side[draw], target[draw]))))
            for side in (first, second)
        ]
        if not math.isnan(expected[0]):
            assert one.low == pytest.approx(expected[0] - expected[1])
    exchanged = torch.tensor([1, 0, 0, 1, 1, 0, 1]).bool()
    found = paired_randomisation([columns[0]], [columns[1]], _crg, places=[torch.stack([exchanged, ~exchanged])])
    mixed = torch.where(exchanged[:, None], second, first), torch.where(exchanged[:, None], first, second)
    ours, theirs = (_crg(torch.ones(1, 7), *_counts(side, target)) for side in mixed)
    assert found.low == pytest.approx(float(ours - theirs))


def test_equal_systems_differ_by_chance() -> None:
    values = torch.rand(50, generator=torch.Generator().manual_seed(0))
    assert paired_randomisation([[values]], [[values]], num_permutations=200).p_value == 1
    assert paired_bootstrap([[values]], [[values]], num_resamples=200) == (0, 0, 0, 1)


def test_runs_are_averaged_and_drawn() -> None:
    """The interval of a system with different runs is wider than that of its mean run."""
    generator = torch.Generator().manual_seed(1)
    base = torch.rand(200, generator=generator)
    first = [base + shift + 0.01 * torch.rand(200, generator=generator) for shift in (0.0, 0.1, 0.2)]
    found = paired_bootstrap([[run] for run in first], [[base]])
    mean = paired_bootstrap([[torch.stack(first).mean(0)]], [[base]])
    assert found.value == pytest.approx(mean.value)
    assert found.high - found.low > 5 * (mean.high - mean.low)
    assert found.low == pytest.approx(found.value - 0.1, abs=0.05)


def test_randomisation_of_runs_equals_all_permutations() -> None:
    """Two runs of the first system and one of the second, on two reports: 3! permutations of each report."""
    first, second = [torch.tensor([1.0, 5.0]), torch.tensor([2.0, 7.0])], [torch.tensor([3.0, 4.0])]
    values = torch.stack([*first, *second])
    places, expected = [], []
    for orders in itertools.product(itertools.permutations(range(3)), repeat=2):
        place = torch.tensor(orders).T
        places.append(place)
        moved = torch.empty(3, 2).scatter_(0, place, values)
        expected.append(float(moved[:2].mean() - moved[2].mean()))
    value = float(values[:2].mean() - values[2].mean())
    found = paired_randomisation([[run] for run in first], [[run] for run in second], places=places)
    extreme = sum(abs(one) >= abs(value) - 1e-6 for one in expected)
    assert found.value == pytest.approx(value)
    assert found.p_value == pytest.approx((1 + extreme) / 37)
    many = paired_randomisation([[run] for run in first], [[run] for run in second], num_permutations=20_000)
    assert many.p_value == pytest.approx(extreme / 36, abs=0.02)


@pytest.mark.parametrize("draws", [59, pytest.param(400, marks=pytest.mark.slow)])
def test_false_alarms_of_null_comparisons(draws: int) -> None:
    """200 comparisons of systems that are equally good, by CRG and by a mean: 5 % of p-values lie below 0.05."""
    alarms = {"randomisation": 0, "bootstrap": 0, "mean": 0}
    generator = torch.Generator().manual_seed(5)
    for seed in range(200):
        target, first = _label_counts(generator, 80, found=0.8)
        second = torch.where(torch.rand(80, 4, generator=generator) < 0.8, target, ~target)
        ours, theirs = [_counts(first, target)], [_counts(second, target)]
        alarms["randomisation"] += (
            paired_randomisation(ours, theirs, _crg, num_permutations=draws, seed=seed)[1] <= 0.05
        )
        alarms["bootstrap"] += paired_bootstrap(ours, theirs, _crg, num_resamples=draws, seed=seed).p_value <= 0.05
        right = [[[(side == target).double().mean(1)]] for side in (first, second)]
        alarms["mean"] += paired_randomisation(*right, num_permutations=draws, seed=seed).p_value <= 0.05
    assert {name: 0.02 <= count / 200 <= 0.08 for name, count in alarms.items()} == dict.fromkeys(alarms, True), alarms


def test_holm_rejects_what_the_step_down_procedure_rejects() -> None:
    generator = random.Random(0)
    for _ in range(50):
        p_values = [generator.random() ** 3 for _ in range(generator.randint(1, 6))]
        corrected = holm_correction(p_values)
        for level in (0.01, 0.05, 0.2):
            rejected = set()
            for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
                if p_values[place] > level / (len(p_values) - rank):
                    break
                rejected.add(place)
            assert {place for place, p in enumerate(corrected) if p <= level} == rejected


def test_undefined_values_have_no_p_value() -> None:
    none = [torch.zeros(4)] * 4
    assert math.isnan(paired_randomisation([none], [none], _crg, num_permutations=10).p_value)
    assert math.isnan(paired_bootstrap([none], [none], _crg, num_resamples=10).p_value)
    one = torch.tensor([1.0])
    assert math.isnan(paired_bootstrap([[one]], [[one]], num_resamples=10).low)


ONE, EMPTY = [[torch.ones(2)]], [[torch.ones(0)]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (partial(test, first, second), message)
            for test in (paired_bootstrap, paired_randomisation)
            for first, second, message in [
                ([], ONE, "at least one run"),
                ([[]], ONE, "at least one column"),
                (ONE, [[torch.ones(3)]], r"got \[2, 3\] rows"),
                (EMPTY, EMPTY, "at least one report"),
            ]
        ),
        (partial(paired_randomisation, ONE, ONE, num_permutations=0), "num_permutations"),
        (partial(paired_bootstrap, ONE, ONE, num_resamples=0), "num_resamples"),
        (partial(paired_bootstrap, ONE, ONE, draws=[]), "draws"),
        (partial(paired_randomisation, ONE, ONE, places=[]), "places"),
        (partial(holm_correction, [0.5, 1.5]), r"p_values\[1\]"),
    ],
)
def test_wrong_arguments_are_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_weighted_mean_repeats_rows() -> None:
    values = torch.tensor([1.0, 2.0, 4.0])
    weights = torch.tensor([[1, 1, 1], [3, 0, 1]])
    assert weighted_mean(weights, values).tolist() == pytest.approx([7 / 3, 7 / 4])
