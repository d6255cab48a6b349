"""CRG over several levels of labels (Hamamci et al., MIDL 2025, Section 2.2)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rrg_rewards.functional.crg import crg_score_from_counts, warn_if_undefined, warn_if_undefined_macro
from rrg_rewards.functional.crg_macro import CRGAverage, check_average, crg_macro_score_from_counts
from rrg_rewards.functional.label_counts import LabelCounts, label_counts

__all__ = ["crg_level_scores", "crg_multilevel_score"]


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
        counts: Counts ``(L_k,)`` of each level.
        average: Average over the labels of each level.
        min_prevalence: As in :func:`crg_score`.
        warn: Whether to warn of undefined levels.

    Returns:
        float64 tensor ``(K,)``; NaN for an undefined level.
    """
    if average == "macro":
        for level, of_level in enumerate(counts):
            if warn:
                warn_if_undefined_macro(of_level, level)
        return torch.stack([crg_macro_score_from_counts(of_level, min_prevalence) for of_level in counts])
    pooled = LabelCounts(*(torch.stack([count.sum() for count in column]) for column in zip(*counts, strict=True)))
    if warn:
        warn_if_undefined(pooled)
    return crg_score_from_counts(*pooled)
