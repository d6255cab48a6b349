"""Macro-averaged CRG: constants earn 1/3, mean contributions are the score; the best constant by brute force."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import recall_score
from torch import Tensor

from rrg_rewards.functional import (
    crg_best_constant,
    crg_contributions,
    crg_label_weights,
    crg_macro_score_from_counts,
    crg_multilevel_score,
    crg_score,
    crg_score_from_counts,
    label_counts,
)

floor = st.sampled_from([0.0, 0.05, 0.2, 0.5])


@st.composite
def label_pairs(draw: st.DrawFn, labels: int | None = None) -> tuple[Tensor, Tensor]:
    """Predicted and reference labels; at least one label has both classes in the references."""
    shape = (draw(st.integers(2, 14)), labels or draw(st.integers(1, 6)))
    preds, target = (draw(arrays(np.bool_, shape)) for _ in range(2))
    assume((target.any(0) & ~target.all(0)).any())
    return torch.from_numpy(preds), torch.from_numpy(target)


def both_classes(target: Tensor) -> Tensor:
    return target.any(0) & ~target.all(0)


def macro_by_recalls(preds: Tensor, target: Tensor) -> float:
    """1 / (3 - 2J) with J from scikit-learn's recalls of both classes of each label."""
    informed = [
        recall_score(target[:, column], preds[:, column], pos_label=True)
        + recall_score(target[:, column], preds[:, column], pos_label=False)
        - 1
        for column in both_classes(target).nonzero().flatten().tolist()
    ]
    return 1 / (3 - 2 * sum(informed) / len(informed))


@given(label_pairs())
def test_equals_the_mean_over_labels_of_sklearn(pair: tuple[Tensor, Tensor]) -> None:
    assert crg_score(*pair, average="macro").item() == pytest.approx(macro_by_recalls(*pair), rel=1e-12)


@given(label_pairs(labels=4), floor)
def test_every_constant_earns_a_third(pair: tuple[Tensor, Tensor], min_prevalence: float) -> None:
    target = pair[1]
    for chosen in product([False, True], repeat=4):
        preds = torch.tensor(chosen).expand_as(target)
        score = crg_score(preds, target, average="macro", min_prevalence=min_prevalence)
        assert abs(score.item() - 1 / 3) < 1e-12
        contributions = crg_contributions(preds, target, average="macro", min_prevalence=min_prevalence)
        assert abs(contributions.mean().item() + 1) < 1e-12


@given(label_pairs(), floor)
def test_mean_contribution_is_the_corpus_score(pair: tuple[Tensor, Tensor], min_prevalence: float) -> None:
    mean = crg_contributions(*pair, average="macro", min_prevalence=min_prevalence).mean()
    score = crg_score(*pair, average="macro", min_prevalence=min_prevalence)
    torch.testing.assert_close(1 / (2 - mean), score, rtol=1e-12, atol=1e-12)
    assert 1 / 5 - 1e-12 <= score.item() <= 1 + 1e-12


@given(label_pairs())
def test_the_extremes(pair: tuple[Tensor, Tensor]) -> None:
    target = pair[1]
    assert crg_score(target, target, average="macro").item() == 1
    assert crg_score(~target, target, average="macro").item() == pytest.approx(1 / 5)


@given(label_pairs(labels=3), label_pairs(labels=3), floor)
def test_contributions_do_not_depend_on_other_reports(
    first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], min_prevalence: float
) -> None:
    settings = {"prior": (0.02, 0.4, 1.0), "average": "macro", "min_prevalence": min_prevalence}
    apart = torch.cat([crg_contributions(*first, **settings), crg_contributions(*second, **settings)])
    together = crg_contributions(*(torch.cat(column) for column in zip(first, second, strict=True)), **settings)
    assert torch.equal(together, apart)


def test_one_label_is_the_published_score() -> None:
    preds, target = torch.tensor([[1], [0], [1], [0]]), torch.tensor([[1], [0], [0], [0]])
    torch.testing.assert_close(crg_score(preds, target, average="macro"), crg_score(preds, target))
    torch.testing.assert_close(crg_contributions(preds, target, average="macro"), crg_contributions(preds, target))


def test_contributions_by_hand() -> None:
    preds, target = torch.tensor([[1, 1, 1]]), torch.tensor([[1, 0, 1]])
    given = {"prior": [0.1, 0.5, 1.0], "average": "macro"}
    assert crg_contributions(preds, target, **given).item() == pytest.approx((1 / 0.1 - 2 / 0.5) / 2)
    # The first label weighs 0.1 / 0.4.
    floored = crg_contributions(preds, target, **given, min_prevalence=0.4).item()
    assert floored == pytest.approx((0.25 * 10 - 4) / 1.25)


@given(label_pairs(labels=5), st.floats(0.01, 0.5))
def test_the_floor_bounds_each_decision(pair: tuple[Tensor, Tensor], min_prevalence: float) -> None:
    prior = pair[1].double().mean(0)
    weights = crg_label_weights(prior, min_prevalence)
    known = weights > 0
    assert torch.equal(known, both_classes(pair[1]))
    assert (weights[known] / prior[known]).max() <= 1 / min_prevalence + 1e-9
    assert (weights[known] / (1 - prior[known])).max() <= 1 / min_prevalence + 1e-9
    assert torch.equal(crg_label_weights(prior)[known], torch.ones(int(known.sum()), dtype=torch.float64))


