"""Per-report scores of CRG with the label matrices that they were computed from."""

from dataclasses import dataclass, replace

from torch import Tensor

from rrg_rewards.functional.crg import LabelCounts, crg_contributions, crg_score_from_counts, label_counts
from rrg_rewards.metrics.base import Scores

__all__ = ["LabelScores"]


@dataclass(frozen=True, kw_only=True, repr=False)
class LabelScores(Scores):
    """Per-report CRG contributions with the labels of both reports.

    Args:
        value: Contributions, float64 tensor ``(N,)``; NaN if a pair is unscorable.
        details: ``tp``, ``fn``, ``fp``, ``precision``, ``recall``, ``predicted_positives``, each ``(N,)``.
        preds: Labels of the predictions, bool tensor ``(N, L)``, False if unscorable.
        target: Labels of the references, bool tensor ``(N, L)``, False if unscorable.
        labels: Names of the columns.

    Example:
        >>> from rrg_rewards.metrics import ReportCRG
        >>> scores = ReportCRG().score(["Cardiomegaly."], ["Cardiomegaly. Hiatal hernia."])
        >>> scores.explanations
        {'missed': ['Hiatal hernia'], 'invented': ['']}
    """

    preds: Tensor
    target: Tensor
    labels: tuple[str, ...]

    @property
    def explanations(self) -> dict[str, list[str]]:
        """Columns ``missed`` and ``invented``: names of the missed and invented labels of each report."""
        return {
            "missed": self._names(self.target & ~self.preds),
            "invented": self._names(self.preds & ~self.target),
        }

    def counts(self, dim: int | None = None) -> LabelCounts:
        """Return the confusion counts of the scored pairs; see :func:`rrg_rewards.functional.label_counts`."""
        return label_counts(self.preds[self.scored], self.target[self.scored], dim=dim)

    @property
    def sufficient_statistics(self) -> tuple[Tensor, ...]:
        """Confusion counts of each scored pair."""
        return self.counts(dim=1)

    @staticmethod
    def aggregate(*sufficient_statistics: Tensor) -> Tensor:
        """CRG of the pooled counts."""
        return crg_score_from_counts(*(count.sum() for count in sufficient_statistics))

    def _names(self, chosen: Tensor) -> list[str]:
        return [", ".join(label for label, on in zip(self.labels, row, strict=True) if on) for row in chosen.tolist()]

    def with_prior(self, prior: float | None) -> "LabelScores":
        """Return the contributions of the same labels for another prior.

        Args:
            prior: Prevalence of positive labels in (0, 1); ``None`` for the prevalence in these references.

        Raises:
            ValueError: If the prior is outside (0, 1).
        """
        rows = self.scored
        value = self.value.clone()
        value[rows] = crg_contributions(self.preds[rows], self.target[rows], prior=prior)
        return replace(self, value=value)

    def expand(self, rows: Tensor) -> "LabelScores":
        """Return scores of ``N`` pairs: these scores where ``rows`` is true; the other pairs have no labels."""
        preds, target = (labels.new_zeros(len(rows), labels.shape[1]) for labels in (self.preds, self.target))
        preds[rows], target[rows] = self.preds, self.target
        scores = super().expand(rows)
        return replace(self, value=scores.value, details=scores.details, preds=preds, target=target)
