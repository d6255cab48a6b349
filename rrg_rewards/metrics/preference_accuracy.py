"""Share of report pairs with the same reference that predicted rewards order as the true scores do."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from rrg_rewards.functional.correlation import kendall_tau, spearman_rho
from rrg_rewards.metrics.base import ScalarMetric

# Contributions are rounded to float32. Differences below this fraction of the largest contribution are ties.
_TIE = 1e-6
# Indices of references are stored as float32, which represents integers exactly up to this number.
_MOST_REFERENCES = 2**24


class GradedRewards(NamedTuple):
    """Predicted rewards and true contributions of reports.

    Args:
        rewards: ``(N, C)`` predicted rewards, float64.
        contributions: ``(N, C)`` true contributions, float64; NaN if a criterion is not annotated.
        reference: ``(N,)`` index of each report's reference, int64.
    """

    rewards: Tensor
    contributions: Tensor
    reference: Tensor

    def accuracy(self) -> Tensor:
        """Return the share of accepted/rejected pairs that predicted totals order correctly: float64, NaN if none.

        Totals are sums over the criteria that are annotated in both reports. A predicted tie is an error.
        """
        accepted, rejected = preference_pairs(self.contributions, self.reference)
        known = ~(self.contributions[accepted] - self.contributions[rejected]).isnan()
        difference = ((self.rewards[accepted] - self.rewards[rejected]) * known).sum(1)
        return (difference > 0).double().mean()

    def statistics(self, criteria: Sequence[str]) -> dict[str, Tensor]:
        """Return accuracies by criterion and rank correlations of totals: float64 scalars.

        ``accuracy_<criterion>``: among the accepted/rejected pairs that differ in the criterion, the share whose
        predicted rewards for the criterion have the same order as the contributions; NaN if no pair differs.
        ``kendall`` (tau-b) and ``spearman`` compare predicted and true totals (:func:`annotated_totals`) across
        references.

        Args:
            criteria: Names of the ``C`` criteria.
        """
        accepted, rejected = preference_pairs(self.contributions, self.reference)
        margin = self.contributions[accepted] - self.contributions[rejected]
        differs = margin.abs() > _tie(self.contributions)
        agrees = (self.rewards[accepted] - self.rewards[rejected]) * margin > 0
        by_criterion = (agrees & differs).double().sum(0) / differs.sum(0)
        totals = annotated_totals(self.rewards, self.contributions)
        return {
            **{f"accuracy_{name}": value for name, value in zip(criteria, by_criterion, strict=True)},
            "kendall": kendall_tau(*totals),
            "spearman": spearman_rho(*totals),
        }


def preference_pairs(contributions: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Return all pairs of reports with the same reference and different totals, the better report first.

    Totals are sums over the criteria that are annotated in both reports of a pair.

    Args:
        contributions: ``(N, C)`` contributions; NaN if a criterion is not annotated.
        reference: ``(N,)`` index of each report's reference.

    Returns:
        Rows of the accepted and of the rejected reports, each ``(K,)``.

    Example:
        >>> contributions = torch.tensor([[-1.0], [0.0], [-1.0], [-3.0]])
        >>> preference_pairs(contributions, torch.tensor([0, 0, 0, 7]))
        (tensor([1, 1]), tensor([0, 2]))
    """
    order = reference.argsort(stable=True)
    _, sizes = torch.unique_consecutive(reference[order], return_counts=True)
    starts = sizes.cumsum(0) - sizes
    found = [torch.zeros(0, 2, dtype=torch.int64, device=reference.device)]
    for size in sizes.unique().tolist():
        within = torch.combinations(torch.arange(size, device=reference.device), 2)
        found.append((starts[sizes == size, None, None] + within).reshape(-1, 2))
    first, second = order[torch.cat(found)].T
    # NaN in one report excludes the criterion from both totals.
    margin = (contributions[first] - contributions[second]).double().nansum(1)
    rows = torch.where((margin > 0)[:, None], torch.stack([first, second], 1), torch.stack([second, first], 1))
    rows = rows[margin.abs() > _tie(contributions)]
    return rows[:, 0], rows[:, 1]


def annotated_totals(rewards: Tensor, contributions: Tensor) -> tuple[Tensor, Tensor]:
    """Return comparable predicted and true totals of reports.

    Criteria that are annotated in no report are excluded first; then reports with a missing annotation are excluded.

    Args:
        rewards: ``(N, C)`` predicted rewards.
        contributions: ``(N, C)`` true contributions; NaN if a criterion is not annotated.

    Returns:
        Predicted and true totals of the ``M`` remaining reports, each ``(M,)``.

    Example:
        >>> contributions = torch.tensor([[-1.0, 0.0, torch.nan], [-2.0, torch.nan, torch.nan]])
        >>> annotated_totals(torch.ones(2, 3), contributions)
        (tensor([2.]), tensor([-1.]))
    """
    whole, used = rows_with_totals(contributions)
    return rewards[whole][:, used].sum(1), contributions[whole][:, used].sum(1)


