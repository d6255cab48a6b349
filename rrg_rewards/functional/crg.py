"""CRG: a distribution-aware score of abnormality labels (Hamamci et al., MIDL 2025).

The macro average has a weight for each label from the label's own prevalence. Under it every constant text scores 1/3.

CRG sees labels only. On 175 cases of chest CT on which metrics disagree, it correlates negatively with the ratings of
clinicians (Sharma et al., "CTest-Metric", arXiv:2601.11488).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rrg_rewards.functional.label_counts import LabelCounts, check_label_pair, label_counts, label_statistics
from rrg_rewards.utilities.names import shown

CRGAverage = Literal["micro", "macro"]
"""How CRG averages over labels: over all label decisions (``"micro"``, as published), or label by label."""


class CRGWeights(NamedTuple):
    """Weights of a true positive, a false negative and a false positive."""

    tp: Tensor
    fn: Tensor
    fp: Tensor


def label_table(counts: LabelCounts) -> dict[str, Tensor]:
    """Return counts, precision, recall, F1, accuracy, Youden's J and CRG of each label, as columns of a table.

    Args:
        counts: Counts of each label, ``(L,)``.

    Returns:
        Tensors ``(L,)`` by name: int64 ``tp``, ``fn``, ``fp``, ``tn``, and float64 ``precision``, ``recall``, ``f1``,
        ``accuracy``, ``youden_j``, ``crg``; NaN if undefined.

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


def crg_best_constant(counts: LabelCounts) -> LabelCounts:
    r"""Return the labels of the text that earns the best CRG of all texts that are the same for every study.

    A constant text with the labels :math:`S` has

    .. math::
        J = \sum_{l \in S} \left(\frac{A_l}{\sum_k A_k} - \frac{N_l}{\sum_k N_k}\right)

    with the numbers of positive and negative references :math:`A_l` and :math:`N_l` of each label. The best set
    therefore contains exactly the labels whose term is positive: those with a prevalence above the mean. With
    ``average="macro"`` all sets score 1/3.

    Args:
        counts: Counts of each label, ``(L,)``; only the references matter.

    Returns:
        Counts of the best constant text, ``(L,)``. ``crg_score_from_counts`` of their sums is its score, and its labels
        are those with ``tp + fp > 0``.

    Example:
        >>> import torch
        >>> target = torch.tensor([[1, 0, 1], [1, 0, 0], [1, 0, 0], [0, 1, 0]])
        >>> best = crg_best_constant(label_counts(torch.zeros_like(target), target, dim=0))
        >>> (best.tp + best.fp > 0).tolist(), crg_score_from_counts(*(count.sum() for count in best))
        ([True, False, False], tensor(0.4795, dtype=torch.float64))
    """
    positives, negatives = counts.tp + counts.fn, counts.fp + counts.tn
    # In integers, so that a label with exactly the mean prevalence is left out.
    chosen = positives * negatives.sum() > negatives * positives.sum()
    return LabelCounts(tp=positives * chosen, fn=positives * ~chosen, fp=negatives * chosen, tn=negatives * ~chosen)


