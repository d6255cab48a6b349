"""ER²Score: margin reward enforcement, a loss that trains one reward per criterion on pairs of reports (Liu et al.)."""

import math
from typing import Literal, NamedTuple, TypedDict, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from rrg_rewards.utilities.names import shown

Reduction = Literal["sum", "mean", "none"]


class _Settings(TypedDict, total=False):
    lam: float
    c: float
    individual: bool
    total: bool
    reduction: Reduction


class MarginRewardEnforcementLoss(NamedTuple):
    """The loss and its terms, for logging.

    Args:
        loss: The loss.
        individual: Loss of the rewards by criterion, averaged over the criteria of a pair.
        total: Loss of the sum of the rewards, before it is weighted.
    """

    loss: Tensor
    individual: Tensor
    total: Tensor


def margin_reward_enforcement_loss(
    accepted_rewards: Tensor,
    rejected_rewards: Tensor,
    accepted_scores: Tensor,
    rejected_scores: Tensor,
    **settings: Unpack[_Settings],
) -> Tensor:
    r"""Margin reward enforcement loss: the rewards of two reports should differ as much as their scores.

    In a pair of reports for the same reference, the accepted report has rewards :math:`r_w` and scores :math:`s_w`, the
    rejected report :math:`r_l` and :math:`s_l`. A margin :math:`m_j = s_{w,j} - s_{l,j}` may have either sign; the sum
    of margins :math:`m` is positive. With :math:`t_j` = 1 if :math:`m_j > 0`, else -1,

    .. math::
        \mathcal L_{ind} &= \frac{1}{N} \sum_{j=1}^{N} \begin{cases}
            \max(0,\; t_j m_j - t_j (r_{w,j} - r_{l,j})) & s_{w,j} \neq s_{l,j} \\
            \max(0,\; |r_{w,j} - r_{l,j}| - c) & s_{w,j} = s_{l,j}
        \end{cases} \\
        \mathcal L_{tot} &= \max\Bigl(0,\; m - \sum_j (r_{w,j} - r_{l,j})\Bigr) \\
        \mathcal L &= \sum_{i=1}^{K} \mathcal L_{ind} + \lambda \mathcal L_{tot}

    The loss depends on differences of rewards only, and is 0 if they equal the differences of scores.

    A NaN score is not annotated. The criterion is then excluded from the pair, from both sums and from :math:`N`. This
    extends the equation of the paper, which assumes that all criteria are annotated.

    Rewards and scores in half precision are converted to float32 before the subtraction.

    Source: Liu et al., "ER²Score", Section 3.3 (Eq. 1); Table 6 for the loss with one of its terms.

    Args:
        accepted_rewards: Rewards ``(K, N)`` of the accepted reports, for K pairs and N criteria.
        rejected_rewards: Rewards ``(K, N)`` of the rejected reports.
        accepted_scores: True scores ``(K, N)`` of the accepted reports, higher is better, as
            :meth:`rrg_rewards.schemas.ScoringSystem.contributions` returns them; NaN if not annotated.
        rejected_scores: True scores ``(K, N)`` of the rejected reports.
        settings: The following keyword arguments.
        lam: :math:`\lambda`, the weight of the loss of the sum; at least 0. Default: 1.
        c: Tolerated difference of rewards for equal scores; at least 0. Default: 0.01.
        individual: Whether the loss includes the term of the single criteria. Default: ``True``.
        total: Whether the loss includes the term of the sum. Default: ``True``.
        reduction: ``"sum"`` over pairs as published (default), ``"mean"``, or ``"none"`` for ``(K,)``.

    Returns:
        The loss, a scalar or ``(K,)``, in float32, or in float64 if the rewards are float64.

    Raises:
        ValueError: If shapes differ or are empty, a score is infinite, an accepted total is not above the rejected one,
            ``lam`` or ``c`` is negative, both terms are switched off or the reduction is unknown.

    Example:
        >>> import torch
        >>> accepted, rejected = torch.tensor([[-1.0, 0.0]]), torch.tensor([[-3.0, 0.0]])
        >>> margin_reward_enforcement_loss(accepted, rejected, accepted, rejected)
        tensor(0.)
        >>> margin_reward_enforcement_loss(torch.zeros(1, 2), torch.zeros(1, 2), accepted, rejected)
        tensor(3.)
    """
    return margin_reward_enforcement_terms(
        accepted_rewards, rejected_rewards, accepted_scores, rejected_scores, **settings
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
    """Compute :func:`margin_reward_enforcement_loss` and its two terms.

    The arguments and errors are the same. A term that is switched off is returned, but excluded from the loss.

    Returns:
        The loss and its terms with the same reduction: scalars, or ``(K,)``.

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
    # Fill NaN: its gradient would be NaN even for a masked term.
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
        raise ValueError(f"reduction must be 'sum', 'mean' or 'none', got {shown(reduction)}")


def _check_shapes(accepted_rewards: Tensor, *others: Tensor) -> None:
    shape = tuple(accepted_rewards.shape)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"accepted_rewards must have shape (K, N) with at least one pair and criterion, got {shape}")
    names = ("rejected_rewards", "accepted_scores", "rejected_scores")
    for name, values in zip(names, others, strict=True):
        if tuple(values.shape) != shape:
            raise ValueError(f"{name} must have the shape of accepted_rewards {shape}, got {tuple(values.shape)}")


def _margins(accepted_scores: Tensor, rejected_scores: Tensor) -> Tensor:
    """Return the differences of scores by criterion; NaN if not annotated."""
    for name, scores in {"accepted_scores": accepted_scores, "rejected_scores": rejected_scores}.items():
        if bool(scores.isinf().any()):
            raise ValueError(f"{name} must be finite; use NaN for a criterion that is not annotated")
    widest = torch.promote_types(torch.promote_types(accepted_scores.dtype, rejected_scores.dtype), torch.float32)
    return accepted_scores.detach().to(widest) - rejected_scores.detach().to(widest)


def _total_margins(margins: Tensor, accepted_scores: Tensor, rejected_scores: Tensor) -> Tensor:
    totals = margins.sum(1)
    wrong = (totals <= 0).nonzero()
    if len(wrong):
        row = int(wrong[0])
        both = ~(accepted_scores[row].isnan() | rejected_scores[row].isnan())
        if not bool(both.any()):
            raise ValueError(f"pair {row}: no criterion is annotated in both reports; remove the pair")
        accepted, rejected = (float(scores[row][both].sum()) for scores in (accepted_scores, rejected_scores))
        raise ValueError(
            f"pair {row}: the accepted total must be above the rejected one, got {accepted:g} and {rejected:g}; "
            "swap the two reports, or remove the pair if it is a tie"
        )
    return totals


def _reduced(term: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return term
    return term.mean() if reduction == "mean" else term.sum()
