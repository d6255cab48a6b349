"""CRG compared with the paper, an independent implementation and scikit-learn, and its identities."""

import warnings
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from sklearn.metrics import multilabel_confusion_matrix, precision_recall_fscore_support
from torch import Tensor

from rrg_rewards.functional import (
    LabelCounts,
    crg_contributions,
    crg_multilevel_score,
    crg_score,
    crg_score_from_counts,
    crg_weights,
    label_averages,
    label_counts,
    label_statistics,
)

# Paper, Table 2: TP, FN, FP, TN and the score printed.
TABLE_2 = {
    "RadFM": ((550, 9985, 1766, 42401), 0.3361, 0.335),
    "CT2Rep": ((1561, 8974, 1804, 42363), 0.3590, 0.359),
    "CT-CHAT": ((2224, 8311, 3081, 41086), 0.3680, 0.368),
    "Merlin": ((1504, 9031, 2694, 41473), 0.3526, 0.352),
}

counts = st.integers(0, 10_000)
prior = st.floats(0.01, 0.99)


@st.composite
def label_pairs(draw: st.DrawFn, labels: int | None = None) -> tuple[Tensor, Tensor]:
    """Predicted and reference labels; the references contain positive and negative labels."""
    shape = (draw(st.integers(1, 12)), labels or draw(st.integers(1, 6)))
    preds, target = (draw(arrays(np.bool_, shape)) for _ in range(2))
    assume(target.any() and not target.all())
    return torch.from_numpy(preds), torch.from_numpy(target)


def crg_by_the_paper(preds: NDArray[np.bool_], target: NDArray[np.bool_]) -> Fraction:
    """Equations 1 to 3, counted pair by pair in exact arithmetic."""
    tp = fn = fp = 0
    for predicted, wanted in zip(preds.ravel().tolist(), target.ravel().tolist(), strict=True):
        tp += predicted and wanted
        fn += wanted and not predicted
        fp += predicted and not wanted
    total, positives = target.size, int(target.sum())
    weight = Fraction(total - positives, 2 * positives)
    best = positives * weight
    score = tp * weight - fn * weight - fp
    return best / (2 * best - score)


@pytest.mark.parametrize(("matrix", "computed", "printed"), TABLE_2.values(), ids=TABLE_2)
def test_paper_table_2(matrix: tuple[int, int, int, int], computed: float, printed: float) -> None:
    score = crg_score_from_counts(*matrix).item()
    assert round(score, 4) == computed
    # RadFM and Merlin are printed as 0.335 and 0.352, though their printed counts give 0.336 and 0.353.
    assert score == pytest.approx(printed, abs=1.2e-3)


def test_real_system() -> None:
    score = crg_score_from_counts(tp=94, fn=415, fp=79, tn=5910)
    assert score.dtype == torch.float64
    assert score.item() == pytest.approx(0.37636006698031643, abs=1e-12)


@given(label_pairs())
def test_equals_the_paper(pair: tuple[Tensor, Tensor]) -> None:
    preds, target = pair
    assert crg_score(preds, target).item() == pytest.approx(float(crg_by_the_paper(preds.numpy(), target.numpy())))


@given(tp=counts, fn=counts, fp=counts, tn=counts)
def test_is_a_function_of_youden_j_in_range(tp: int, fn: int, fp: int, tn: int) -> None:
    assume(tp + fn and fp + tn)
    score = crg_score_from_counts(tp, fn, fp, tn).item()
    youden_j = tp / (tp + fn) - fp / (fp + tn)
    assert score == pytest.approx(1 / (3 - 2 * youden_j), rel=1e-12)
    assert 1 / 5 <= score <= 1


@given(label_pairs())
def test_mean_contribution_is_the_corpus_score(pair: tuple[Tensor, Tensor]) -> None:
    mean = crg_contributions(*pair).mean()
    youden_j = label_statistics(label_counts(*pair))["youden_j"]
    torch.testing.assert_close(mean, 2 * youden_j - 1)
    torch.testing.assert_close(1 / (2 - mean), crg_score(*pair))


@given(label_pairs(labels=4), prior)
def test_contributions_by_definition(pair: tuple[Tensor, Tensor], prior: float) -> None:
    weight = crg_weights(prior).tp
    per_report = label_counts(*pair, dim=1)
    raw = weight * per_report.tp - weight * per_report.fn - per_report.fp
    torch.testing.assert_close(crg_contributions(*pair, prior=prior), raw / (weight * prior * 4))


@given(label_pairs(labels=3), label_pairs(labels=3), prior)
def test_contributions_do_not_depend_on_other_reports(
    first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], prior: float
) -> None:
    apart = torch.cat([crg_contributions(*first, prior=prior), crg_contributions(*second, prior=prior)])
    together = crg_contributions(torch.cat([first[0], second[0]]), torch.cat([first[1], second[1]]), prior=prior)
    torch.testing.assert_close(together, apart)


