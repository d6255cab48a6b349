"""CRG of label matrices: for all batches, copies and collections, the value is that of the formula on all labels."""

import warnings
from typing import Any

import pytest
import torch
from sklearn.metrics import multilabel_confusion_matrix, precision_recall_fscore_support
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from words import WordLabeler, random_cuts, reports

from rrg_rewards.functional import crg_multilevel_score, crg_score
from rrg_rewards.metrics import CRGScore, MultiLevelCRGScore, ReportCRG

COUNTERS = ("tp", "fn", "fp", "tn")
NUM_LABELS = 5
LABELER = WordLabeler()


def labels(rows: int, columns: int = NUM_LABELS, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    preds, target = torch.rand(2, rows, columns, generator=generator) < 0.3
    return preds, target


# --- on label matrices


@pytest.mark.parametrize("per_label", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_crg_batches_equal_all_at_once(per_label: bool, seed: int) -> None:
    preds, target = labels(rows=40, seed=seed)
    metric = CRGScore(NUM_LABELS, per_label=per_label)
    for rows in random_cuts(40, seed):
        metric.update(preds[rows], target[rows])
    assert torch.equal(metric.compute(), crg_score(preds, target))


@pytest.mark.parametrize("per_label", [False, True])
def test_crg_empty_batch_adds_nothing(per_label: bool) -> None:
    metric = CRGScore(NUM_LABELS, per_label=per_label)
    metric.update(torch.zeros(0, NUM_LABELS), torch.zeros(0, NUM_LABELS))
    assert all(int(getattr(metric, name).sum()) == 0 for name in COUNTERS)
    metric.update(*labels(rows=8))
    metric.update(torch.zeros(0, NUM_LABELS, dtype=torch.long), torch.zeros(0, NUM_LABELS))
    assert torch.equal(metric.compute(), crg_score(*labels(rows=8)))


def test_crg_undefined_is_nan_with_one_warning() -> None:
    metric = CRGScore(NUM_LABELS)
    metric.update(torch.ones(2, NUM_LABELS), torch.zeros(2, NUM_LABELS))
    with pytest.warns(UserWarning, match="hold no positive label") as caught:
        assert metric.compute().isnan()
    assert len(caught) == 1


def test_crg_statistics_equal_sklearn() -> None:
    preds, target = labels(rows=60)
    metric = CRGScore(NUM_LABELS)
    metric.update(preds, target)
    expected = precision_recall_fscore_support(target.numpy(), preds.numpy(), average="micro")[:3]
    statistics = metric.statistics()
    assert [statistics[name].item() for name in ("precision", "recall", "f1")] == pytest.approx(expected)


def test_crg_statistics_of_each_label_equal_sklearn() -> None:
    preds, target = labels(rows=60)
    metric = CRGScore(NUM_LABELS, per_label=True)
    for rows in random_cuts(60, seed=0):
        metric.update(preds[rows], target[rows])
    table = metric.label_statistics()
    matrices = multilabel_confusion_matrix(target.numpy(), preds.numpy()).reshape(-1, 4)
    assert torch.stack([table[name] for name in ("tn", "fp", "fn", "tp")], dim=1).tolist() == matrices.tolist()
    expected = precision_recall_fscore_support(target.numpy(), preds.numpy(), average=None)[:3]
    for name, values in zip(("precision", "recall", "f1"), expected, strict=True):
        assert table[name].tolist() == pytest.approx(values.tolist()), name
    for column in range(NUM_LABELS):
        assert torch.equal(table["crg"][column], crg_score(preds[:, [column]], target[:, [column]]))


def test_crg_pooled_counts_have_no_table() -> None:
    with pytest.raises(ValueError, match="make it with per_label=True"):
        CRGScore(NUM_LABELS).label_statistics()


def test_crg_statistics_leave_the_state_alone() -> None:
    metric = CRGScore(NUM_LABELS, per_label=True)
    metric.update(*labels(rows=8))
    before = {name: getattr(metric, name).clone() for name in COUNTERS}
    metric.statistics(), metric.label_statistics()
    assert all(torch.equal(getattr(metric, name), before[name]) for name in COUNTERS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CRGScore(0), "num_labels must be positive, got 0"),
        (lambda: CRGScore(3).update(torch.zeros(1, 4), torch.zeros(1, 4)), "must have 3 columns, one per label, got 4"),
        (lambda: CRGScore(3).update(torch.zeros(1, 3), torch.zeros(2, 3)), r"\(1, 3\) and \(2, 3\)"),
        (lambda: MultiLevelCRGScore([]), r"num_labels must contain a positive number for each level, got \[\]"),
        (lambda: MultiLevelCRGScore([3, 0]), r"got \[3, 0\]"),
        (lambda: MultiLevelCRGScore([3]).update([], []), "must have 1 levels, got 0 and 0"),
        (
            lambda: MultiLevelCRGScore([1, 2]).update([torch.zeros(1, 1)] * 2, [torch.zeros(1, 1)] * 2),
            "level 1: preds and target must have 2 columns",
        ),
        (lambda: ReportCRG(LABELER, prior=1.0), r"prior must lie in \(0, 1\), got 1.0"),
        (lambda: ReportCRG("words:x"), "unknown labeler 'words'"),
        (lambda: ReportCRG("rules"), "needs an argument"),
    ],
)
def test_crg_wrong_arguments_raise(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_crg_a_malformed_level_changes_no_state() -> None:
    metric = MultiLevelCRGScore([1, 2])
    with pytest.raises(ValueError, match="level 1"):
        metric.update([torch.ones(1, 1), torch.ones(1, 3)], [torch.ones(1, 1), torch.ones(1, 3)])
    assert int(metric.tp.sum()) == 0


def test_crg_levels_equal_the_mean_over_batches() -> None:
    levels = [labels(rows=30, columns=columns, seed=columns) for columns in (2, 4, 1)]
    metric = MultiLevelCRGScore([2, 4, 1])
    for rows in random_cuts(30, seed=1):
        metric.update([preds[rows] for preds, _ in levels], [target[rows] for _, target in levels])
    assert torch.equal(metric.compute(), crg_multilevel_score(*zip(*levels, strict=True)))
    assert metric.level_scores().tolist() == [crg_score(*level).item() for level in levels]


def test_crg_undefined_level_makes_the_mean_nan() -> None:
    metric = MultiLevelCRGScore([2, 2])
    metric.update([torch.eye(2)] * 2, [torch.eye(2), torch.zeros(2, 2)])
    with pytest.warns(UserWarning, match="hold no positive label") as caught:
        assert metric.compute().isnan()
    assert len(caught) == 1
    assert metric.level_scores()[0].item() == 1


# --- states: size, copies, checkpoints


def filled() -> list[Metric]:
    """One metric of each kind with some data."""
    pooled, per_label = CRGScore(NUM_LABELS), CRGScore(NUM_LABELS, per_label=True)
    levels, text = MultiLevelCRGScore([NUM_LABELS, NUM_LABELS]), ReportCRG(LABELER)
    preds, target = labels(rows=12)
    for metric in (pooled, per_label):
        metric.update(preds, target)
    levels.update([preds, target], [target, preds])
    text.update(*reports(12))
    return [pooled, per_label, levels, text]


KINDS = ["pooled", "per label", "levels", "text"]


# --- collections


def test_crg_collection_shares_counters_where_they_are_the_same() -> None:
    collection = MetricCollection(
        {"a": CRGScore(NUM_LABELS), "b": CRGScore(NUM_LABELS), "l": CRGScore(NUM_LABELS, True)}
    )
    parts = [labels(rows=9, seed=seed) for seed in range(3)]
    for part in parts:
        collection.update(*part)
    assert sorted(map(sorted, collection.compute_groups.values())) == [["a", "b"], ["l"]]
    expected = crg_score(*(torch.cat(column) for column in zip(*parts, strict=True)))
    assert all(torch.equal(value, expected) for value in collection.compute().values())


def test_crg_signatures_tell_settings_apart() -> None:
    signatures = {
        metric.signature
        for metric in (
            CRGScore(3),
            CRGScore(4),
            MultiLevelCRGScore([3]),
            ReportCRG(LABELER),
            ReportCRG(LABELER, prior=0.5),
            ReportCRG(WordLabeler("cyst")),
        )
    }
    assert len(signatures) == 6


def test_crg_no_other_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for metric in filled():
            metric.compute()


def macro_labels(rows: int, columns: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rare = torch.linspace(0.0, 0.5, columns)
    preds, target = torch.rand(2, rows, columns, generator=generator) < rare
    return preds, target


@pytest.mark.parametrize("min_prevalence", [0.0, 0.3])
def test_crg_macro_batches_equal_all_at_once(min_prevalence: float) -> None:
    preds, target = macro_labels(rows=40)
    metric = CRGScore(5, average="macro", min_prevalence=min_prevalence)
    for rows in random_cuts(40, seed=0):
        metric.update(preds[rows], target[rows])
    expected = crg_score(preds, target, average="macro", min_prevalence=min_prevalence)
    assert torch.equal(metric.compute(), expected)
    assert torch.equal(1 / (3 - 2 * metric.statistics()["youden_j"]), expected)


def test_crg_levels_equal_all_at_once() -> None:
    levels = [macro_labels(30, columns, seed=columns) for columns in (3, 5)]
    metric = MultiLevelCRGScore([3, 5], average="macro")
    for rows in random_cuts(30, seed=1):
        metric.update([preds[rows] for preds, _ in levels], [target[rows] for _, target in levels])
    assert torch.equal(metric.compute(), crg_multilevel_score(*zip(*levels, strict=True), average="macro"))
    statistics = metric.statistics()
    assert statistics["best_constant"].item() == pytest.approx(1 / 3, abs=1e-12)
    assert [name for name in statistics if "/" in name] == ["left_out/level 0, 0", "left_out/level 1, 0"]
