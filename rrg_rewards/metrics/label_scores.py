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
from rrg_rewards.functional.crg_levels import (
    best_constant_of_levels,
    crg_level_contributions,
    crg_level_scores,
    level_counts,
    split_levels,
)
from rrg_rewards.functional.crg_macro import CRGAverage, crg_macro_score_from_counts, label_priors, macro_contributions
from rrg_rewards.functional.label_counts import LabelCounts, label_counts
from rrg_rewards.metrics.labelled_scores import LabelledScores

__all__ = ["LabelScores"]


@dataclass(frozen=True, kw_only=True, repr=False)
class LabelScores(LabelledScores):
    """Per-report CRG contributions with the labels of both reports.

    Args:
        value: Contributions, float64 tensor ``(N,)``; NaN if a pair is unscorable.
        details: ``tp``, ``fn``, ``fp``, ``precision``, ``recall``, ``predicted_positives``, each ``(N,)``; with levels,
            also the contribution to each level by its name.
        preds: Labels of the predictions, bool tensor ``(N, L)``, False if unscorable.
        target: Labels of the references, bool tensor ``(N, L)``, False if unscorable.
        labels: Names of the columns.
        average: Average over labels, as in :class:`ReportCRG`.
        min_prevalence: As in :class:`ReportCRG`.
        levels: Names of the levels, in the order of the columns; empty for one set of labels.
        widths: Number of labels of each level.

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> scores = ReportCRG().score(["Cardiomegaly."], ["Cardiomegaly. Hiatal hernia."])
        >>> scores.explanations
        {'missed': ['Hiatal hernia'], 'invented': ['']}
    """

    average: CRGAverage = "micro"
    min_prevalence: float = 0.0
    levels: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()

    def counts(self, dim: int | None = None) -> LabelCounts:
        """Return the confusion counts of the scored pairs; see :func:`rrg_rewards.functional.label_counts`."""
        return label_counts(self.preds[self.scored], self.target[self.scored], dim=dim)

    @property
    def sufficient_statistics(self) -> tuple[Tensor, ...]:
        """Confusion counts of each scored pair, ``(N,)``; of its levels, ``(N, K)``; or of its labels, ``(N, L)``.

        There are counts of labels if labels weigh. The types are small (int16 and bool), because there may be millions
        of pairs.
        """
        preds, target = self.preds[self.scored], self.target[self.scored]
        if self.average == "macro":
            return (preds & target, ~preds & target, preds & ~target, ~preds & ~target)
        counts = level_counts(preds, target, self.widths) if self.levels else label_counts(preds, target, dim=1)
        return tuple(count.to(torch.int16) for count in counts)

    def aggregate(self, *sufficient_statistics: Tensor) -> Tensor:
        """CRG of the counts, summed over pairs; with levels the mean of their CRG."""
        return self._crg(LabelCounts(*(count.sum(0) for count in sufficient_statistics)))

    def aggregate_weighted(self, weights: Tensor, *sufficient_statistics: Tensor) -> Tensor:
        """CRG of the weighted sums of counts."""
        # Sums of whole numbers are exact in float64.
        return self._crg(LabelCounts(*(weights.double() @ count.double() for count in sufficient_statistics)))

    def _crg(self, counts: LabelCounts) -> Tensor:
        if self.average == "micro":
            scores = crg_score_from_counts(*counts)
            return scores.mean(-1) if self.levels else scores
        if self.levels:
            return self.level_scores(counts).mean(-1)
        return crg_macro_score_from_counts(counts, self.min_prevalence)

    def level_scores(self, counts: LabelCounts) -> Tensor:
        """Return the CRG of each level, ``(..., K)``, from counts of each label, ``(..., L)``."""
        return crg_level_scores(split_levels(counts, self.widths), self.average, self.min_prevalence, warn=False)

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
        widths = self.widths or (len(self.labels),)
        value = float(best_constant_of_levels(counts, widths, self.average, self.min_prevalence))
        if self.average == "macro":
            return value, ()
        best = [crg_best_constant(level) for level in split_levels(counts, widths)]
        chosen = torch.cat([level.tp + level.fp > 0 for level in best]).tolist()
        return value, tuple(label for label, on in zip(self.labels, chosen, strict=True) if on)

    def with_prior(self, prior: float | Sequence[float] | None) -> "LabelScores":
        """Return the contributions of the same labels for another prior.

        Args:
            prior: Prevalence of positive labels in (0, 1), or of each level, or of each label with
                ``average="macro"``; ``None`` for the prevalence in these references.

        Raises:
            ValueError: If the prior is out of range or does not fit the average or the levels.
        """
        preds, target = self.preds[self.scored], self.target[self.scored]
        if not self.levels:
            return self._with_value(crg_contributions(preds, target, prior, self.average, self.min_prevalence))
        return self._with_levels(None if prior is None else self._level_priors(prior))

    def in_corpus(self, positives: Tensor) -> "LabelScores":
        """Return the contributions of the same labels for the references of a corpus.

        Args:
            positives: :func:`rrg_rewards.functional.crg.mean_positives` of the corpus' sufficient statistics.
        """
        rows, labels = self.scored, self.preds.shape[1]
        if self.levels:
            of_labels = torch.ones_like(positives) if self.average == "macro" else torch.tensor(self.widths)
            return self._with_levels(positives / of_labels)
        if self.average == "micro":
            return self._with_value(contributions_of_counts(self.counts(dim=1), positives, labels - positives))
        return self._with_value(
            macro_contributions(self.preds[rows], self.target[rows], positives, self.min_prevalence)
        )

    def _level_priors(self, prior: float | Sequence[float]) -> Tensor:
        if self.average == "macro":
            return label_priors(prior, len(self.labels))
        return label_priors(prior, len(self.widths), "level")

    def _with_levels(self, prior: Tensor | None) -> "LabelScores":
        """Return the contributions of the scored pairs for prevalences of levels or labels."""
        preds, target = self.preds[self.scored], self.target[self.scored]
        by_level = crg_level_contributions(preds, target, self.widths, prior, self.average, self.min_prevalence)
        details = {
            name: self.value.new_full((len(self),), torch.nan).masked_scatter(self.scored, column)
            for name, column in zip(self.levels, by_level.T, strict=True)
        }
        return replace(self._with_value(by_level.mean(1)), details={**self.details, **details})

    def _with_value(self, scored: Tensor) -> "LabelScores":
        """Return these scores with other values of the scored pairs."""
        value = self.value.clone()
        value[self.scored] = scored
        return replace(self, value=value)
