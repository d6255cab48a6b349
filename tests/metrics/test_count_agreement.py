"""Agreement of counts: exact over batches; categories without annotations are excluded."""

import math

import pytest
import torch
from scipy.stats import kendalltau

from rrg_rewards.metrics.count_agreement import CountAgreement

PREDS = torch.rand(50, 3, generator=torch.Generator().manual_seed(0)) * 4 - 0.5
TARGET = torch.randint(0, 4, (50, 3), generator=torch.Generator().manual_seed(1)).float()


def test_batches_add_up() -> None:
    metric = CountAgreement("ABC")
    for start in range(0, 50, 7):
        metric.update(PREDS[start : start + 7], TARGET[start : start + 7])
    clipped = PREDS.clamp(min=0)
    assert float(metric.compute()) == pytest.approx(kendalltau(clipped.sum(1), TARGET.sum(1)).statistic)
    found = metric.statistics()
    for place, name in enumerate("ABC"):
        assert float(found[f"mae_{name}"]) == pytest.approx(float((clipped - TARGET).abs()[:, place].mean()))
    assert float(found["mae"]) == pytest.approx(float((clipped.sum(1) - TARGET.sum(1)).abs().mean()))
    metric.reset()
    assert math.isnan(metric.compute())


def test_what_is_not_annotated_takes_no_part() -> None:
    metric, whole = CountAgreement("ABC"), CountAgreement("ABC")
    partly = TARGET.clone()
    partly[:20, 2] = math.nan
    metric.update(PREDS, partly)
    whole.update(PREDS[20:], TARGET[20:])
    assert metric.compute() == whole.compute()
    ours, theirs = metric.statistics(), whole.statistics()
    assert (ours["mae"], ours["mae_C"]) == (theirs["mae"], theirs["mae_C"])
    assert ours["mae_A"] == pytest.approx(float((PREDS.clamp(min=0) - TARGET).abs()[:, 0].mean()))


def test_wrong_input_is_told() -> None:
    with pytest.raises(ValueError, match="must be distinct names, at least one, got"):
        CountAgreement(["A", "A"])
    metric = CountAgreement("ABC")
    with pytest.raises(ValueError, match=r"must both be \(N, 3\), got \(50, 2\) and \(50, 3\)"):
        metric.update(PREDS[:, :2], TARGET)
    with pytest.raises(ValueError, match="preds must be finite"):
        metric.update(PREDS / 0, TARGET)