@given(label_pairs(labels=3), prior)
def test_contributions_add_up_over_labels(pair: tuple[Tensor, Tensor], prior: float) -> None:
    preds, target = pair
    columns = [crg_contributions(preds[:, [k]], target[:, [k]], prior=prior) for k in range(3)]
    torch.testing.assert_close(crg_contributions(preds, target, prior=prior), torch.stack(columns).mean(0))


@given(label_pairs(), prior)
def test_contributions_in_range(pair: tuple[Tensor, Tensor], prior: float) -> None:
    contributions = crg_contributions(*pair, prior=prior)
    assert contributions.max() <= 1 / prior + 1e-9
    assert contributions.min() >= -max(1 / prior, 2 / (1 - prior)) - 1e-9


@given(label_pairs())
def test_trivial_generators_score_a_third(pair: tuple[Tensor, Tensor]) -> None:
    target = pair[1]
    for preds in (torch.zeros_like(target), torch.ones_like(target)):
        assert crg_score(preds, target).item() == pytest.approx(1 / 3)
    assert crg_score(target, target).item() == 1
    assert crg_score(~target, target).item() == pytest.approx(1 / 5)


@given(label_pairs())
def test_counts_and_statistics_equal_sklearn(pair: tuple[Tensor, Tensor]) -> None:
    preds, target = (labels.numpy().astype(int) for labels in pair)
    # A second, empty label: scikit-learn treats a single column as a multiclass problem.
    preds, target = (np.pad(labels, ((0, 0), (0, 1))) for labels in (preds, target))
    ours = label_counts(torch.from_numpy(preds), torch.from_numpy(target), dim=0)
    theirs = multilabel_confusion_matrix(target, preds)
    assert torch.stack([ours.tn, ours.fp, ours.fn, ours.tp], dim=1).tolist() == theirs.reshape(-1, 4).tolist()
    statistics = label_statistics(label_counts(torch.from_numpy(preds), torch.from_numpy(target)))
    precision, recall, f1, _ = precision_recall_fscore_support(target, preds, average="micro", zero_division=np.nan)
    for name, value in {"precision": precision, "recall": recall, "f1": f1}.items():
        assert statistics[name].item() == pytest.approx(value, nan_ok=True), name


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_averages_equal_sklearn(average: str) -> None:
    """Also with a label that is never predicted, one that no reference has, and one with neither."""
    rng = np.random.default_rng(5)
    preds, target = (rng.random((50, 7)) < [0.5, 0.1, 0.3, 0.0, 0.4, 0.0, 0.9] for _ in range(2))
    preds[:, 4] = False
    target[:, 1] = False
    found = label_averages(label_counts(torch.from_numpy(preds), torch.from_numpy(target), dim=0), average)
    precision, recall, f1, _ = precision_recall_fscore_support(target, preds, average=average, zero_division=0)
    expected = {"precision": precision, "recall": recall, "f1": f1, "accuracy": (preds == target).mean()}
    assert {name: float(value) for name, value in found.items()} == pytest.approx(expected, rel=1e-12)


def test_pooled_counts_do_not_give_the_papers_precision() -> None:
    """Table 2 prints macro averages: its counts of CT-CHAT give a precision of 0.419, and it prints 0.450."""
    pooled = label_averages(LabelCounts(*(torch.tensor([count]) for count in (2224, 8311, 3081, 41086))), "micro")
    assert round(float(pooled["precision"]), 3) == 0.419
    # The paper prints 0.791.
    assert float(pooled["accuracy"]) == pytest.approx(0.7917, abs=5e-5)


def test_statistics_are_nan_without_a_denominator() -> None:
    statistics = label_statistics(LabelCounts(*(torch.tensor(count) for count in (0, 0, 0, 5))))
    assert statistics.pop("accuracy") == 1
    assert all(value.isnan() for value in statistics.values())


def test_counts_along_a_dimension() -> None:
    preds, target = torch.tensor([[1, 0], [1, 1]]), torch.tensor([[1, 1], [0, 1]])
    assert [count.tolist() for count in label_counts(preds, target, dim=0)] == [[1, 1], [0, 1], [1, 0], [0, 0]]
    assert [count.tolist() for count in label_counts(preds, target, dim=1)] == [[1, 1], [1, 0], [0, 1], [0, 0]]
    assert all(count.dtype == torch.long for count in label_counts(preds, target))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float64])
def test_any_dtype_of_zeros_and_ones(dtype: torch.dtype) -> None:
    labels = torch.tensor([[1, 0], [0, 1]]).to(dtype)
    assert crg_score(labels, labels).item() == 1


