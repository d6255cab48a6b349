"""CRG over several levels of labels (Hamamci et al., MIDL 2025, Section 2.2).

The labels of all levels may be columns of one matrix; the numbers of columns of the levels are then called widths.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rrg_rewards.functional.crg import (
    CRGAverage,
    check_average,
    contributions_of_counts,
    crg_best_constant,
    crg_macro_score_from_counts,
    crg_score_from_counts,
    macro_contributions,
    mean_positives,
    warn_if_undefined,
    warn_if_undefined_macro,
)
from rrg_rewards.functional.label_counts import LabelCounts, label_counts


def crg_multilevel_score(
    preds: Sequence[Tensor], target: Sequence[Tensor], average: CRGAverage = "micro", min_prevalence: float = 0.0
) -> Tensor:
    r"""Compute CRG over several levels of labels: the mean of the scores of the levels.

    .. math::
        CRG_{final} = \frac{1}{K} \sum_{k=1}^{K} CRG_k

    Each level is a label matrix, for example of abnormalities, and of the types and locations of one abnormality
    (paper, Section 2.2).

    Args:
        preds: One matrix of predicted labels ``(N_k, L_k)`` for each level.
        target: One matrix of reference labels ``(N_k, L_k)`` for each level.
        average: Average over the labels of each level, as in :func:`crg_score`.
        min_prevalence: As in :func:`crg_score`.

    Returns:
        float64 scalar in [1/5, 1], higher is better; NaN, with a warning, if any level is undefined.

    Raises:
        ValueError: If there is no level, the numbers of levels differ, a level is malformed, or for an argument that
            :func:`crg_score` refuses.

    Example:
        >>> import torch
        >>> abnormalities = torch.tensor([[1, 0], [0, 1]])
        >>> opacity_types = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 1]])
        >>> crg_multilevel_score([abnormalities, 0 * opacity_types], [abnormalities, opacity_types])
        tensor(0.6667, dtype=torch.float64)
    """
    if len(preds) != len(target) or not preds:
        raise ValueError(f"preds and target must hold the same number of levels, got {len(preds)} and {len(target)}")
    check_average(average, min_prevalence)
    counts = [label_counts(*level, dim=0) for level in zip(preds, target, strict=True)]
    return crg_level_scores(counts, average, min_prevalence).mean()


def crg_level_scores(
    counts: Sequence[LabelCounts], average: CRGAverage = "micro", min_prevalence: float = 0.0, warn: bool = True
) -> Tensor:
    """Compute the CRG of each level from the counts of its labels.

    Args:
        counts: Counts ``(..., L_k)`` of each level.
        average: Average over the labels of each level.
        min_prevalence: As in :func:`crg_score`.
        warn: Whether to warn of undefined levels; only for counts ``(L_k,)``.

    Returns:
        float64 tensor ``(..., K)``; NaN for an undefined level.
    """
    if average == "macro":
        for level, of_level in enumerate(counts):
            if warn:
                warn_if_undefined_macro(of_level, level if len(counts) > 1 else None)
        return torch.stack([crg_macro_score_from_counts(of_level, min_prevalence) for of_level in counts], dim=-1)
    columns = ([count.sum(-1) for count in column] for column in zip(*counts, strict=True))
    pooled = LabelCounts(*(torch.stack(column, dim=-1) for column in columns))
    if warn:
        warn_if_undefined(pooled)
    return crg_score_from_counts(*pooled)


def best_constant_of_levels(
    counts: LabelCounts, widths: Sequence[int], average: CRGAverage = "micro", min_prevalence: float = 0.0
) -> Tensor:
    """Return the best score of all texts that are the same for every study: the mean of the best of each level.

    Args:
        counts: Counts of the labels of all levels, ``(L,)``; only the references matter.
        widths: Number of labels of each level.
        average: Average over the labels of each level.
        min_prevalence: As in :func:`crg_score`.
    """
    best = [crg_best_constant(level) for level in split_levels(counts, widths)]
    return crg_level_scores(best, average, min_prevalence, warn=False).mean()


def split_levels(counts: LabelCounts, widths: Sequence[int]) -> list[LabelCounts]:
    """Split counts of the labels of all levels, ``(..., L)``, into the counts of each level, ``(..., L_k)``.

    Args:
        counts: Counts of the labels; the last dimension has the labels of the levels in order.
        widths: Number of labels :math:`L_k` of each level.

    Example:
        >>> counts = LabelCounts(*torch.tensor([[1, 2, 3]] * 4))
        >>> [level.tp.tolist() for level in split_levels(counts, (1, 2))]
        [[1], [2, 3]]
    """
    parts = (torch.split(count, list(widths), dim=-1) for count in counts)
    return [LabelCounts(*level) for level in zip(*parts, strict=True)]


def level_counts(preds: Tensor, target: Tensor, widths: Sequence[int]) -> LabelCounts:
    """Count the labels of each level in each report: int64 ``(N, K)``.

    Args:
        preds: Predicted labels of all levels ``(N, L)``.
        target: Reference labels of all levels ``(N, L)``.
        widths: Number of labels of each level.
    """
    levels = zip(torch.split(preds, list(widths), dim=1), torch.split(target, list(widths), dim=1), strict=True)
    counts = [label_counts(*level, dim=1) for level in levels]
    return LabelCounts(*(torch.stack(column, dim=1) for column in zip(*counts, strict=True)))


def crg_level_contributions(
    preds: Tensor,
    target: Tensor,
    widths: Sequence[int],
    prior: Tensor | None = None,
    average: CRGAverage = "micro",
    min_prevalence: float = 0.0,
) -> Tensor:
    r"""Compute the contribution of each report to the CRG of each level.

    Each level has the contributions :math:`\rho_{ik}` of :func:`crg_contributions` for its own labels and prevalence.
    :math:`CRG_k = 1 / (2 - \overline{\rho_k})`, so that :math:`CRG_{final}` increases with each mean contribution.

    Args:
        preds: Predicted labels of all levels ``(N, L)``, bool or 0/1.
        target: Reference labels of all levels ``(N, L)``, bool or 0/1.
        widths: Number of labels of each of the ``K`` levels; their sum is ``L``.
        prior: Prevalence of positive labels in [0, 1]: with ``"micro"`` one for each level, ``(K,)``, with ``"macro"``
            one for each label, ``(L,)``. Default: the prevalence of ``target``. The terms of a prevalence of 0 or 1
            that are 0/0 have their limit.
        average: Average over the labels of each level.
        min_prevalence: As in :func:`crg_contributions`.

    Returns:
        float64 tensor ``(N, K)``.

    Example:
        >>> target = torch.tensor([[1, 0, 1], [0, 1, 0]])
        >>> crg_level_contributions(target, target, widths=(2, 1))
        tensor([[1., 2.],
                [1., 0.]], dtype=torch.float64)
    """
    check_average(average, min_prevalence)
    if average == "macro":
        sizes = list(widths)
        priors = [None] * len(sizes) if prior is None else torch.split(prior, sizes)
        levels = zip(torch.split(preds.bool(), sizes, dim=1), torch.split(target.bool(), sizes, dim=1), strict=True)
        return torch.stack(
            [macro_contributions(*level, own, min_prevalence) for level, own in zip(levels, priors, strict=True)], dim=1
        )
    counts = level_counts(preds, target, widths)
    labels = torch.tensor(widths, dtype=torch.float64, device=target.device)
    positives = mean_positives(counts) if prior is None else prior.to(labels) * labels
    return contributions_of_counts(counts, positives, labels - positives)
