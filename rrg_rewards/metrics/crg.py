"""CRG on label matrices, on several levels of labels, and on report text through a labeler."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.functional.crg import (
    LabelCounts,
    check_prior,
    crg_contributions,
    crg_score_from_counts,
    label_counts,
    label_statistics,
    label_table,
    warn_if_undefined,
)
from rrg_rewards.labelers.base import Labeler
from rrg_rewards.labelers.registry import get_labeler
from rrg_rewards.metrics.base import ReportMetric, ScalarMetric, Scores
from rrg_rewards.metrics.columns import Column
from rrg_rewards.metrics.label_scores import LabelScores
from rrg_rewards.utilities.signature import format_signature

__all__ = ["CRGScore", "MultiLevelCRGScore", "ReportCRG"]


class _LabelCountsMetric(ScalarMetric):
    """Base of the CRG metrics: confusion counts in four int64 states of constant size."""

    plot_lower_bound: float = 0.2
    plot_upper_bound: float = 1.0

    tp: Tensor
    fn: Tensor
    fp: Tensor
    tn: Tensor

    def _add_count_states(self, shape: tuple[int, ...]) -> None:
        for name in LabelCounts._fields:
            self.add_state(name, torch.zeros(shape, dtype=torch.long), dist_reduce_fx="sum")

    def _add_counts(self, counts: LabelCounts) -> None:
        for name, count in counts._asdict().items():
            setattr(self, name, getattr(self, name) + count.to(self.device))

    def _counts(self) -> LabelCounts:
        return LabelCounts(self.tp, self.fn, self.fp, self.tn)

    def _synced_counts(self) -> LabelCounts:
        with self._synced():
            return self._counts()

    def compute(self) -> Tensor:
        """CRG of all counts so far: float64 scalar, NaN with a warning if it is undefined."""
        counts = _pooled(self._counts())
        warn_if_undefined(counts)
        return crg_score_from_counts(*counts)

    def statistics(self) -> dict[str, Tensor]:
        """Precision, recall, F1 and Youden's J of the counts, pooled over labels.

        Synced over processes as in ``compute``, so every process must call this method.

        Returns:
            float64 scalars ``precision``, ``recall``, ``f1``, ``youden_j``; NaN if the denominator is 0.
        """
        return label_statistics(_pooled(self._synced_counts()))

    def label_statistics(self) -> dict[str, Tensor]:
        """Counts, precision, recall, F1, Youden's J and CRG of each label, synced as in ``compute``.

        Returns:
            Tensors ``(L,)`` by name: int64 ``tp``, ``fn``, ``fp``, ``tn``, and float64 statistics, NaN if undefined.

        Raises:
            ValueError: If the metric does not keep counts per label.
        """
        if self.tp.ndim == 0:
            raise ValueError("this metric keeps pooled counts only; make it with per_label=True")
        return label_table(self._synced_counts())


def _pooled(counts: LabelCounts) -> LabelCounts:
    return LabelCounts(*(count.sum() for count in counts))


class CRGScore(_LabelCountsMetric):
    r"""CRG score of predicted abnormality labels against reference labels, pooled over reports and labels.

    .. math::
        s = r \, TP - r \, FN - FP, \quad r = \frac{T - A}{2A}, \quad S_{max} = rA, \quad
        CRG = \frac{S_{max}}{2 S_{max} - s} = \frac{1}{3 - 2J}

    with :math:`A` positive labels among the :math:`T` reference labels, and Youden's :math:`J` of the pooled labels
    (:func:`rrg_rewards.functional.crg_score_from_counts`). float64 in [1/5, 1], higher is better. An always-normal and
    an always-abnormal generator score 1/3. NaN, with a warning, if the references have no positive or no negative
    label. An empty batch ``(0, L)`` adds nothing.

    Source: Hamamci et al., "CRG Score", MIDL 2025, Eq. 2 and 3.

    Args:
        num_labels: Number of labels :math:`L`.
        per_label: Whether to count each label separately, for :meth:`label_statistics`.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If ``num_labels`` is not positive; in ``update``, if a matrix is not ``(N, L)`` of 0 and 1.

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

    def __init__(self, num_labels: int = 18, per_label: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_labels < 1:
            raise ValueError(f"num_labels must be positive, got {num_labels}")
        self.num_labels = num_labels
        self.per_label = per_label
        self._add_count_states((num_labels,) if per_label else ())

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        return format_signature("crg", labels=self.num_labels)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add label matrices ``(N, L)`` of bool or 0/1 to the counts."""
        counts = label_counts(preds, target, dim=0 if self.per_label else None)
        _check_num_labels(preds, self.num_labels)
        self._add_counts(counts)


def _check_num_labels(preds: Tensor, num_labels: int) -> None:
    if preds.shape[1] != num_labels:
        raise ValueError(f"preds and target must have {num_labels} columns, one per label, got {preds.shape[1]}")


class MultiLevelCRGScore(_LabelCountsMetric):
    r"""Mean CRG over several levels of labels, for example abnormality, type and location.

    .. math::
        CRG_{final} = \frac{1}{K} \sum_{k=1}^{K} CRG_k

    float64 in [1/5, 1], higher is better; NaN, with a warning, if any level is undefined. ``statistics`` pools all
    levels.

    Source: Hamamci et al., "CRG Score", MIDL 2025, Section 2.2.

    Args:
        num_labels: Number of labels of each of the :math:`K` levels.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If there is no level or a number is not positive; in ``update``, if the number of levels or the
            shape of a level is wrong, naming its index.

    Example:
        >>> import torch
        >>> from rrg_rewards.metrics import MultiLevelCRGScore
        >>> metric = MultiLevelCRGScore(num_labels=(2, 4))
        >>> abnormalities, types = torch.tensor([[1, 0], [0, 1]]), torch.tensor([[1, 0, 0, 0], [0, 0, 0, 1]])
        >>> metric.update([abnormalities, 0 * types], [abnormalities, types])
        >>> metric.compute(), metric.level_scores()
        (tensor(0.6667, dtype=torch.float64), tensor([1.0000, 0.3333], dtype=torch.float64))
    """

    def __init__(self, num_labels: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not num_labels or min(num_labels) < 1:
            raise ValueError(f"num_labels must contain a positive number for each level, got {list(num_labels)}")
        self.num_labels = tuple(num_labels)
        self._add_count_states((len(self.num_labels),))

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        return format_signature("crg-levels", labels=",".join(map(str, self.num_labels)))

    def update(self, preds: Sequence[Tensor], target: Sequence[Tensor]) -> None:
        """Add one label matrix ``(N_k, L_k)`` per level to the counts."""
        levels = len(self.num_labels)
        if len(preds) != levels or len(target) != levels:
            raise ValueError(f"preds and target must have {levels} levels, got {len(preds)} and {len(target)}")
        counts = []
        for level, (level_preds, level_target) in enumerate(zip(preds, target, strict=True)):
            try:
                counts.append(label_counts(level_preds, level_target))
                _check_num_labels(level_preds, self.num_labels[level])
            except ValueError as error:
                raise ValueError(f"level {level}: {error}") from error
        self._add_counts(LabelCounts(*(torch.stack(column) for column in zip(*counts, strict=True))))

    def level_scores(self) -> Tensor:
        """CRG of each level: float64 tensor ``(K,)``, synced as in ``compute``."""
        return crg_score_from_counts(*self._synced_counts())

    def compute(self) -> Tensor:
        """Mean CRG of the levels: float64 scalar."""
        warn_if_undefined(self._counts())
        return crg_score_from_counts(*self._counts()).mean()


class ReportCRG(_LabelCountsMetric, ReportMetric):
    r"""CRG score of report text: a labeler labels both reports, and the labels are counted as in :class:`CRGScore`.

    The corpus value is

    .. math::
        CRG = \frac{1}{2 - \overline{\rho}}, \qquad
        \rho_i = \frac{TP_i - FN_i}{p L} - \frac{2 FP_i}{(1 - p) L}

    with :math:`L` labels, the prevalence :math:`p` of positive reference labels and the contributions :math:`\rho_i` of
    report pairs, which :meth:`score` returns (:func:`rrg_rewards.functional.crg_contributions`). float64 in [1/5, 1],
    higher is better.

    Source: Hamamci et al., "CRG Score", MIDL 2025.

    Args:
        labeler: A labeler, or its name as :func:`rrg_rewards.labelers.get_labeler` accepts it.
        prior: Prevalence of positive labels for :meth:`score`, in (0, 1). Default: the prevalence in the references of
            the same call. The corpus value always uses the prevalence in all references.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: If the labeler is unknown or the prior outside (0, 1).

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> metric = ReportCRG()
        >>> preds = ["The heart is enlarged.", "No pleural effusion."]
        >>> target = ["Cardiomegaly. Hiatal hernia.", "Normal chest CT."]
        >>> metric.update(preds, target)
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
        >>> 1 / (2 - metric.score(preds, target).value.mean())
        tensor(0.5000, dtype=torch.float64)
    """

    name = "crg"
    context = ("target_labels",)

    def __init__(self, labeler: str | Labeler = "rules:ct_rate", prior: float | None = None, **kwargs: Any) -> None:
        super().__init__(parts=None, **kwargs)
        if isinstance(prior, str):
            raise ValueError(f"prior must be a number in (0, 1), got {prior!r}; only rewards accept names of priors")
        if prior is not None:
            check_prior(prior)
        self.labeler = get_labeler(labeler)
        self.prior = prior
        self._add_count_states((len(self.labeler.labels),))

    @property
    def signature(self) -> str:
        """Metric, version and settings in one line."""
        prior = "batch" if self.prior is None else self.prior
        return format_signature("crg", labeler=f"{{{self.labeler.signature}}}", prior=prior)

    def extra_repr(self) -> str:
        """Labeler and prior."""
        return f"labeler={self.labeler!r}, prior={self.prior}"

    @property
    def compares_across_batches(self) -> bool:
        """Whether a prior is set. Without a prior, each call of :meth:`score` uses the prevalence in its references."""
        return self.prior is not None

    def prevalence(
        self, target: Sequence[str | None], target_labels: Sequence[Sequence[int] | None] | None = None
    ) -> float:
        """Return the fraction of positive labels in references, for use as ``prior``.

        Args:
            target: Reference reports; ``None`` and blank reports are ignored.
            target_labels: Known labels of the references, ``L`` values of 0 or 1 each.

        Raises:
            ValueError: If no reference can be labelled.
        """
        context = {} if target_labels is None else {"target_labels": target_labels}
        scores = self.score([""] * len(target), target, **context)
        if not scores.scored.any():
            raise ValueError("target contains no reference with text or labels, so it has no prevalence")
        return float(scores.target[scores.scored].double().mean())

    def score(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Column) -> LabelScores:
        """Compute the contribution of each report pair to the corpus CRG.

        Args:
            preds: ``N`` candidate reports.
            target: ``N`` reference reports.
            context: ``target_labels``, optional: known labels of the references, ``L`` values of 0 or 1 each, in the
                labeler's order, as rows, as a tensor ``(N, L)``, or as ``L`` tensors ``(N,)``, which the default
                collation of data loaders makes. They replace the labels of the reference text, which may then be
                ``None``.

        Returns:
            ``value``: contributions; ``details``: ``tp``, ``fn``, ``fp``, ``precision`` (NaN if no label is predicted),
            ``recall`` (NaN if the reference has no positive label), ``predicted_positives``, each ``(N,)``.

        Raises:
            TypeError: If a report is not a text, naming argument and row, or a context column is unknown.
            ValueError: If lengths differ or ``target_labels`` is malformed.
        """
        scores = super().score(preds, target, **context)
        assert isinstance(scores, LabelScores)
        return scores

    def _scorable(
        self, preds: Sequence[str | None], target: Sequence[str | None], context: Mapping[str, Sequence[Any]]
    ) -> Tensor:
        if "target_labels" not in context:
            return super()._scorable(preds, target, context)
        self._check_labels(context["target_labels"])
        pairs = zip(preds, context["target_labels"], strict=True)
        return torch.tensor([p is not None and labels is not None for p, labels in pairs], dtype=torch.bool)

    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> LabelScores:
        pred_labels = self.labeler(preds)
        if "target_labels" in context:
            rows = [[bool(label) for label in labels] for labels in context["target_labels"]]
            target_labels = torch.tensor(rows, dtype=torch.bool).view(len(rows), len(self.labeler.labels))
        else:
            target_labels = self.labeler(target)
        value = crg_contributions(pred_labels, target_labels, prior=self.prior)
        counts = label_counts(pred_labels, target_labels, dim=1)
        statistics = label_statistics(counts)
        details = {
            **{name: getattr(counts, name).double() for name in ("tp", "fn", "fp")},
            **{name: statistics[name] for name in ("precision", "recall")},
            "predicted_positives": (counts.tp + counts.fp).double(),
        }
        return LabelScores(value, details, preds=pred_labels, target=target_labels, labels=self.labeler.labels)

    def _check_labels(self, rows: Sequence[Any]) -> None:
        width = len(self.labeler.labels)
        for row, labels in enumerate(rows):
            if labels is not None and (len(labels) != width or any(label not in (0, 1) for label in labels)):
                raise ValueError(
                    f"target_labels[{row}] must be {width} values of 0 or 1, one for each of "
                    f"{', '.join(self.labeler.labels)}; got {list(labels)}"
                )

    def _accumulate(self, scores: Scores) -> None:
        assert isinstance(scores, LabelScores)
        self._add_counts(scores.counts(dim=0))
