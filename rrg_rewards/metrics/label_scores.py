"""Per-report scores of CRG with the label matrices that they were computed from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rrg_rewards.functional.crg import (
    contributions_of_counts,
    crg_best_constant,
    crg_contributions,
    crg_score_from_counts,
)
from rrg_rewards.functional.crg_macro import CRGAverage, crg_macro_score_from_counts, macro_contributions
from rrg_rewards.functional.label_counts import LabelCounts, label_counts
from rrg_rewards.metrics.labelled_scores import LabelledScores

__all__ = ["LabelScores"]


@dataclass(frozen=True, kw_only=True, repr=False)
class LabelScores(LabelledScores):
    """Per-report CRG contributions with the labels of both reports.

    Args:
        value: Contributions, float64 tensor ``(N,)``; NaN if a pair is unscorable.
        details: ``tp``, ``fn``, ``fp``, ``precision``, ``recall``, ``predicted_positives``, each ``(N,)``.
        preds: Labels of the predictions, bool tensor ``(N, L)``, False if unscorable.
        target: Labels of the references, bool tensor ``(N, L)``, False if unscorable.
        labels: Names of the columns.
        average: Average over labels, as in :class:`ReportCRG`.
        min_prevalence: As in :class:`ReportCRG`.

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> scores = ReportCRG().score(["Cardiomegaly."], ["Cardiomegaly. Hiatal hernia."])
        >>> scores.explanations
        {'missed': ['Hiatal hernia'], 'invented': ['']}
    """

    average: CRGAverage = "micro"
    min_prevalence: float = 0.0

    def counts(self, dim: int | None = None) -> LabelCounts:
        """Return the confusion counts of the scored pairs; see :func:`rrg_rewards.functional.label_counts`."""
        return label_counts(self.preds[self.scored], self.target[self.scored], dim=dim)

    @property
    def sufficient_statistics(self) -> tuple[Tensor, ...]:
        """Confusion counts of each scored pair, ``(N,)``, or of each of its labels, ``(N, L)``, if labels weigh.

        The types are small (int16 and bool), because there may be millions of pairs.
        """
        if self.average == "micro":
            return tuple(count.to(torch.int16) for count in self.counts(dim=1))
        preds, target = self.preds[self.scored], self.target[self.scored]
        return (preds & target, ~preds & target, preds & ~target, ~preds & ~target)

    def aggregate(self, *sufficient_statistics: Tensor) -> Tensor:
        """CRG of the counts, summed over pairs."""
        return self._crg(LabelCounts(*(count.sum(0) for count in sufficient_statistics)))

    def aggregate_weighted(self, weights: Tensor, *sufficient_statistics: Tensor) -> Tensor:
        """CRG of the weighted sums of counts."""
        # Sums of whole numbers are exact in float64.
        return self._crg(LabelCounts(*(weights.double() @ count.double() for count in sufficient_statistics)))

    def _crg(self, counts: LabelCounts) -> Tensor:
        if self.average == "micro":
            return crg_score_from_counts(*counts)
        return crg_macro_score_from_counts(counts, self.min_prevalence)

    @property
    def best_constant(self) -> tuple[float, tuple[str, ...]]:
        """Best corpus value of all texts that are the same for every study, and the labels of this text.

        With ``average="macro"`` all such texts have the same value, and no labels are returned.

        Example:
            >>> from rrg_rewards.metrics import ReportCRG
            >>> scores = ReportCRG().score([""] * 3, ["Cardiomegaly.", "Cardiomegaly. Hiatal hernia.", "Normal."])
            >>> value, labels = scores.best_constant
            >>> round(value, 3), labels
            (0.895, ('Cardiomegaly', 'Hiatal hernia'))
        """
        return self.best_constant_for(self.counts(dim=0))

    def best_constant_for(self, counts: LabelCounts) -> tuple[float, tuple[str, ...]]:
        """Return :attr:`best_constant` for other counts of each label, ``(L,)``."""
        best = crg_best_constant(counts)
        if self.average == "macro":
            return float(crg_macro_score_from_counts(best, self.min_prevalence)), ()
        value = float(crg_score_from_counts(*(count.sum() for count in best)))
        chosen = (best.tp + best.fp > 0).tolist()
        return value, tuple(label for label, on in zip(self.labels, chosen, strict=True) if on)

    def with_prior(self, prior: float | Sequence[float] | None) -> "LabelScores":
        """Return the contributions of the same labels for another prior.

        Args:
            prior: Prevalence of positive labels in (0, 1), or of each label with ``average="macro"``; ``None`` for the
                prevalence in these references.

        Raises:
            ValueError: If the prior is out of range or does not fit the average.
        """
        rows = self.scored
        value = self.value.clone()
        value[rows] = crg_contributions(self.preds[rows], self.target[rows], prior, self.average, self.min_prevalence)
        return replace(self, value=value)

    def in_corpus(self, positives: Tensor) -> "LabelScores":
        """Return the contributions of the same labels for the references of a corpus.

        Args:
            positives: :func:`rrg_rewards.functional.crg.mean_positives` of the corpus' sufficient statistics.
        """
        rows, labels = self.scored, self.preds.shape[1]
        value = self.value.clone()
        if self.average == "micro":
            value[rows] = contributions_of_counts(self.counts(dim=1), positives, labels - positives)
        else:
            value[rows] = macro_contributions(self.preds[rows], self.target[rows], positives, self.min_prevalence)
        return replace(self, value=value)
