"""How well predicted rewards order reports of one reference as their scores do."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from rrg_rewards.functional.rank_correlation import kendall_tau, spearman_rho
from rrg_rewards.metrics.base import ScalarMetric

__all__ = ["GradedRewards", "RewardAgreement", "annotated_totals", "preference_pairs"]

# Contributions are rounded to float32: what differs by less than so much of the largest one is tied.
_TIE = 1e-6
# Indices of references are kept as float32.
_MOST_REFERENCES = 2**24


class GradedRewards(NamedTuple):
    """Predicted rewards of reports beside what their scores contribute, and how well the two agree.

    Args:
        rewards: ``(N, C)`` predicted rewards, float64.
        contributions: ``(N, C)`` true contributions, float64; NaN where a criterion is not annotated.
        reference: ``(N,)`` index of each report's reference, int64.
    """

    rewards: Tensor
    contributions: Tensor
    reference: Tensor

    def accuracy(self) -> Tensor:
        """Share of accepted/rejected pairs that predicted totals order rightly: float64, NaN without a pair.

        Totals are over the criteria that are annotated in both reports; a predicted tie is no agreement.
        """
        accepted, rejected = preference_pairs(self.contributions, self.reference)
        known = ~(self.contributions[accepted] - self.contributions[rejected]).isnan()
        difference = ((self.rewards[accepted] - self.rewards[rejected]) * known).sum(1)
        return (difference > 0).double().mean()

    def statistics(self, criteria: Sequence[str]) -> dict[str, Tensor]:
        """Accuracy by criterion, and rank correlations of totals: float64 scalars.

        ``accuracy_<criterion>`` is the share, of the accepted/rejected pairs that differ in the criterion, whose
        rewards for it are ordered as its contributions are; NaN where no pair differs. ``kendall`` (tau-b) and
        ``spearman`` are between predicted and true totals (:func:`annotated_totals`), also of different references.

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
    """All pairs of reports of one reference whose totals differ, the better one first.

    Totals are over the criteria that are annotated in both reports of a pair.

    Args:
        contributions: ``(N, C)`` contributions; NaN where a criterion is not annotated.
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
    # NaN in either leaves the criterion out of both totals.
    margin = (contributions[first] - contributions[second]).double().nansum(1)
    rows = torch.where((margin > 0)[:, None], torch.stack([first, second], 1), torch.stack([second, first], 1))
    rows = rows[margin.abs() > _tie(contributions)]
    return rows[:, 0], rows[:, 1]


def annotated_totals(rewards: Tensor, contributions: Tensor) -> tuple[Tensor, Tensor]:
    """Predicted and true sums of what is annotated in the same way, so that they can be compared.

    Criteria that no report is annotated with are left out of sums, and then reports with a criterion that is not
    annotated.

    Args:
        rewards: ``(N, C)`` predicted rewards.
        contributions: ``(N, C)`` true contributions; NaN where a criterion is not annotated.

    Returns:
        Predicted and true sums of the ``M`` reports that are left, each ``(M,)``.

    Example:
        >>> contributions = torch.tensor([[-1.0, 0.0, torch.nan], [-2.0, torch.nan, torch.nan]])
        >>> annotated_totals(torch.ones(2, 3), contributions)
        (tensor([2.]), tensor([-1.]))
    """
    annotated = ~contributions.isnan()
    used = annotated.any(0)
    whole = annotated[:, used].all(1) & used.any()
    return rewards[whole][:, used].sum(1), contributions[whole][:, used].sum(1)


def _tie(contributions: Tensor) -> float:
    return _TIE * max(1.0, float(contributions.nan_to_num().abs().max())) if contributions.numel() else _TIE


class RewardAgreement(ScalarMetric):
    r"""Share of accepted/rejected pairs that the total of predicted rewards orders as the true totals do.

    A pair is two reports of one reference whose true totals differ; a predicted tie is no agreement. A report's pairs
    may lie on other processes: rewards and contributions of every report are kept and sent between processes,
    ``2 C + 1`` float32 a report, so that the value is that of one process, however unevenly reports are spread.

    Args:
        criteria: Names of the ``C`` criteria.
        kwargs: Arguments of ``torchmetrics.Metric``.

    Raises:
        ValueError: If there is no criterion, or one is named twice.

    Example:
        >>> metric = RewardAgreement(["location", "severity"])
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

    # One tensor while they are synced.
    rows: list[Tensor]

    def __init__(self, criteria: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not criteria or len(set(criteria)) < len(criteria):
            raise ValueError(f"criteria must be one name or more, each once, got {list(criteria)}")
        self.criteria = tuple(criteria)
        # Flat: what torchmetrics sends in place of the values of a process without any has one dimension.
        self.add_state("rows", [], dist_reduce_fx="cat")

    def update(self, rewards: Tensor, contributions: Tensor, reference: Tensor) -> None:
        """Add reports.

        Args:
            rewards: ``(N, C)`` predicted rewards.
            contributions: ``(N, C)`` true contributions; NaN where a criterion is not annotated.
            reference: ``(N,)`` index of each report's reference, the same on all processes, from 0 on.

        Raises:
            ValueError: If a shape is another one, a predicted reward is not finite, or an index is too large.
        """
        shape = (len(rewards), len(self.criteria))
        if tuple(rewards.shape) != shape or tuple(contributions.shape) != shape or reference.shape != shape[:1]:
            raise ValueError(
                f"rewards and contributions must both be (N, {len(self.criteria)}) and reference (N,), got "
                f"{tuple(rewards.shape)}, {tuple(contributions.shape)} and {tuple(reference.shape)}"
            )
        if not bool(rewards.isfinite().all()):
            raise ValueError("rewards must be finite; has the training diverged? A lower learning rate helps")
        if bool(((reference < 0) | (reference >= _MOST_REFERENCES)).any()):
            raise ValueError(f"reference must lie from 0 to {_MOST_REFERENCES - 1}")
        parts = [part.detach().to(torch.float32) for part in (rewards, contributions, reference[:, None])]
        self.rows.append(torch.cat(parts, 1).flatten())

    def compute(self) -> Tensor:
        """Share of pairs that are ordered rightly: float64, NaN without a pair."""
        return self._graded().accuracy()

    def graded(self) -> GradedRewards:
        """Rewards and contributions of all reports on all processes.

        Every process must call it; the order of rows is that of processes, then of updates.
        """
        with self._synced():
            return self._graded()

    def statistics(self) -> dict[str, Tensor]:
        """:meth:`GradedRewards.statistics` over all processes. Every process must call it."""
        return self.graded().statistics(self.criteria)

    def _graded(self) -> GradedRewards:
        flat = dim_zero_cat(self.rows) if len(self.rows) else torch.zeros(0, device=self.device)
        size = len(self.criteria)
        rows = flat.reshape(-1, 2 * size + 1)
        return GradedRewards(rows[:, :size].double(), rows[:, size:-1].double(), rows[:, -1].long())
