"""Agreement of predicted error counts with true counts."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from rrg_rewards.functional.rank_correlation import kendall_tau
from rrg_rewards.metrics.base import ScalarMetric

__all__ = ["CountAgreement"]


class CountAgreement(ScalarMetric):
    r"""Kendall's :math:`\tau_b` between predicted and true total error counts of report pairs.

    In [-1, 1], higher is better. A rank correlation needs all values, so the states contain ``2 C`` float32 values for
    each pair. They are gathered from all processes, so the result does not depend on the distribution of the pairs over
    processes.

    Args:
        categories: Names of the ``C`` error categories.
        kwargs: Arguments of ``torchmetrics.Metric``.

    Raises:
        ValueError: If there is no category, or a name is repeated.

    Example:
        >>> import torch
        >>> metric = CountAgreement(["A", "B"])
        >>> metric.update(torch.tensor([[0.2, 0.1], [1.1, 0.0], [0.9, 2.5]]), torch.tensor([[0, 0], [1, 0], [1, 2]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
        >>> {name: round(float(value), 2) for name, value in metric.statistics().items()}
        {'mae_A': 0.13, 'mae_B': 0.2, 'mae': 0.27}
    """

    plot_lower_bound = -1.0
    plot_upper_bound = 1.0

    # torchmetrics replaces each list by one tensor while the states are synced.
    preds: list[Tensor]
    target: list[Tensor]

    def __init__(self, categories: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not categories or len(set(categories)) < len(categories):
            raise ValueError(f"categories must be distinct names, at least one, got {list(categories)}")
        self.categories = tuple(categories)
        # The states are flat, because torchmetrics gathers a one-dimensional placeholder from a process without data.
        self.add_state("preds", [], dist_reduce_fx="cat")
        self.add_state("target", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add counts of report pairs.

        Args:
            preds: ``(N, C)`` predicted counts; negative counts are replaced by 0, as in the score.
            target: ``(N, C)`` true counts; NaN if a category is not annotated.

        Raises:
            ValueError: If a shape is wrong, or a predicted count is not finite.
        """
        shape = (len(preds), len(self.categories))
        if tuple(preds.shape) != shape or tuple(target.shape) != shape:
            raise ValueError(
                f"preds and target must both be (N, {len(self.categories)}), got {tuple(preds.shape)} and "
                f"{tuple(target.shape)}"
            )
        if not bool(preds.isfinite().all()):
            raise ValueError("preds must be finite; has the training diverged? A lower learning rate helps")
        for values, state in ((preds, self.preds), (target, self.target)):
            state.append(values.detach().to(torch.float32).clamp(min=0).flatten())

    def compute(self) -> Tensor:
        """Kendall's tau of total counts: float64, NaN if all predicted or all true totals are equal.

        Pairs with a category that is not annotated have no true total and are excluded.
        """
        preds, target = self._counts()
        whole = ~target.isnan().any(1)
        return kendall_tau(preds[whole].sum(1), target[whole].sum(1))

    def counts(self) -> tuple[Tensor, Tensor]:
        """Return the predicted and true counts of all pairs on all processes, each ``(N, C)``.

        Every process must call this method. Rows are ordered by process, then by update.
        """
        with self._synced():
            return self._counts()

    def statistics(self) -> dict[str, Tensor]:
        """Mean absolute errors of each category (``mae_<category>``) and of the total (``mae``), over all processes.

        Every process must call this method. Only annotated counts are used; NaN if there is none.
        """
        preds, target = self.counts()
        by_category = (preds - target).abs().nanmean(0)
        total = (preds.sum(1) - target.sum(1)).abs().nanmean()
        return {**{f"mae_{c}": v for c, v in zip(self.categories, by_category, strict=True)}, "mae": total}

    def _counts(self) -> tuple[Tensor, Tensor]:
        none = torch.zeros(0, dtype=torch.float32, device=self.device)
        preds, target = (dim_zero_cat(state) if len(state) else none for state in (self.preds, self.target))
        # float64 sums of counts are not rounded, so totals do not depend on the device.
        return preds.reshape(-1, len(self.categories)).double(), target.reshape(-1, len(self.categories)).double()