def test_the_floor_changes_the_score_only_if_a_label_is_rarer() -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(400, 3, generator=generator) < torch.tensor([0.02, 0.3, 0.6])
    preds = target ^ (torch.rand(400, 3, generator=generator) < torch.tensor([0.3, 0.05, 0.2]))
    rare = crg_score(preds, target, average="macro")
    assert torch.equal(crg_score(preds, target, average="macro", min_prevalence=0.005), rare)
    assert crg_score(preds, target, average="macro", min_prevalence=0.2) != rare


@given(label_pairs())
def test_best_constant_is_that_of_all_subsets(pair: tuple[Tensor, Tensor]) -> None:
    target = pair[1]
    best = crg_best_constant(label_counts(*pair, dim=0))
    assert all(count.dtype == torch.long for count in best)
    subsets = product([False, True], repeat=target.shape[1])
    scores = [crg_score(torch.tensor(chosen).expand_as(target), target).item() for chosen in subsets]
    found = crg_score_from_counts(*(count.sum() for count in best)).item()
    assert found == pytest.approx(max(scores), rel=1e-12)
    chosen = (best.tp + best.fp > 0).expand_as(target)
    assert crg_score(chosen, target).item() == pytest.approx(found, rel=1e-12)


def test_levels_are_averaged() -> None:
    generator = torch.Generator().manual_seed(0)
    levels = [torch.rand(2, 30, width, generator=generator) < 0.3 for width in (3, 5)]
    preds, target = ([level[side] for level in levels] for side in range(2))
    scores = [crg_score(*level, average="macro", min_prevalence=0.25) for level in zip(preds, target, strict=True)]
    found = crg_multilevel_score(preds, target, average="macro", min_prevalence=0.25)
    torch.testing.assert_close(found, (scores[0] + scores[1]) / 2)


@pytest.mark.parametrize("value", [0, 1])
def test_without_a_label_of_both_classes(value: int) -> None:
    preds, target = torch.tensor([[1, 0], [0, 1]]), torch.full((2, 2), value)
    with pytest.warns(UserWarning, match="no label has both a positive and a negative reference") as caught:
        assert crg_score(preds, target, average="macro").isnan()
    assert len(caught) == 1
    expected = [-1.0, -1.0] if value == 0 else [0.0, 0.0]
    assert crg_contributions(preds, target, average="macro").tolist() == expected
    with pytest.warns(UserWarning, match="no label in level 1 has both"):
        assert crg_multilevel_score([torch.eye(2), preds], [torch.eye(2), target], average="macro").isnan()


def test_no_report() -> None:
    with pytest.warns(UserWarning, match="no label has both"):
        assert crg_score(torch.zeros(0, 3), torch.zeros(0, 3), average="macro").isnan()
    assert crg_contributions(torch.zeros(0, 3), torch.zeros(0, 3), average="macro").shape == (0,)


def test_counts_of_many_corpora_at_once() -> None:
    counts = label_counts(torch.eye(3), torch.eye(3).flip(0), dim=0)
    both = type(counts)(*(torch.stack([count, count]) for count in counts))
    assert torch.equal(crg_macro_score_from_counts(both), crg_macro_score_from_counts(counts).expand(2))


EYE = torch.eye(3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"average": "mean"}, "average must"),
        ({"min_prevalence": 0.1}, "min_prevalence applies to average='macro' only"),
        ({"average": "macro", "min_prevalence": 0.6}, "min_prevalence must"),
        ({"average": "macro", "min_prevalence": float("nan")}, "min_prevalence must lie in"),
        ({"average": "macro", "prior": 0.2}, r"one for each label, for average='macro', got shape \(\)"),
        ({"average": "macro", "prior": [0.2, 0.3]}, "prior must contain 3 prevalences"),
        ({"average": "macro", "prior": [0.2, 0.3, 1.2]}, "prior must"),
        ({"average": "macro", "prior": [0.2, 0.3, float("nan")]}, "prior must"),
        ({"average": "macro", "prior": [0.0, 1.0, 0.0]}, "prior must"),
        ({"prior": [0.2, 0.3, 0.4]}, r"one number in \(0, 1\) for average='micro'"),
        ({"prior": torch.tensor([0.2, 0.3, 0.4])}, r"one number in \(0, 1\) for average='micro'"),
    ],
)
def test_wrong_settings_raise(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        crg_contributions(EYE, EYE, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("average", "prior"), [("micro", 0.2), ("micro", None), ("macro", [0.2, 0.5]), ("macro", None)]
)
def test_contributions_are_on_the_device_of_the_labels(average: str, prior: float | list[float] | None) -> None:
    # The meta device has no values, so that the result cannot come from a tensor of another device.
    preds = target = torch.zeros(3, 2, dtype=torch.bool, device="meta")
    found = crg_contributions(preds, target, prior, average=average)
    assert (found.device.type, found.shape) == ("meta", (3,))