def rows_with_totals(contributions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the reports and the criteria of :func:`annotated_totals` as masks, ``(N,)`` and ``(C,)``."""
    annotated = ~contributions.isnan()
    used = annotated.any(0)
    return annotated[:, used].all(1) & used.any(), used


def _tie(contributions: Tensor) -> float:
    return _TIE * max(1.0, float(contributions.nan_to_num().abs().max())) if contributions.numel() else _TIE


class PreferenceAccuracy(ScalarMetric):
    r"""Share of accepted/rejected pairs whose total predicted rewards have the same order as the true totals.

    A pair consists of two reports with the same reference and different true totals. A predicted tie is an error. In
    [0, 1], higher is better. The reports of a pair may be on different processes, so the states contain ``2 C + 1``
    float32 values for each report. They are gathered from all processes, so the result does not depend on the
    distribution of the reports over processes.

    Args:
        criteria: Names of the ``C`` criteria.
        kwargs: Arguments of ``torchmetrics.Metric``.

    Raises:
        ValueError: If there is no criterion, or a name is repeated.

    Example:
        >>> metric = PreferenceAccuracy(["location", "severity"])
        >>> contributions = torch.tensor([[0.0, 0.0], [-1.0, 0.0], [0.0, -2.0]])
        >>> rewards = torch.tensor([[0.1, 0.0], [-0.7, 0.2], [-0.9, -0.4]])
        >>> metric.update(rewards, contributions, torch.tensor([0, 0, 0]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
        >>> {name: round(float(value), 2) for name, value in metric.statistics().items()}
        {'accuracy_location': 0.5, 'accuracy_severity': 1.0, 'kendall': 1.0, 'spearman': 1.0}
    """

    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    # torchmetrics replaces the list by one tensor while the state is synced.
    rows: list[Tensor]

    def __init__(self, criteria: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not criteria or len(set(criteria)) < len(criteria):
            raise ValueError(f"criteria must be distinct names, at least one, got {list(criteria)}")
        self.criteria = tuple(criteria)
        # The state is flat, because torchmetrics gathers a one-dimensional placeholder from a process without data.
        self.add_state("rows", [], dist_reduce_fx="cat")

    def update(self, rewards: Tensor, contributions: Tensor, reference: Tensor) -> None:
        """Add reports.

        Args:
            rewards: ``(N, C)`` predicted rewards.
            contributions: ``(N, C)`` true contributions; NaN if a criterion is not annotated.
            reference: ``(N,)`` index of each report's reference, at least 0; a reference has the same index on all
                processes.

        Raises:
            ValueError: If a shape is wrong, a predicted reward is not finite, or an index is too large. On a GPU,
                ``compute`` raises the errors of values, because ``update`` does not wait to read them.
        """
        shape = (len(rewards), len(self.criteria))
        if tuple(rewards.shape) != shape or tuple(contributions.shape) != shape or reference.shape != shape[:1]:
            raise ValueError(
                f"rewards and contributions must both be (N, {len(self.criteria)}) and reference (N,), got "
                f"{tuple(rewards.shape)}, {tuple(contributions.shape)} and {tuple(reference.shape)}"
            )
        if rewards.device.type == "cpu":
            _check_values(rewards, reference)
        parts = [part.detach().to(torch.float32) for part in (rewards, contributions, reference[:, None])]
        self.rows.append(torch.cat(parts, 1).flatten())

    def compute(self) -> Tensor:
        """Share of correctly ordered pairs: float64, NaN without a pair."""
        return self._graded().accuracy()

    def graded(self) -> GradedRewards:
        """Return the rewards and contributions of all reports on all processes.

        Every process must call this method. Rows are ordered by process, then by update.
        """
        with self._synced():
            return self._graded()

    def statistics(self) -> dict[str, Tensor]:
        """Return :meth:`GradedRewards.statistics` over all processes. Every process must call this method."""
        return self.graded().statistics(self.criteria)

    def _graded(self) -> GradedRewards:
        flat = dim_zero_cat(self.rows) if len(self.rows) else torch.zeros(0, dtype=torch.float32, device=self.device)
        size = len(self.criteria)
        rows = flat.reshape(-1, 2 * size + 1)
        _check_values(rows[:, :size], rows[:, -1])
        return GradedRewards(rows[:, :size].double(), rows[:, size:-1].double(), rows[:, -1].long())


def _check_values(rewards: Tensor, reference: Tensor) -> None:
    if not bool(rewards.isfinite().all()):
        raise ValueError("rewards must be finite; has the training diverged? A lower learning rate helps")
    if bool(((reference < 0) | (reference >= _MOST_REFERENCES)).any()):
        raise ValueError(f"reference must lie from 0 to {_MOST_REFERENCES - 1}")
