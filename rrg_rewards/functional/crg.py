"""CRG: a distribution-aware score of abnormality labels (Hamamci et al., MIDL 2025)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torchmetrics.utilities import rank_zero_warn

__all__ = [
    "CRGWeights",
    "LabelCounts",
    "crg_contributions",
    "crg_multilevel_score",
    "crg_score",
    "crg_score_from_counts",
    "crg_weights",
    "label_counts",
    "label_statistics",
    "label_table",
]


class LabelCounts(NamedTuple):
    """Confusion counts of binary labels; int64 tensors of the same shape."""

    tp: Tensor
    fn: Tensor
    fp: Tensor
    tn: Tensor


class CRGWeights(NamedTuple):
    """Weights of a true positive, a false negative and a false positive."""

    tp: Tensor
    fn: Tensor
    fp: Tensor


def _check_binary(name: str, labels: Tensor) -> Tensor:
    if not isinstance(labels, Tensor):
        raise TypeError(f"{name} must be a tensor of shape (N, L), got {type(labels).__name__}")
    if labels.ndim != 2:
        raise ValueError(f"{name} must have shape (N, L), got {tuple(labels.shape)}")
    if labels.dtype == torch.bool:
        return labels
    wrong = (labels != 0) & (labels != 1)
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"{name} must hold 0 and 1 only, got {labels[row, column].item()} in row {row}, column {column}; "
            "threshold probabilities and map uncertain or missing labels first"
        )
    return labels.bool()


def _check_pair(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    preds, target = _check_binary("preds", preds), _check_binary("target", target)
    if preds.shape != target.shape:
        raise ValueError(
            f"preds and target must have the same shape, got {tuple(preds.shape)} and {tuple(target.shape)}"
        )
    return preds, target


def label_counts(preds: Tensor, target: Tensor, dim: int | None = None) -> LabelCounts:
    """Count true positives, false negatives, false positives and true negatives of binary labels.

    Args:
        preds: Predicted labels ``(N, L)``, bool or 0/1.
        target: Reference labels ``(N, L)``, bool or 0/1.
        dim: Dimension to sum over: 0 for counts of labels ``(L,)``, 1 for counts of reports ``(N,)``, None for both.

    Raises:
        TypeError: If an argument is not a tensor.
        ValueError: If a shape is not ``(N, L)``, the shapes differ, or a value is neither 0 nor 1.

    Example:
        >>> import torch
        >>> label_counts(torch.tensor([[1, 0, 1]]), torch.tensor([[1, 1, 0]]))
        LabelCounts(tp=tensor(1), fn=tensor(1), fp=tensor(1), tn=tensor(0))
    """
    preds, target = _check_pair(preds, target)
    dims = (0, 1) if dim is None else (dim,)
    return LabelCounts(
        tp=(preds & target).sum(dims),
        fn=(~preds & target).sum(dims),
        fp=(preds & ~target).sum(dims),
        tn=(~preds & ~target).sum(dims),
    )


def label_statistics(counts: LabelCounts) -> dict[str, Tensor]:
    r"""Compute precision, recall, F1 and Youden's J from confusion counts.

    .. math::
        P = \frac{TP}{TP + FP}, \quad R = \frac{TP}{TP + FN}, \quad F_1 = \frac{2TP}{2TP + FP + FN}, \quad
        J = \frac{TP}{TP + FN} - \frac{FP}{FP + TN}

    Args:
        counts: Counts of any common shape.

    Returns:
        float64 tensors ``precision``, ``recall``, ``f1`` in [0, 1] and ``youden_j`` in [-1, 1], of the shape of the
        counts; higher is better; NaN if the denominator is 0.

    Example:
        >>> import torch
        >>> counts = LabelCounts(*(torch.tensor(count) for count in (94, 415, 79, 5910)))
        >>> {name: round(value.item(), 3) for name, value in label_statistics(counts).items()}
        {'precision': 0.543, 'recall': 0.185, 'f1': 0.276, 'youden_j': 0.171}
    """
    tp, fn, fp, tn = (torch.as_tensor(count).double() for count in counts)
    recall = tp / (tp + fn)
    return {
        "precision": tp / (tp + fp),
        "recall": recall,
        "f1": 2 * tp / (2 * tp + fp + fn),
        "youden_j": recall - fp / (fp + tn),
    }


def label_table(counts: LabelCounts) -> dict[str, Tensor]:
    """Return counts, precision, recall, F1, Youden's J and CRG of each label, as columns of a table.

    Args:
        counts: Counts of each label, ``(L,)``.

    Returns:
        Tensors ``(L,)`` by name: int64 ``tp``, ``fn``, ``fp``, ``tn``, and float64 ``precision``, ``recall``, ``f1``,
        ``youden_j``, ``crg``; NaN if undefined.

    Example:
        >>> import torch
        >>> target = torch.tensor([[1, 0], [0, 1]])
        >>> label_table(label_counts(target, target, dim=0))["crg"]
        tensor([1., 1.], dtype=torch.float64)
    """
    return {**counts._asdict(), **label_statistics(counts), "crg": crg_score_from_counts(*counts)}


def crg_weights(prior: float | Tensor) -> CRGWeights:
    r"""Compute the weights that give an empty and an exhaustive report the same score.

    With prevalence :math:`p = A/T` of positive labels in the references (paper, Eq. 2):

    .. math::
        w_{TP} = w_{FN} = \frac{T - A}{2A} = \frac{1 - p}{2p}, \qquad w_{FP} = 1

    Args:
        prior: Fraction of positive labels in the references, in (0, 1].

    Raises:
        ValueError: If the prior lies outside (0, 1].

    Example:
        >>> crg_weights(0.2).tp
        tensor(2., dtype=torch.float64)
    """
    prior = torch.as_tensor(prior, dtype=torch.float64)
    if not bool(((prior > 0) & (prior <= 1)).all()):
        raise ValueError(f"prior must lie in (0, 1], got {prior.tolist()}")
    weight = (1 - prior) / (2 * prior)
    return CRGWeights(tp=weight, fn=weight, fp=torch.ones_like(weight))


def crg_score_from_counts(tp: int | Tensor, fn: int | Tensor, fp: int | Tensor, tn: int | Tensor) -> Tensor:
    r"""Compute the CRG score from pooled confusion counts.

    With :math:`A = TP + FN` positive labels among :math:`T` (paper, Eq. 2 and 3):

    .. math::
        s = r \, TP - r \, FN - FP, \quad r = \frac{T - A}{2A}, \quad S_{max} = rA, \quad
        CRG = \frac{S_{max}}{2 S_{max} - s} = \frac{1}{3 - 2J}

    where :math:`J` is Youden's J of the pooled labels.

    Args:
        tp: True positives; the four counts are broadcast.
        fn: False negatives.
        fp: False positives.
        tn: True negatives.

    Returns:
        float64 tensor in [1/5, 1], higher is better; 1/3 for an always-normal and an always-abnormal generator; NaN if
        the references have no positive or no negative label, because the weights are then undefined.

    Raises:
        ValueError: If a count is negative.

    Example:
        >>> crg_score_from_counts(tp=94, fn=415, fp=79, tn=5910)
        tensor(0.3764, dtype=torch.float64)
    """
    counts = LabelCounts(*(torch.as_tensor(count) for count in (tp, fn, fp, tn)))
    for name, count in counts._asdict().items():
        if bool((count < 0).any()):
            raise ValueError(f"{name} must not be negative, got {count.tolist()}")
    tp_, fn_, fp_, tn_ = (count.double() for count in counts)
    # All terms are multiplied by 2A. The only division is the last one; only 0/0 gives NaN.
    negatives, positives = fp_ + tn_, tp_ + fn_
    best = negatives * positives
    score = negatives * (tp_ - fn_) - 2 * positives * fp_
    return best / (2 * best - score)


def crg_score(preds: Tensor, target: Tensor) -> Tensor:
    """Compute the CRG score of predicted labels, pooled over reports and labels.

    See :func:`crg_score_from_counts` for the formula, the range and the source.

    Args:
        preds: Predicted labels ``(N, L)``, bool or 0/1.
        target: Reference labels ``(N, L)``, bool or 0/1.

    Returns:
        float64 scalar in [1/5, 1], higher is better; NaN, with a warning, if undefined.

    Raises:
        TypeError: If an argument is not a tensor.
        ValueError: If a shape is not ``(N, L)``, the shapes differ, or a value is neither 0 nor 1.

    Example:
        >>> import torch
        >>> target = torch.tensor([[1, 0, 0, 1], [0, 0, 1, 0]])
        >>> crg_score(target, target)
        tensor(1., dtype=torch.float64)
        >>> crg_score(torch.zeros_like(target), target)
        tensor(0.3333, dtype=torch.float64)
    """
    counts = label_counts(preds, target)
    warn_if_undefined(counts)
    return crg_score_from_counts(*counts)


def warn_if_undefined(counts: LabelCounts) -> None:
    """Warn on the main process if there is no positive or no negative reference label.

    Args:
        counts: Pooled counts, scalars or one for each level.
    """
    missing = {
        "positive": (counts.tp + counts.fn == 0).flatten(),
        "negative": (counts.fp + counts.tn == 0).flatten(),
    }
    problems = []
    for kind, levels in missing.items():
        named = ", ".join(map(str, levels.nonzero().flatten().tolist()))
        if named:
            problems.append(f"no {kind} label" + (f" in level {named}" if len(levels) > 1 else ""))
    if problems:
        rank_zero_warn(
            f"CRG is undefined and returned as NaN: the reference labels hold {' and '.join(problems)}, so the weights "
            "(T - A) / (2A) have no meaning. Per-report contributions stay defined.",
            UserWarning,
        )


def check_prior(prior: float) -> None:
    """Raise a ValueError unless a prevalence lies in (0, 1)."""
    if not 0 < prior < 1:
        raise ValueError(f"prior must lie in (0, 1), got {prior}")


def crg_contributions(preds: Tensor, target: Tensor, prior: float | None = None) -> Tensor:
    r"""Compute the contribution of each report to the CRG score, a per-report reward.

    With prevalence :math:`p`, weights :math:`r, r, 1` of :func:`crg_weights` and :math:`L` labels, a report's raw
    score :math:`s_i = r \, TP_i - r \, FN_i - FP_i` is divided by the best score of a mean report, :math:`r p L`:

    .. math::
        \rho_i = \frac{s_i}{r p L} = \frac{TP_i - FN_i}{p L} - \frac{2 FP_i}{(1 - p) L}, \qquad
        \overline{\rho} = 2J - 1, \qquad CRG = \frac{1}{2 - \overline{\rho}}

    The two identities on the right hold if ``prior`` is the prevalence of ``target``, the default. The function uses
    the second form of :math:`\rho_i`, which contains no weight. A report without any abnormality therefore has a
    contribution, and a batch without any abnormality has the limit :math:`-2 FP_i / L`.

    Args:
        preds: Predicted labels ``(N, L)``, bool or 0/1.
        target: Reference labels ``(N, L)``, bool or 0/1.
        prior: Prevalence :math:`p` of positive labels in the references, in (0, 1). Use that of the training set for
            rewards that do not depend on the batch. Default: the prevalence of ``target``.

    Returns:
        float64 tensor ``(N,)``, higher is better: 0 for a report without positive labels on either side, at most
        :math:`1/p`, at least :math:`-1/p` (all false negatives) or :math:`-2/(1 - p)` (all false positives).

    Raises:
        TypeError: If an argument is not a tensor.
        ValueError: If a shape is not ``(N, L)``, the shapes differ, a value is neither 0 nor 1, or ``prior`` lies
            outside (0, 1).

    Example:
        >>> import torch
        >>> target = torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0]])
        >>> preds = torch.tensor([[1, 0, 0, 0], [0, 0, 1, 0]])
        >>> crg_contributions(preds, target)
        tensor([ 0.0000, -0.6667], dtype=torch.float64)
        >>> 1 / (2 - crg_contributions(preds, target).mean()), crg_score(preds, target)
        (tensor(0.4286, dtype=torch.float64), tensor(0.4286, dtype=torch.float64))
    """
    counts = label_counts(preds, target, dim=1)
    tp, fn, fp = counts.tp.double(), counts.fn.double(), counts.fp.double()
    if prior is None:
        positives = (tp + fn).sum() / max(target.shape[0], 1)
        negatives = target.shape[1] - positives
    else:
        check_prior(prior)
        positives = tp.new_tensor(prior * target.shape[1])
        negatives = tp.new_tensor((1 - prior) * target.shape[1])
    # Without positives, TP = FN = 0; without negatives, FP = 0. The term is then 0 instead of 0/0.
    found = torch.where(positives > 0, (tp - fn) / positives, 0.0)
    invented = torch.where(negatives > 0, 2 * fp / negatives, 0.0)
    return found - invented


def crg_multilevel_score(preds: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    r"""Compute CRG over several levels of labels: the mean of the scores of the levels.

    .. math::
        CRG_{final} = \frac{1}{K} \sum_{k=1}^{K} CRG_k

    Each level is a label matrix, for example of abnormalities, and of the types and locations of one abnormality
    (paper, Section 2.2).

    Args:
        preds: One matrix of predicted labels ``(N_k, L_k)`` for each level.
        target: One matrix of reference labels ``(N_k, L_k)`` for each level.

    Returns:
        float64 scalar in [1/5, 1], higher is better; NaN, with a warning, if any level is undefined.

    Raises:
        ValueError: If there is no level, the numbers of levels differ, or a level is malformed.

    Example:
        >>> import torch
        >>> abnormalities = torch.tensor([[1, 0], [0, 1]])
        >>> opacity_types = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 1]])
        >>> crg_multilevel_score([abnormalities, 0 * opacity_types], [abnormalities, opacity_types])
        tensor(0.6667, dtype=torch.float64)
    """
    if len(preds) != len(target) or not preds:
        raise ValueError(f"preds and target must hold the same number of levels, got {len(preds)} and {len(target)}")
    counts = [label_counts(*level) for level in zip(preds, target, strict=True)]
    levels = LabelCounts(*(torch.stack(column) for column in zip(*counts, strict=True)))
    warn_if_undefined(levels)
    return crg_score_from_counts(*levels).mean()
