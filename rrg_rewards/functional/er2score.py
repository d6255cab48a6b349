"""ER²Score: margin reward enforcement, the loss that trains one reward a criterion on pairs of reports (Liu et al.)."""

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

__all__ = ["MarginRewardEnforcementLoss", "margin_reward_enforcement_loss", "margin_reward_enforcement_terms"]

Reduction = Literal["sum", "mean", "none"]


class MarginRewardEnforcementLoss(NamedTuple):
    """The loss and what it is made of, for logging.

    Args:
        loss: What is minimised.
        individual: Loss of the criteria's rewards, a mean over criteria in each pair.
        total: Loss of the rewards' sum, before it is weighted.
    """

    loss: Tensor
    individual: Tensor
    total: Tensor


def margin_reward_enforcement_loss(
    accepted_rewards: Tensor,
    rejected_rewards: Tensor,
    accepted_scores: Tensor,
    rejected_scores: Tensor,
    *,
    lam: float = 1.0,
    c: float = 1e-2,
    individual: bool = True,
    total: bool = True,
    reduction: Reduction = "sum",
) -> Tensor:
    r"""Margin reward enforcement: the better report's rewards must exceed the other's by as much as its scores do.

    Of a pair of reports on the same reference, the accepted one has rewards :math:`r_w` and scores :math:`s_w`, the
    rejected one :math:`r_l` and :math:`s_l`. With margins :math:`m_j = s_{w,j} - s_{l,j}`, of which the sum :math:`m`
    is positive and each may be of either sign, and with :math:`t_j` = 1 where :math:`m_j > 0`, else -1,

    .. math::
        \mathcal L_{ind} &= \frac{1}{N} \sum_{j=1}^{N} \begin{cases}
            \max(0,\; t_j m_j - t_j (r_{w,j} - r_{l,j})) & s_{w,j} \neq s_{l,j} \\
            \max(0,\; |r_{w,j} - r_{l,j}| - c) & s_{w,j} = s_{l,j}
        \end{cases} \\
        \mathcal L_{tot} &= \max\Bigl(0,\; m - \sum_j (r_{w,j} - r_{l,j})\Bigr) \\
        \mathcal L &= \sum_{i=1}^{K} \mathcal L_{ind} + \lambda \mathcal L_{tot}

    Only differences enter: a constant on a criterion's rewards changes nothing. It is 0 where all differences of
    rewards are those of scores.

    A score that is NaN on either side was not annotated: the criterion takes no part in that pair, neither in the two
    sums nor in :math:`N`. That is an extension of the paper's equation, in which all are annotated.

    Half precision rewards are widened to float32 before anything is subtracted, and scores never become narrower than
    float32.

    Source: Liu et al., "ER²Score", Section 3.3 (Eq. 1); Table 6 for the loss with one of its terms.

    Args:
        accepted_rewards: Rewards ``(K, N)`` of the accepted reports, of K pairs and N criteria.
        rejected_rewards: Rewards ``(K, N)`` of the rejected reports.
        accepted_scores: True scores ``(K, N)`` of the accepted reports, higher being better, as
            :meth:`rrg_rewards.schemas.ScoringSystem.contributions` gives them; NaN where not annotated.
        rejected_scores: True scores ``(K, N)`` of the rejected reports.
        lam: :math:`\lambda`, the weight of the total's loss; at least 0.
        c: How far apart rewards may be where scores are equal; at least 0.
        individual: Whether the criteria's loss is minimised.
        total: Whether the total's loss is minimised.
        reduction: ``"sum"`` over pairs as published, ``"mean"``, or ``"none"`` for ``(K,)``.

    Returns:
        The loss in float32, or in float64 where rewards are: a scalar, or ``(K,)``.

    Raises:
        ValueError: If shapes differ or hold no pair, a score is infinite, an accepted total is not above the rejected
            one, ``lam`` or ``c`` is negative, both terms are switched off or the reduction is unknown.

    Example:
        >>> import torch
        >>> accepted, rejected = torch.tensor([[-1.0, 0.0]]), torch.tensor([[-3.0, 0.0]])
        >>> margin_reward_enforcement_loss(accepted, rejected, accepted, rejected)
        tensor(0.)
        >>> margin_reward_enforcement_loss(torch.zeros(1, 2), torch.zeros(1, 2), accepted, rejected)
        tensor(3.)
    """
    return margin_reward_enforcement_terms(
        accepted_rewards,
        rejected_rewards,
        accepted_scores,
        rejected_scores,
        lam=lam,
        c=c,
        individual=individual,
        total=total,
        reduction=reduction,
    ).loss


