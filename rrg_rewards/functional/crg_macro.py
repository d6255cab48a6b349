"""CRG with a weight for each label from the label's own prevalence, under which every constant text scores 1/3."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rrg_rewards.functional.label_counts import LabelCounts, label_statistics

__all__ = [
    "CRGAverage",
    "check_average",
    "crg_label_weights",
    "crg_macro_score_from_counts",
    "label_priors",
    "macro_contributions",
    "macro_youden_j",
    "prevalences",
]

CRGAverage = Literal["micro", "macro"]
"""How CRG averages over labels: over all label decisions (``"micro"``, as published), or label by label."""


def check_average(average: str, min_prevalence: float) -> None:
    """Raise a ValueError for an unknown average, or for a ``min_prevalence`` that does not apply to it."""
    if average not in ("micro", "macro"):
        raise ValueError(f"average must be 'micro' or 'macro', got {average!r}")
    if not 0 <= min_prevalence <= 0.5:
        raise ValueError(f"min_prevalence must lie in [0, 0.5], got {min_prevalence}")
    if average == "micro" and min_prevalence:
        raise ValueError(
            "min_prevalence applies to average='macro' only: average='micro' does not weigh labels by their prevalence"
        )


def label_priors(priors: Sequence[float] | Tensor | float, num_labels: int, unit: str = "label") -> Tensor:
    """Return the prior of ``average="macro"`` as a float64 tensor ``(L,)``; also that of several levels.

    Args:
        priors: Prevalence of each label, in [0, 1].
        num_labels: Number of labels ``L``.
        unit: What has a prevalence, for messages: ``label`` or ``level``.

    Raises:
        ValueError: If the number of prevalences is another one, a prevalence is out of range, or none lies in (0, 1).

    Example:
        >>> label_priors([0.5, 0.0], num_labels=2)
        tensor([0.5000, 0.0000], dtype=torch.float64)
    """
    found = torch.as_tensor(priors, dtype=torch.float64)
    if found.shape != (num_labels,):
        setting = "average='macro'" if unit == "label" else "levels"
        raise ValueError(
            f"prior must contain {num_labels} prevalences, one for each {unit}, for {setting}, got shape "
            f"{tuple(found.shape)}"
        )
    if not bool(((found >= 0) & (found <= 1)).all()):
        raise ValueError(f"prior must lie in [0, 1] for each {unit}, got {found.tolist()}")
    if not bool(((found > 0) & (found < 1)).any()):
        raise ValueError(f"prior must lie in (0, 1) for at least one {unit}; CRG is undefined for 0 and 1")
    return found


def prevalences(counts: LabelCounts) -> Tensor:
    """Return the prevalence of each label in the references: float64, of the shape of the counts; NaN without any.

    Example:
        >>> prevalences(LabelCounts(*torch.tensor([[1], [1], [0], [6]])))
        tensor([0.2500], dtype=torch.float64)
    """
    positives = (counts.tp + counts.fn).double()
    return positives / (positives + counts.fp + counts.tn)


def crg_label_weights(prevalence: Tensor, min_prevalence: float = 0.0) -> Tensor:
    r"""Compute the weight of each label in the macro average of CRG.

    With prevalence :math:`p` of a label and the floor :math:`m`:

    .. math::
        w = \begin{cases} 0 & p \in \{0, 1\} \\ \min\left(1, \frac{\min(p, 1 - p)}{m}\right) & \text{else} \end{cases}

    A label that all or no references have is left out, because its Youden's J is undefined. A label that is rarer than
    the floor weighs less in proportion, so that one decision never weighs more than a decision on a label with
    prevalence :math:`m`. Weights do not change what a constant text earns.

    Args:
        prevalence: Prevalences ``(..., L)``; NaN for a label without references.
        min_prevalence: :math:`m` in [0, 0.5]; 0 for no floor.

    Returns:
        float64 tensor of the same shape, in [0, 1].

    Raises:
        ValueError: If ``min_prevalence`` lies outside [0, 0.5].

    Example:
        >>> crg_label_weights(torch.tensor([0.0, 0.01, 0.3]), min_prevalence=0.05)
        tensor([0.0000, 0.2000, 1.0000], dtype=torch.float64)
    """
    check_average("macro", min_prevalence)
    prevalence = prevalence.double()
    rarer = torch.minimum(prevalence, 1 - prevalence)
    weights = (rarer / min_prevalence).clamp(max=1.0) if min_prevalence else torch.ones_like(rarer)
    return torch.where(rarer > 0, weights, 0.0)


def macro_youden_j(counts: LabelCounts, min_prevalence: float = 0.0) -> Tensor:
    r"""Compute the weighted mean of the labels' Youden's J, :math:`J = \sum_l w_l J_l / \sum_l w_l`.

    Args:
        counts: Counts ``(..., L)``.
        min_prevalence: Floor of :func:`crg_label_weights`.

    Returns:
        float64 tensor ``(...)`` in [-1, 1]; NaN if no label has both classes in the references.

    Example:
        >>> macro_youden_j(LabelCounts(*torch.tensor([[2, 0], [0, 1], [1, 0], [1, 3]])))
        tensor(0.2500, dtype=torch.float64)
    """
    weights = crg_label_weights(prevalences(counts), min_prevalence)
    by_label = torch.where(weights > 0, label_statistics(counts)["youden_j"], 0.0)
    return (weights * by_label).sum(-1) / weights.sum(-1)


def crg_macro_score_from_counts(counts: LabelCounts, min_prevalence: float = 0.0) -> Tensor:
    r"""Compute the macro-averaged CRG score from the confusion counts of each label.

    .. math::
        J = \frac{\sum_l w_l J_l}{\sum_l w_l}, \qquad
        J_l = \frac{TP_l}{TP_l + FN_l} - \frac{FP_l}{FP_l + TN_l}, \qquad CRG_{macro} = \frac{1}{3 - 2J}

    with the weights of :func:`crg_label_weights`. For a text that does not depend on the study, all reports have the
    same labels, so each :math:`J_l` is 0, and the score is 1/3 whatever the text says. The published score
    (:func:`crg_score_from_counts`) has this property only for texts with all labels or none.

    Args:
        counts: Counts ``(..., L)``.
        min_prevalence: Floor of :func:`crg_label_weights`, in [0, 0.5].

    Returns:
        float64 tensor ``(...)`` in [1/5, 1], higher is better; NaN if no label has both classes in the references.

    Raises:
        ValueError: If ``min_prevalence`` lies outside [0, 0.5].

    Example:
        >>> counts = LabelCounts(*torch.tensor([[2, 0], [0, 1], [1, 0], [1, 3]]))
        >>> crg_macro_score_from_counts(counts)
        tensor(0.4000, dtype=torch.float64)
    """
    return 1 / (3 - 2 * macro_youden_j(counts, min_prevalence))


def macro_contributions(preds: Tensor, target: Tensor, prior: Tensor | None, min_prevalence: float = 0.0) -> Tensor:
    r"""Compute the contribution of each report to the macro-averaged CRG score.

    .. math::
        \rho_i = \frac{1}{\sum_l w_l} \sum_l w_l \left(\frac{TP_{il} - FN_{il}}{p_l} - \frac{2 FP_{il}}{1 - p_l}\right)

    If no label has both classes, the sum is over all labels, with the limit of the terms that are 0/0.

    Args:
        preds: Predicted labels, bool ``(N, L)``.
        target: Reference labels, bool ``(N, L)``.
        prior: Prevalences ``(L,)``; ``None`` for those of ``target``.
        min_prevalence: Floor of :func:`crg_label_weights`.

    Returns:
        float64 tensor ``(N,)``.
    """
    prior = target.double().sum(0) / max(len(target), 1) if prior is None else prior.double().to(target.device)
    weights = crg_label_weights(prior, min_prevalence)
    weights = torch.where(weights.any(), weights, 1.0)
    found = torch.where(target, torch.where(preds, 1.0, -1.0).double(), 0.0)
    invented = (preds & ~target).double()
    # Without positives, `found` is 0; without negatives, `invented` is 0. The term is then 0 instead of 0/0.
    terms = torch.where(prior > 0, found / prior, 0.0) - torch.where(prior < 1, 2 * invented / (1 - prior), 0.0)
    return (terms * weights).sum(1) / weights.sum()
