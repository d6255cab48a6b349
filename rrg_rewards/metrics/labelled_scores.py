"""Per-report scores of metrics on labels, with the label matrices that they were computed from."""

from dataclasses import dataclass, replace

from torch import Tensor
from typing_extensions import Self

from rrg_rewards.judges.base import JudgeFailure
from rrg_rewards.metrics.judged import failed_by_kind, failure_texts, place_results
from rrg_rewards.metrics.scores import Scores

__all__ = ["LabelledScores"]


@dataclass(frozen=True, kw_only=True, repr=False)
class LabelledScores(Scores):
    """Scores of report pairs with the labels of both reports.

    Args:
        value: Scores, float64 tensor ``(N,)``; NaN if a pair is unscorable.
        details: Sub-scores by name, each ``(N,)``.
        preds: Labels of the predictions, bool tensor ``(N, L)``, False if unscorable.
        target: Labels of the references, bool tensor ``(N, L)``, False if unscorable.
        labels: Names of the columns.
        outcomes: For each of the ``N`` pairs the reason why the labeler failed on one of its reports, or ``None``;
            ``None`` alone for a labeler that never fails.
    """

    preds: Tensor
    target: Tensor
    labels: tuple[str, ...]
    outcomes: tuple[JudgeFailure | None, ...] | None = None

    @property
    def failures(self) -> dict[str, Tensor]:
        """Pairs on which the labeler failed, by kind of failure: bool tensors ``(N,)``; empty if it never fails."""
        return {} if self.outcomes is None else failed_by_kind(self.outcomes)

    @property
    def explanations(self) -> dict[str, list[str]]:
        """Columns ``missed`` and ``invented``: names of the missed and invented labels of each report.

        With a labeler that may fail, also ``failure``: kind and reason of the failure on each pair.
        """
        failure = {} if self.outcomes is None else {"failure": failure_texts(self.outcomes)}
        return {
            "missed": self._names(self.target & ~self.preds),
            "invented": self._names(self.preds & ~self.target),
            **failure,
        }

    def expand(self, rows: Tensor) -> Self:
        """Return scores of ``N`` pairs: these scores where ``rows`` is true; the other pairs have no labels."""
        preds, target = (labels.new_zeros(len(rows), labels.shape[1]) for labels in (self.preds, self.target))
        preds[rows], target[rows] = self.preds, self.target
        scores = super().expand(rows)
        outcomes = None if self.outcomes is None else place_results(self.outcomes, rows)
        return replace(self, value=scores.value, details=scores.details, preds=preds, target=target, outcomes=outcomes)

    def take(self, rows: Tensor) -> Self:
        """Return the scores of the pairs with the indices ``rows``, in this order."""
        outcomes = None if self.outcomes is None else tuple(self.outcomes[row] for row in rows.tolist())
        return replace(super().take(rows), preds=self.preds[rows], target=self.target[rows], outcomes=outcomes)

    def _names(self, chosen: Tensor) -> list[str]:
        return [", ".join(label for label, on in zip(self.labels, row, strict=True) if on) for row in chosen.tolist()]
