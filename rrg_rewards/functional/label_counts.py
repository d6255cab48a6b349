"""Confusion counts of binary labels, and statistics of them."""

from typing import NamedTuple

import torch
from torch import Tensor

from rrg_rewards.utilities.names import shown


class LabelCounts(NamedTuple):
    """Confusion counts of binary labels; int64 tensors of the same shape."""

    tp: Tensor
    fn: Tensor
    fp: Tensor
    tn: Tensor


# What is added to true positives if labels are neither 0 nor 1 and were not read: no sum of counts makes up for it.
_WRONG = -(2**40)


def _check_shapes(preds: Tensor, target: Tensor) -> None:
    for name, labels in (("preds", preds), ("target", target)):
        if not isinstance(labels, Tensor):
            raise TypeError(f"{name} must be a tensor of shape (N, L), got {type(labels).__name__}")
        if labels.ndim != 2:
            raise ValueError(f"{name} must have shape (N, L), got {tuple(labels.shape)}")


def _check_same_shape(preds: Tensor, target: Tensor) -> None:
    if preds.shape != target.shape:
        raise ValueError(
            f"preds and target must have the same shape, got {tuple(preds.shape)} and {tuple(target.shape)}"
        )


def _check_binary(name: str, labels: Tensor) -> Tensor:
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


