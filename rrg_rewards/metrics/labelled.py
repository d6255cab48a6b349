"""The base class of metrics that compare the labels of both reports."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.findings.reading.modality import Modality
from rrg_rewards.labelers.base import Labeler
from rrg_rewards.metrics.base import ReportMetric

__all__ = ["LabelledMetric"]


class LabelledMetric(ReportMetric):
    """Base of metrics with a labeler, and with known labels of the references as an optional context column.

    A subclass sets ``labeler`` in its constructor.
    """

    context = ("target_labels",)

    labeler: Labeler

    def _pair_labels(
        self, preds: Sequence[str], target: Sequence[str], context: Mapping[str, Sequence[Any]]
    ) -> tuple[Tensor, Tensor]:
        """Return the label matrices ``(N, L)`` of scorable predictions and references."""
        if "target_labels" not in context:
            return self.labeler(preds), self.labeler(target)
        rows = [[bool(label) for label in labels] for labels in context["target_labels"]]
        known = torch.tensor(rows, dtype=torch.bool).view(len(rows), len(self.labeler.labels))
        return self.labeler(preds), known

    def _scorable(
        self, preds: Sequence[str | None], target: Sequence[str | None], context: Mapping[str, Sequence[Any]]
    ) -> Tensor:
        if "target_labels" not in context:
            return super()._scorable(preds, target, context)
        self._check_labels(context["target_labels"])
        pairs = zip(preds, context["target_labels"], strict=True)
        return torch.tensor([p is not None and labels is not None for p, labels in pairs], dtype=torch.bool)

    def _modality(self) -> tuple[Modality | None, str]:
        modality = getattr(self.labeler, "modality", None)
        other = "rules:chexbert" if modality == "ct" else "rules:ct_rate"
        return modality, f"use labeler={other!r}"

    def _check_labels(self, rows: Sequence[Any]) -> None:
        width = len(self.labeler.labels)
        for row, labels in enumerate(rows):
            if labels is not None and (len(labels) != width or any(label not in (0, 1) for label in labels)):
                raise ValueError(
                    f"target_labels[{row}] must be {width} values of 0 or 1, one for each of "
                    f"{', '.join(self.labeler.labels)}; got {list(labels)}"
                )
