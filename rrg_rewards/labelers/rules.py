"""Labels by rules on the findings of a report: no model, no download, one core."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rrg_rewards.findings import Finding, get_engine
from rrg_rewards.schemas import get_label_schema
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.checks import check_reports
from rrg_rewards.utilities.signature import format_signature

__all__ = ["RuleLabeler"]

# Which lexicon carries the label map of which schema.
_LEXICONS = {"ct_rate": "chest_ct", "chexbert": "chest_xray"}
_NO_FINDING = "No Finding"
_SUPPORT_DEVICES = "Support Devices"


class RuleLabeler(Backend):
    """Label reports by the findings that they name as present or uncertain.

    Args:
        schema: ``ct_rate`` (18 labels, chest CT) or ``chexbert`` (14 labels, chest X-ray).

    Raises:
        ValueError: For an unknown schema, or one without rules.

    Example:
        >>> labeler = RuleLabeler("ct_rate")
        >>> row = labeler(["Hiatal hernia. No pleural effusion."])[0]
        >>> [label for label, positive in zip(labeler.labels, row.tolist()) if positive]
        ['Hiatal hernia']
    """

    def __init__(self, schema: str = "ct_rate") -> None:
        label_schema = get_label_schema(schema)
        if schema not in _LEXICONS:
            raise ValueError(f"label schema {schema!r} has no rules; schemas with rules: {', '.join(sorted(_LEXICONS))}")
        self.schema = schema
        self._labels = label_schema.labels
        self._engine = get_engine(_LEXICONS[schema])
        concepts = {concept: index for index, concept in enumerate(self._engine.lexicon.concepts)}
        self._concepts = [
            sum(3 << 2 * concepts[concept] for concept in self._engine.lexicon.labels.get(label, ()))
            for label in self._labels
        ]
        self._rows: dict[int, int] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self._labels

    @property
    def signature(self) -> str:
        """Schema, lexicon contents and version."""
        return format_signature("rules", schema=self.schema, lexicon=self._engine.lexicon.digest)

    def arguments(self) -> dict[str, str]:
        """Keyword arguments that rebuild this labeler."""
        return {"schema": self.schema}

    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Label reports.

        Args:
            reports: ``N`` report texts; an empty one has no positive label.

        Returns:
            Bool tensor of shape ``(N, L)``.

        Raises:
            TypeError: For a lone string, or for a row that is no string.
        """
        check_reports("reports", reports)
        rows, mask = self._rows, self._engine.mask
        packed = np.empty(len(reports), dtype=np.int64)
        for index, report in enumerate(reports):
            found = mask(report)
            row = rows.get(found)
            packed[index] = self._row(found) if row is None else row
        bits = packed[:, None] >> np.arange(len(self._labels)) & 1
        return torch.from_numpy(bits.astype(np.bool_))

    def _row(self, mask: int) -> int:
        row = 0
        for index, concepts in enumerate(self._concepts):
            row |= bool(mask & concepts) << index
        self._rows[mask] = row
        return row

    def explain(self, report: str) -> dict[str, list[Finding]]:
        """Say which findings make which labels positive."""
        check_reports("report", [report])
        positive = [finding for finding in self._engine.extract(report) if finding.presence != "absent"]
        members = self._engine.lexicon.labels
        grouped = {
            label: [finding for finding in positive if finding.concept in members.get(label, ())]
            for label in self._labels
        }
        return {label: found for label, found in grouped.items() if found}
