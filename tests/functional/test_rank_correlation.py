"""Rank correlations compared with SciPy."""

import math
from collections.abc import Callable

import pytest
import torch
from scipy.stats import kendalltau, spearmanr

from rrg_rewards.functional import kendall_tau, rank_correlation, spearman_rho


@pytest.mark.parametrize("seed", range(20))
def test_they_are_scipys(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(seed)
    size = int(torch.randint(2, 300, (1,), generator=generator))
    # With ties on both sides.
    preds = torch.randint(-5, 20, (size,), generator=generator) / 4
    target = torch.randint(0, 6, (size,), generator=generator)
    expected = kendalltau(preds, target).statistic
    assert float(kendall_tau(preds, target)) == pytest.approx(expected, nan_ok=True, abs=1e-12)
    rho = spearmanr(preds, target).statistic
    assert float(spearman_rho(preds, target)) == pytest.approx(rho, nan_ok=True, abs=1e-12)
    monkeypatch.setattr(rank_correlation, "_PAIRS_AT_ONCE", 7 * size)
    assert float(kendall_tau(preds, target)) == pytest.approx(expected, nan_ok=True, abs=1e-12)


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0]])
def test_what_ranks_nothing_is_nan(values: list[float]) -> None:
    others = torch.arange(len(values)).float()
    assert math.isnan(kendall_tau(torch.tensor(values), others))
    assert math.isnan(kendall_tau(others, torch.tensor(values)))
    assert math.isnan(spearman_rho(torch.tensor(values), others))


@pytest.mark.parametrize("correlation", [kendall_tau, spearman_rho])
def test_wrong_input_is_told(correlation: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(ValueError, match=r"must both be \(N,\), got \(2,\) and \(3,\)"):
        correlation(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="must not contain NaN"):
        correlation(torch.tensor([0.0, math.nan]), torch.zeros(2))