def crg_score(preds: Tensor, target: Tensor, average: CRGAverage = "micro", min_prevalence: float = 0.0) -> Tensor:
    """Compute the CRG score of predicted labels.

    See :func:`crg_score_from_counts` and :func:`crg_macro_score_from_counts` for the formulas and the source.
    :class:`rrg_rewards.metrics.ReportCRG` says what the score does not see.

    Args:
        preds: Predicted labels ``(N, L)``, bool or 0/1.
        target: Reference labels ``(N, L)``, bool or 0/1.
        average: ``"micro"``, the published score, pooled over reports and labels, or ``"macro"``, the mean over labels
            of Youden's J in place of the pooled J. With ``"macro"``, any text that is the same for all studies scores
            1/3.
        min_prevalence: With ``"macro"``, the prevalence below which labels weigh less (:func:`crg_label_weights`).

    Returns:
        float64 scalar in [1/5, 1], higher is better; NaN, with a warning, if undefined.

    Raises:
        TypeError: If an argument is not a tensor.
        ValueError: If a shape is not ``(N, L)``, the shapes differ, a value is neither 0 nor 1, the average is unknown,
            or ``min_prevalence`` lies outside [0, 0.5] or is given with ``"micro"``.

    Example:
        >>> import torch
        >>> target = torch.tensor([[1, 0, 0, 1], [1, 0, 1, 0]])
        >>> crg_score(target, target)
        tensor(1., dtype=torch.float64)
        >>> constant = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0]])
        >>> crg_score(constant, target), crg_score(constant, target, average="macro")
        (tensor(0.5000, dtype=torch.float64), tensor(0.3333, dtype=torch.float64))
    """
    check_average(average, min_prevalence)
    counts = label_counts(preds, target, dim=0)
    if average == "macro":
        warn_if_undefined_macro(counts)
        return crg_macro_score_from_counts(counts, min_prevalence)
    pooled = LabelCounts(*(count.sum() for count in counts))
    warn_if_undefined(pooled)
    return crg_score_from_counts(*pooled)


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
        _warn(
            f"CRG is undefined and returned as NaN: the reference labels hold {' and '.join(problems)}, so the weights "
            "(T - A) / (2A) have no meaning. Per-report contributions stay defined."
        )


def warn_if_undefined_macro(counts: LabelCounts, level: int | None = None) -> None:
    """Warn on the main process if no label has both classes in the references.

    Args:
        counts: Counts of each label, ``(L,)``.
        level: Number of the level, for the message.
    """
    shares = prevalences(counts)
    if not bool(((shares > 0) & (shares < 1)).any()):
        where = "" if level is None else f" in level {level}"
        _warn(
            f"CRG with average='macro' is undefined and returned as NaN: no label{where} has both a positive and a "
            "negative reference. Per-report contributions stay defined."
        )


def pooled_prior(prior: float | Sequence[float] | Tensor) -> float:
    """Return the prior of ``average="micro"`` as a number; raise a ValueError unless it is one number in (0, 1).

    Example:
        >>> pooled_prior(torch.tensor(0.25))
        0.25
    """
    if isinstance(prior, Sequence) or getattr(prior, "ndim", 0) > 0:
        raise ValueError(
            "prior must be one number in (0, 1) for average='micro'; prevalences of labels are for average='macro'"
        )
    if not 0 < prior < 1:
        raise ValueError(f"prior must lie in (0, 1), got {prior}")
    return float(prior)


