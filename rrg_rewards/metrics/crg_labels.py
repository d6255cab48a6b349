"""CRG on label matrices and on several levels of labels, and the base class of the CRG metrics."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.functional.crg import (
    CRGAverage,
    check_average,
    crg_best_constant,
    crg_label_weights,
    label_table,
    macro_youden_j,
    prevalences,
)
from rrg_rewards.functional.crg_levels import best_constant_of_levels, crg_level_scores, split_levels
from rrg_rewards.functional.label_counts import (
    LabelCounts,
    check_read_counts,
    label_statistics,
    macro_statistics,
    unread_label_counts,
)
from rrg_rewards.metrics.labelled import LabelCountsMetric
from rrg_rewards.utilities.signature import format_signature


class CRGMetric(LabelCountsMetric):
    """Base of the CRG metrics: confusion counts of one or several levels of labels, columns of one table."""

    plot_lower_bound: float = 0.2
    plot_upper_bound: float = 1.0

    def _set_average(self, average: CRGAverage, min_prevalence: float, widths: Sequence[int]) -> None:
        """Set the average, and the number of labels of each level."""
        check_average(average, min_prevalence)
        # Not declared in the class, because torch.jit.script compiles no Literal and no tuple of any length.
        self.average: CRGAverage = average
        self.min_prevalence = min_prevalence
        self.widths = tuple(widths)

    def _label_names(self) -> Sequence[str]:
        """Return the names of the labels, or their numbers."""
        return [str(column) for column in range(len(self.tp))]

    def _levels(self, counts: LabelCounts) -> list[LabelCounts]:
        """Return the counts of each level; pooled counts are those of one label."""
        if counts.tp.ndim == 0:
            return [LabelCounts(*(count[None] for count in counts))]
        return split_levels(counts, self.widths)

    def compute(self) -> Tensor:
        """Mean CRG of the levels: float64 scalar, NaN with a warning if a level is undefined."""
        return crg_level_scores(self._levels(self._counts()), self.average, self.min_prevalence).mean()

    def level_scores(self) -> Tensor:
        """CRG of each level: float64 tensor ``(K,)``, synced as in ``compute``."""
        return crg_level_scores(self._levels(self._synced_counts()), self.average, self.min_prevalence, warn=False)

    def statistics(self) -> dict[str, Tensor]:
        """Precision, recall, F1, accuracy and Youden's J of the counts, and what the best constant text earns.

        Synced over processes as in ``compute``, so every process must call this method.

        Returns:
            float64 scalars ``precision``, ``recall``, ``f1``, ``accuracy``, pooled over labels, and ``youden_j``; NaN
            if the denominator is 0. ``youden_j`` is averaged as the score: :math:`CRG = 1/(3 - 2J)`. If counts are kept
            by label, also their means over labels, ``macro_precision``, ``macro_recall``, ``macro_f1`` and
            ``macro_accuracy`` (:func:`rrg_rewards.functional.label_averages`), which the paper's Table 2 prints; and
            ``best_constant``, the best score of all texts that are the same for every study (the column
            ``best_constant`` of :meth:`label_statistics` tells its labels). With ``average="macro"``, also the int64
            scalar ``left_out``, the number of labels without both classes in the references, and ``left_out/NAME`` = 1
            for each of them.
        """
        counts = self._synced_counts()
        statistics = label_statistics(_pooled(counts))
        if counts.tp.ndim:
            statistics |= macro_statistics(counts)
            statistics["best_constant"] = best_constant_of_levels(
                counts, self.widths, self.average, self.min_prevalence
            )
        if self.average == "macro":
            statistics["youden_j"] = macro_youden_j(counts, self.min_prevalence)
            out = ~self._weights(counts).bool()
            statistics["left_out"] = out.sum()
            names = self._label_names()
            statistics |= {
                f"left_out/{names[column]}": out.new_ones((), dtype=torch.long)
                for column in out.nonzero().flatten().tolist()
            }
        return statistics

    def _weights(self, counts: LabelCounts) -> Tensor:
        return crg_label_weights(prevalences(counts), self.min_prevalence)

    def label_statistics(self) -> dict[str, Tensor]:
        """Counts, precision, recall, F1, accuracy, Youden's J and CRG of each label, synced as in ``compute``.

        Returns:
            Tensors ``(L,)`` by name: int64 ``tp``, ``fn``, ``fp``, ``tn``, float64 statistics, NaN if undefined, and
            bool ``best_constant``: whether the best constant text has the label. With ``average="macro"``, also float64
            ``weight``, the label's weight in the mean, 0 if it is left out.

        Raises:
            ValueError: If the metric does not keep counts per label.
        """
        if self.tp.ndim == 0:
            raise ValueError("this metric keeps pooled counts only; make it with per_label=True")
        counts = self._synced_counts()
        best = (crg_best_constant(level) for level in self._levels(counts))
        table = {**label_table(counts), "best_constant": torch.cat([one.tp + one.fp > 0 for one in best])}
        return {**table, "weight": self._weights(counts)} if self.average == "macro" else table


def average_fields(average: CRGAverage, min_prevalence: float) -> dict[str, object]:
    """Return the fields of a signature that tell how labels are averaged; empty for the published average."""
    if average == "micro":
        return {}
    return {"average": average, **({"min_prevalence": min_prevalence} if min_prevalence else {})}


def _pooled(counts: LabelCounts) -> LabelCounts:
    return LabelCounts(*(count.sum() for count in counts))


class CRGScore(CRGMetric):
    r"""CRG score of predicted abnormality labels against reference labels.

    With ``average="micro"``, as published, labels are pooled:

    .. math::
        s = r \, TP - r \, FN - FP, \quad r = \frac{T - A}{2A}, \quad S_{max} = rA, \quad
        CRG = \frac{S_{max}}{2 S_{max} - s} = \frac{1}{3 - 2J}

    with :math:`A` positive labels among the :math:`T` reference labels, and Youden's :math:`J` of the pooled labels
    (:func:`rrg_rewards.functional.crg_score_from_counts`). float64 in [1/5, 1], higher is better. An always-normal and
    an always-abnormal generator score 1/3. NaN, with a warning, if the references have no positive or no negative
    label. An empty batch ``(0, L)`` adds nothing.

    With ``average="macro"``, :math:`J` is the mean of the labels' Youden's J
    (:func:`rrg_rewards.functional.crg_macro_score_from_counts`). Every text that is the same for all studies then
    scores 1/3. Labels without both classes in the references are left out; :meth:`statistics` names them. NaN, with a
    warning, if all are.

    Label matrices must not contain a column that means "no abnormality", such as CheXbert's "No Finding":
    :class:`ReportCRG` leaves it out by its name.

    Source: Hamamci et al., "CRG Score", MIDL 2025, Eq. 2 and 3.

    Args:
        num_labels: Number of labels :math:`L`.
        per_label: Whether to count each label separately, for :meth:`label_statistics`; always with ``"macro"``.
        average: ``"micro"`` or ``"macro"``.
        min_prevalence: With ``"macro"``, the prevalence below which labels weigh less
            (:func:`rrg_rewards.functional.crg_label_weights`).
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If ``num_labels`` is not positive, the average is unknown, or ``min_prevalence`` lies outside
            [0, 0.5] or is given with ``"micro"``; in ``update``, if a matrix is not ``(N, L)`` of 0 and 1.

    Example:
        >>> import torch
        >>> from rrg_rewards.metrics import CRGScore
        >>> metric = CRGScore(num_labels=3)
        >>> metric.update(torch.tensor([[1, 0, 0], [0, 0, 0]]), torch.tensor([[1, 0, 0], [0, 1, 0]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
        >>> metric.statistics()["recall"]
        tensor(0.5000, dtype=torch.float64)
    """

    def __init__(
        self,
        num_labels: int = 18,
        per_label: bool = False,
        *,
        average: CRGAverage = "micro",
        min_prevalence: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_labels < 1:
            raise ValueError(f"num_labels must be positive, got {num_labels}")
        self.num_labels = num_labels
        self.per_label = per_label or average == "macro"
        self._set_average(average, min_prevalence, (num_labels,))
        self._add_count_states((num_labels,) if self.per_label else ())

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        fields = average_fields(self.average, self.min_prevalence)
        return format_signature("crg", labels=self.num_labels, **fields)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add label matrices ``(N, L)`` of bool or 0/1 to the counts.

        On a GPU, values other than 0 and 1 raise an error in ``compute``, because ``update`` does not read them.
        """
        counts = unread_label_counts(preds, target, dim=0 if self.per_label else None)
        _check_num_labels(preds, self.num_labels)
        self._add_counts(counts)

    def _counts(self) -> LabelCounts:
        return check_read_counts(super()._counts())


def _check_num_labels(preds: Tensor, num_labels: int) -> None:
    if preds.shape[1] != num_labels:
        raise ValueError(f"preds and target must have {num_labels} columns, one per label, got {preds.shape[1]}")


class MultiLevelCRGScore(CRGMetric):
    r"""Mean CRG over several levels of labels, for example abnormality, type and location.

    .. math::
        CRG_{final} = \frac{1}{K} \sum_{k=1}^{K} CRG_k

    float64 in [1/5, 1], higher is better; NaN, with a warning, if any level is undefined. ``statistics`` pools the
    labels of all levels, and for ``best_constant`` averages the best of each level.

    Source: Hamamci et al., "CRG Score", MIDL 2025, Section 2.2.

    Args:
        num_labels: Number of labels of each of the :math:`K` levels.
        average: Average over the labels of each level, as in :class:`CRGScore`.
        min_prevalence: As in :class:`CRGScore`.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If there is no level or a number is not positive, or for an average or ``min_prevalence`` that
            :class:`CRGScore` refuses; in ``update``, if the number of levels or the shape of a level is wrong, naming
            its index.

    Example:
        >>> import torch
        >>> from rrg_rewards.metrics import MultiLevelCRGScore
        >>> metric = MultiLevelCRGScore(num_labels=(2, 4))
        >>> abnormalities, types = torch.tensor([[1, 0], [0, 1]]), torch.tensor([[1, 0, 0, 0], [0, 0, 0, 1]])
        >>> metric.update([abnormalities, 0 * types], [abnormalities, types])
        >>> metric.compute(), metric.level_scores()
        (tensor(0.6667, dtype=torch.float64), tensor([1.0000, 0.3333], dtype=torch.float64))
    """

    def __init__(
        self,
        num_labels: Sequence[int],
        *,
        average: CRGAverage = "micro",
        min_prevalence: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not num_labels or min(num_labels) < 1:
            raise ValueError(f"num_labels must contain a positive number for each level, got {list(num_labels)}")
        self.num_labels = tuple(num_labels)
        self._set_average(average, min_prevalence, num_labels)
        self._add_count_states((sum(num_labels),))

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        fields = average_fields(self.average, self.min_prevalence)
        return format_signature("crg-levels", labels=",".join(map(str, self.num_labels)), **fields)

    def update(self, preds: Sequence[Tensor], target: Sequence[Tensor]) -> None:
        """Add one label matrix ``(N_k, L_k)`` per level to the counts; see :meth:`CRGScore.update` for GPUs."""
        levels = len(self.num_labels)
        if len(preds) != levels or len(target) != levels:
            raise ValueError(f"preds and target must have {levels} levels, got {len(preds)} and {len(target)}")
        counts = []
        for level, (level_preds, level_target) in enumerate(zip(preds, target, strict=True)):
            try:
                counts.append(unread_label_counts(level_preds, level_target, dim=0))
                _check_num_labels(level_preds, self.num_labels[level])
            except ValueError as error:
                raise ValueError(f"level {level}: {error}") from error
        self._add_counts(LabelCounts(*(torch.cat(column) for column in zip(*counts, strict=True))))

    def _counts(self) -> LabelCounts:
        return check_read_counts(super()._counts())

    def _label_names(self) -> list[str]:
        return [f"level {level}, {column}" for level, width in enumerate(self.num_labels) for column in range(width)]