ZEROS, NAN = torch.zeros(2, 3), float("nan")
MALFORMED = {
    "no tensor": ([[0, 1]], ZEROS, TypeError, r"preds must be a tensor of shape \(N, L\), got list"),
    "one axis": (torch.zeros(3), torch.zeros(3), ValueError, r"preds must have shape \(N, L\), got \(3,\)"),
    "three axes": (ZEROS, torch.zeros(2, 3, 1), ValueError, r"target must have shape \(N, L\), got \(2, 3, 1\)"),
    "other N": (ZEROS, torch.zeros(3, 3), ValueError, r"same shape, got \(2, 3\) and \(3, 3\)"),
    "other L": (ZEROS, torch.zeros(2, 4), ValueError, r"same shape, got \(2, 3\) and \(2, 4\)"),
    "probability": (ZEROS + 0.5, ZEROS, ValueError, "preds must hold 0 and 1 only, got 0.5 in row 0, column 0"),
    "uncertain": (ZEROS, ZEROS - 1, ValueError, "target must hold 0 and 1 only, got -1.0"),
    "two": (ZEROS.long() + 2, ZEROS, ValueError, "preds must hold 0 and 1 only, got 2 in"),
    "NaN": (ZEROS, ZEROS + NAN, ValueError, "target must hold 0 and 1 only, got nan"),
    "infinity": (ZEROS, ZEROS + float("inf"), ValueError, "target must hold 0 and 1 only, got inf"),
}


@pytest.mark.parametrize("function", [crg_score, crg_contributions, label_counts])
@pytest.mark.parametrize(("preds", "target", "error", "message"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_labels_raise(function, preds, target, error, message) -> None:
    with pytest.raises(error, match=message):
        function(preds, target)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((partial(crg_contributions, ZEROS, ZEROS, prior=one), "prior") for one in (0.0, 1.0, -0.1, 1.5, NAN)),
        *((partial(crg_weights, one), "prior") for one in (0.0, -0.1, 1.5, NAN)),
        (partial(crg_score_from_counts, 1, 1, -1, 1), "fp"),
        (partial(crg_score, torch.diag(torch.tensor([1, 0, 7])), torch.zeros(3, 3)), r"got 7 in row 2, column 2"),
        (partial(crg_multilevel_score, [ZEROS], [ZEROS, ZEROS]), "levels, got 1 and 2"),
        (partial(crg_multilevel_score, [], []), "levels, got 0 and 0"),
    ],
)
def test_wrong_arguments_are_named(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("value", "missing"), [(0, "positive"), (1, "negative")])
def test_undefined_is_nan_with_one_warning(value: int, missing: str) -> None:
    target = torch.full((2, 3), value)
    with pytest.warns(UserWarning, match=f"hold no {missing} label") as caught:
        score = crg_score(torch.tensor([[1, 0, 0], [0, 0, 1]]), target)
    assert score.isnan()
    assert len(caught) == 1


def test_no_report_is_undefined() -> None:
    with pytest.warns(UserWarning, match="hold no positive label"):
        assert crg_score(torch.zeros(0, 3), torch.zeros(0, 3)).isnan()
    assert crg_contributions(torch.zeros(0, 3), torch.zeros(0, 3)).shape == (0,)


def test_contributions_stay_defined_without_positives_or_negatives() -> None:
    preds = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert crg_contributions(preds, torch.zeros(2, 4)).tolist() == [-0.5, 0]
        assert crg_contributions(preds, torch.ones(2, 4)).tolist() == [-0.5, -1]


def test_weights_balance_an_empty_and_an_exhaustive_report() -> None:
    weights = crg_weights(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64))
    odds = torch.tensor([9, 1, 1 / 9], dtype=torch.float64)
    torch.testing.assert_close((weights.tp + weights.fn) / weights.fp, odds)


def test_counts_broadcast() -> None:
    scores = crg_score_from_counts(torch.tensor([2, 0]), torch.tensor([0, 2]), 0, 5)
    torch.testing.assert_close(scores, torch.tensor([1, 1 / 3], dtype=torch.float64))


@given(label_pairs(), label_pairs())
def test_levels_are_averaged(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> None:
    levels = list(zip(first, second, strict=True))
    mean = (crg_score(*first) + crg_score(*second)) / 2
    torch.testing.assert_close(crg_multilevel_score(*levels), mean)


def test_undefined_levels_are_named_in_one_warning() -> None:
    zeros, mixed = torch.zeros(2, 3), torch.eye(2, 3)
    levels = [zeros, mixed, zeros, torch.ones(2, 3)]
    with pytest.warns(UserWarning, match="no positive label in level 0, 2 and no negative label in level 3") as caught:
        assert crg_multilevel_score(levels, levels).isnan()
    assert len(caught) == 1