def crg_contributions(
    preds: Tensor,
    target: Tensor,
    prior: float | Sequence[float] | Tensor | None = None,
    average: CRGAverage = "micro",
    min_prevalence: float = 0.0,
) -> Tensor:
    r"""Compute the contribution of each report to the CRG score, a per-report reward.

    With prevalence :math:`p`, weights :math:`r, r, 1` of :func:`crg_weights` and :math:`L` labels, a report's raw
    score :math:`s_i = r \, TP_i - r \, FN_i - FP_i` is divided by the best score of a mean report, :math:`r p L`:

    .. math::
        \rho_i = \frac{s_i}{r p L} = \frac{TP_i - FN_i}{p L} - \frac{2 FP_i}{(1 - p) L}, \qquad
        \overline{\rho} = 2J - 1, \qquad CRG = \frac{1}{2 - \overline{\rho}}

    With ``average="macro"``, each label has its own prevalence :math:`p_l`, and the weight :math:`w_l` of
    :func:`crg_label_weights`:

    .. math::
        \rho_i = \frac{1}{\sum_l w_l} \sum_l w_l
        \left(\frac{TP_{il} - FN_{il}}{p_l} - \frac{2 FP_{il}}{1 - p_l}\right)

    The identities hold for both averages if ``prior`` is the prevalence in ``target``, the default, and
    ``min_prevalence`` is that of the score. The form of :math:`\rho_i` without weights is used. A report without any
    abnormality therefore has a contribution, and a batch without any abnormality has the limit :math:`-2 FP_i / L`.

    Args:
        preds: Predicted labels ``(N, L)``, bool or 0/1.
        target: Reference labels ``(N, L)``, bool or 0/1.
        prior: Prevalence :math:`p` of positive labels in the references, in (0, 1); with ``"macro"`` one prevalence in
            [0, 1] for each label, of which those of 0 and 1 are left out. Use that of the training set for rewards that
            do not depend on the batch. Default: the prevalence of ``target``.
        average: ``"micro"`` or ``"macro"``, as in :func:`crg_score`.
        min_prevalence: With ``"macro"``, the prevalence :math:`m` below which labels weigh less. A false positive then
            contributes at most :math:`2 / m` to the sum over labels, any other decision at most :math:`1 / m`.

    Returns:
        float64 tensor ``(N,)``, higher is better: 0 for a report without positive labels on either side. With
        ``"micro"``, at most :math:`1/p`, at least :math:`-1/p` (all false negatives) or :math:`-2/(1 - p)` (all false
        positives).

    Raises:
        TypeError: If an argument is not a tensor.
        ValueError: If a shape is not ``(N, L)``, the shapes differ, a value is neither 0 nor 1, ``prior`` is out of
            range or not one number (``"micro"``) or ``L`` numbers (``"macro"``), the average is unknown, or
            ``min_prevalence`` lies outside [0, 0.5] or is given with ``"micro"``.

    Example:
        >>> import torch
        >>> target = torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0]])
        >>> preds = torch.tensor([[1, 0, 0, 0], [0, 0, 1, 0]])
        >>> crg_contributions(preds, target)
        tensor([ 0.0000, -0.6667], dtype=torch.float64)
        >>> 1 / (2 - crg_contributions(preds, target).mean()), crg_score(preds, target)
        (tensor(0.4286, dtype=torch.float64), tensor(0.4286, dtype=torch.float64))
        >>> crg_contributions(preds, target, average="macro")
        tensor([0., 0.], dtype=torch.float64)
    """
    check_average(average, min_prevalence)
    if average == "macro":
        preds, target = check_label_pair(preds, target)
        given = None if prior is None else label_priors(prior, target.shape[1])
        return macro_contributions(preds, target, given, min_prevalence)
    counts = label_counts(preds, target, dim=1)
    if prior is None:
        positives = mean_positives(counts)
        return contributions_of_counts(counts, positives, target.shape[1] - positives)
    one = pooled_prior(prior)
    both = torch.tensor([one, 1 - one], dtype=torch.float64, device=target.device) * target.shape[1]
    return contributions_of_counts(counts, both[0], both[1])


def mean_positives(counts: Sequence[Tensor]) -> Tensor:
    """Return the mean number of positive labels in a reference: float64, without the first dimension of the counts.

    Args:
        counts: Counts of each report pair, ``(N,)``, or of each of its labels, ``(N, L)``, as in :class:`LabelCounts`.
    """
    tp, fn = counts[:2]
    return (tp.double() + fn.double()).sum(0) / max(len(tp), 1)


def contributions_of_counts(counts: LabelCounts, positives: Tensor, negatives: Tensor) -> Tensor:
    r"""Compute contributions as :func:`crg_contributions` from the counts of each report pair.

    Args:
        counts: Counts of each report pair, ``(N,)``.
        positives: Mean number of positive labels in a reference, :math:`p L`.
        negatives: Mean number of negative labels in a reference, :math:`(1 - p) L`.
    """
    tp, fn, fp = counts.tp.double(), counts.fn.double(), counts.fp.double()
    # Without positives, TP = FN = 0; without negatives, FP = 0. The term is then 0 instead of 0/0.
    found = torch.where(positives > 0, (tp - fn) / positives, 0.0)
    invented = torch.where(negatives > 0, 2 * fp / negatives, 0.0)
    return found - invented


def check_average(average: str, min_prevalence: float) -> None:
    """Raise a ValueError for an unknown average, or for a ``min_prevalence`` that does not apply to it."""
    if average not in ("micro", "macro"):
        raise ValueError(f"average must be 'micro' or 'macro', got {shown(average)}")
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


def _warn(message: str) -> None:
    # Imported here, because it takes longer than labelling some reports, which needs other functions of this package.
    from torchmetrics.utilities import rank_zero_warn

    rank_zero_warn(message, UserWarning)