def check_label_pair(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return two label matrices as bool tensors; raise an error unless both are ``(N, L)`` of 0 and 1."""
    _check_shapes(preds, target)
    preds, target = _check_binary("preds", preds), _check_binary("target", target)
    _check_same_shape(preds, target)
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
    return _count(*check_label_pair(preds, target), dim)


def unread_label_counts(preds: Tensor, target: Tensor, dim: int | None = None) -> LabelCounts:
    """Count as :func:`label_counts`, but never wait for a device to read whether values are 0 and 1.

    On the CPU, wrong values raise an error. On other devices they make the true positives so negative that
    :func:`check_read_counts` raises an error for these counts and for all sums with them.

    Example:
        >>> import torch
        >>> unread_label_counts(torch.tensor([[1, 0, 1]]), torch.tensor([[1, 1, 0]])).tp
        tensor(1)
    """
    if isinstance(preds, Tensor) and preds.device.type == "cpu":
        return label_counts(preds, target, dim)
    _check_shapes(preds, target)
    _check_same_shape(preds, target)
    wrong = ((preds != 0) & (preds != 1)) | ((target != 0) & (target != 1))
    counts = _count(preds.bool(), target.bool(), dim)
    return counts._replace(tp=counts.tp + wrong.any() * _WRONG)


def check_read_counts(counts: LabelCounts) -> LabelCounts:
    """Return the counts; raise an error if :func:`unread_label_counts` found wrong values."""
    if bool((counts.tp < 0).any()):
        raise ValueError(
            "preds and target must hold 0 and 1 only, but some labels since the last reset are neither; threshold "
            "probabilities and map uncertain or missing labels first. On the CPU, update names the row and column"
        )
    return counts


def _count(preds: Tensor, target: Tensor, dim: int | None) -> LabelCounts:
    dims = (0, 1) if dim is None else (dim,)
    return LabelCounts(
        tp=(preds & target).sum(dims),
        fn=(~preds & target).sum(dims),
        fp=(preds & ~target).sum(dims),
        tn=(~preds & ~target).sum(dims),
    )


def label_statistics(counts: LabelCounts) -> dict[str, Tensor]:
    r"""Compute precision, recall, F1, accuracy and Youden's J from confusion counts.

    .. math::
        P = \frac{TP}{TP + FP}, \quad R = \frac{TP}{TP + FN}, \quad F_1 = \frac{2TP}{2TP + FP + FN}, \quad
        A = \frac{TP + TN}{TP + FN + FP + TN}, \quad J = \frac{TP}{TP + FN} - \frac{FP}{FP + TN}

    Args:
        counts: Counts of any common shape.

    Returns:
        float64 tensors ``precision``, ``recall``, ``f1``, ``accuracy`` in [0, 1] and ``youden_j`` in [-1, 1], of the
        shape of the counts; higher is better; NaN if the denominator is 0.

    Example:
        >>> import torch
        >>> counts = LabelCounts(*(torch.tensor(count) for count in (94, 415, 79, 5910)))
        >>> {name: round(value.item(), 3) for name, value in label_statistics(counts).items()}
        {'precision': 0.543, 'recall': 0.185, 'f1': 0.276, 'accuracy': 0.924, 'youden_j': 0.171}
    """
    tp, fn, fp, tn = (torch.as_tensor(count).double() for count in counts)
    recall = tp / (tp + fn)
    return {
        "precision": tp / (tp + fp),
        "recall": recall,
        "f1": 2 * tp / (2 * tp + fp + fn),
        "accuracy": (tp + tn) / (tp + fn + fp + tn),
        "youden_j": recall - fp / (fp + tn),
    }


def label_averages(counts: LabelCounts, average: str = "macro") -> dict[str, Tensor]:
    r"""Compute precision, recall, F1 and accuracy of several labels from their confusion counts.

    With ``average="macro"``, a statistic :math:`s` is the mean over labels, and with ``"micro"`` that of the pooled
    counts:

    .. math::
        s^{macro} = \frac{1}{L} \sum_l s(TP_l, FN_l, FP_l, TN_l), \qquad
        s^{micro} = s\left(\sum_l TP_l, \sum_l FN_l, \sum_l FP_l, \sum_l TN_l\right)

    Macro-F1 is the mean of the labels' F1, not the F1 of the mean precision and recall. If all labels have the same
    number of reports, both averages of the accuracy are equal.

    Args:
        counts: Counts of each label ``(..., L)``.
        average: ``"macro"`` or ``"micro"``.

    Returns:
        float64 tensors ``(...)`` ``precision``, ``recall``, ``f1`` and ``accuracy`` in [0, 1], higher is better. In the
        macro average, the precision of a label that is never predicted, the recall of a label that no reference has,
        and the F1 of a label with neither count 0, as in scikit-learn with ``zero_division=0``. The micro average is
        NaN if its denominator is 0. Without reports both averages are NaN.

    Raises:
        ValueError: If the average is unknown.

    Example:
        >>> import torch
        >>> counts = LabelCounts(*(torch.tensor(count) for count in ([3, 0], [1, 0], [0, 0], [4, 8])))
        >>> {name: round(value.item(), 3) for name, value in label_averages(counts).items()}
        {'precision': 0.5, 'recall': 0.375, 'f1': 0.429, 'accuracy': 0.938}
    """
    names = ("precision", "recall", "f1", "accuracy")
    if average == "micro":
        pooled = label_statistics(LabelCounts(*(count.sum(-1) for count in counts)))
        return {name: pooled[name] for name in names}
    if average != "macro":
        raise ValueError(f"average must be 'micro' or 'macro', got {shown(average)}")
    by_label = label_statistics(counts)
    # The accuracy is NaN exactly for a label without reports.
    empty = by_label["accuracy"].isnan()
    return {name: torch.where(empty, torch.nan, by_label[name].nan_to_num(0.0)).mean(-1) for name in names}


def macro_statistics(counts: LabelCounts) -> dict[str, Tensor]:
    """Return the macro average of :func:`label_averages` by names with the prefix ``macro_``.

    Example:
        >>> counts = LabelCounts(*torch.tensor([[1, 1], [0, 1], [0, 1], [3, 1]]))
        >>> macro_statistics(counts)["macro_recall"]
        tensor(0.7500, dtype=torch.float64)
    """
    return {f"macro_{name}": value for name, value in label_averages(counts, "macro").items()}


def label_f1(counts: LabelCounts, average: str = "micro") -> Tensor:
    r"""Compute the F1 of several labels from their confusion counts.

    .. math::
        F_1^{micro} = \frac{2 \sum_l TP_l}{\sum_l 2 TP_l + FP_l + FN_l}, \qquad
        F_1^{macro} = \frac{1}{L} \sum_l \frac{2 TP_l}{2 TP_l + FP_l + FN_l}

    Args:
        counts: Counts of each label ``(..., L)``.
        average: ``"micro"`` or ``"macro"``, as in :func:`label_averages`.

    Returns:
        float64 tensor ``(...)`` in [0, 1], higher is better. In the macro average, a label without a positive counts 0,
        as in scikit-learn. The micro average is NaN if there is no positive at all, the macro average without reports.

    Example:
        >>> import torch
        >>> counts = LabelCounts(*(torch.tensor(count) for count in ([3, 0], [1, 0], [0, 0], [4, 8])))
        >>> [round(label_f1(counts, average).item(), 3) for average in ("micro", "macro")]
        [0.857, 0.429]
    """
    return label_averages(counts, average)["f1"]