def margin_reward_enforcement_terms(
    accepted_rewards: Tensor,
    rejected_rewards: Tensor,
    accepted_scores: Tensor,
    rejected_scores: Tensor,
    *,
    lam: float = 1.0,
    c: float = 1e-2,
    individual: bool = True,
    total: bool = True,
    reduction: Reduction = "sum",
) -> MarginRewardEnforcementLoss:
    """:func:`margin_reward_enforcement_loss` with the two terms that it is made of.

    Arguments and errors are the same. A term that is switched off is left out of the loss and told all the same.

    Returns:
        The loss and its terms, each reduced alike: scalars, or ``(K,)``.

    Example:
        >>> import torch
        >>> accepted, rejected = torch.tensor([[-1.0, 0.0]]), torch.tensor([[-3.0, 0.0]])
        >>> margin_reward_enforcement_terms(torch.zeros(1, 2), torch.zeros(1, 2), accepted, rejected, total=False)
        MarginRewardEnforcementLoss(loss=tensor(1.), individual=tensor(1.), total=tensor(2.))
    """
    _check_settings(lam, c, individual, total, reduction)
    _check_shapes(accepted_rewards, rejected_rewards, accepted_scores, rejected_scores)
    margins = _margins(accepted_scores, rejected_scores)
    annotated = ~margins.isnan()
    # Not NaN inside the terms: its gradient would be NaN even where the mask takes the term out.
    margins = margins.masked_fill(~annotated, 0.0)
    totals = _total_margins(margins, accepted_scores, rejected_scores)
    widest = torch.promote_types(torch.promote_types(accepted_rewards.dtype, rejected_rewards.dtype), torch.float32)
    gaps = accepted_rewards.to(widest) - rejected_rewards.to(widest)
    gaps = torch.where(annotated, gaps, torch.zeros_like(gaps))
    flags = torch.where(margins > 0, 1.0, -1.0).to(widest)
    unequal = (flags * (margins.to(widest) - gaps)).relu()
    each = torch.where(margins != 0, unequal, (gaps.abs() - c).relu()) * annotated
    of_criteria = each.sum(1) / annotated.sum(1)
    of_total = (totals.to(widest) - gaps.sum(1)).relu()
    loss = torch.zeros_like(of_total)
    if individual:
        loss = loss + of_criteria
    if total:
        loss = loss + lam * of_total
    return MarginRewardEnforcementLoss(*(_reduced(term, reduction) for term in (loss, of_criteria, of_total)))


def _check_settings(lam: float, c: float, individual: bool, total: bool, reduction: str) -> None:
    for name, value in {"lam": lam, "c": c}.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a finite number of at least 0, got {value}")
    if not individual and not total:
        raise ValueError("individual and total are both off: there is nothing to minimise")
    if reduction not in get_args(Reduction):
        raise ValueError(f"reduction must be 'sum', 'mean' or 'none', got {reduction!r}")


def _check_shapes(accepted_rewards: Tensor, *others: Tensor) -> None:
    shape = tuple(accepted_rewards.shape)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"accepted_rewards must have shape (K, N) with at least one pair and criterion, got {shape}")
    names = ("rejected_rewards", "accepted_scores", "rejected_scores")
    for name, values in zip(names, others, strict=True):
        if tuple(values.shape) != shape:
            raise ValueError(f"{name} must have the shape of accepted_rewards {shape}, got {tuple(values.shape)}")


def _margins(accepted_scores: Tensor, rejected_scores: Tensor) -> Tensor:
    """By how much the accepted report is better at each criterion; NaN where that is not annotated."""
    for name, scores in {"accepted_scores": accepted_scores, "rejected_scores": rejected_scores}.items():
        if bool(scores.isinf().any()):
            raise ValueError(f"{name} must be finite; give NaN where a criterion is not annotated")
    widest = torch.promote_types(torch.promote_types(accepted_scores.dtype, rejected_scores.dtype), torch.float32)
    return accepted_scores.detach().to(widest) - rejected_scores.detach().to(widest)


def _total_margins(margins: Tensor, accepted_scores: Tensor, rejected_scores: Tensor) -> Tensor:
    totals = margins.sum(1)
    wrong = (totals <= 0).nonzero()
    if len(wrong):
        row = int(wrong[0])
        both = ~(accepted_scores[row].isnan() | rejected_scores[row].isnan())
        if not bool(both.any()):
            raise ValueError(f"pair {row}: no criterion is annotated in both reports; leave the pair out")
        accepted, rejected = (float(scores[row][both].sum()) for scores in (accepted_scores, rejected_scores))
        raise ValueError(
            f"pair {row}: the accepted total must be above the rejected one, got {accepted:g} and {rejected:g}; "
            "swap the two reports, or leave a tie out"
        )
    return totals


def _reduced(term: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return term
    return term.mean() if reduction == "mean" else term.sum()
