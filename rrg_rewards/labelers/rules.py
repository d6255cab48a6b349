"""Label reports from their findings, without a model or a download."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rrg_rewards.findings import Finding, get_engine
from rrg_rewards.findings.reading.engine import FindingEngine
from rrg_rewards.findings.reading.modality import Modality
from rrg_rewards.schemas import get_label_schema
from rrg_rewards.schemas.labels import SUPPORT_DEVICES
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.checks import check_reports
from rrg_rewards.utilities.signature import format_signature
from rrg_rewards.utilities.yaml_files import absolute_yaml_path, is_yaml_path

# Lexicon of each label schema.
_LEXICONS = {"ct_rate": "chest_ct", "chexbert": "chest_xray"}
# "No Finding" is positive unless a label other than support devices is positive or uncertain.
_NO_FINDING = "No Finding"
_MAX_ROWS = 100_000
# A row of labels is one integer of 64 bits.
_MOST_LABELS = 62


class RuleLabeler(Backend):
    """Label reports by their present findings.

    A label is positive if one of its findings is present. Findings do not count if they are denied, uncertain or
    described only for an earlier examination. CheXbert's "No Finding" is positive unless a label other than support
    devices is positive or uncertain. The lexicons in ``rrg_rewards/findings/lexicon`` contain the conventions of the
    annotators: for example, small lymph nodes count, and infiltration alone is not an opacity.

    Args:
        schema: ``ct_rate`` (18 labels, chest CT), ``chexbert`` (14 labels, chest X-ray), or the path of a ``.yaml``
            file with a lexicon and labels of your own, at most 62, in the format of ``docs/labelers.md``.

    Raises:
        ValueError: If the schema is unknown or has no rules, or an entry of the file is wrong.
        FileNotFoundError: If the file does not exist.

    Example:
        >>> labeler = RuleLabeler("ct_rate")
        >>> row = labeler(["Hiatal hernia. No pleural effusion."])[0]
        >>> [label for label, positive in zip(labeler.labels, row.tolist()) if positive]
        ['Hiatal hernia']
    """

    has_independent_rows = True
    """Whether the labels of a report are the same in any batch."""

    def __init__(self, schema: str | Path = "ct_rate") -> None:
        self.schema = str(absolute_yaml_path(schema))
        self._engine, self._labels = _rules(self.schema)
        self._masks = [self._mask(label) for label in self._labels]
        others = (mask for label, mask in zip(self._labels, self._masks, strict=True) if label != SUPPORT_DEVICES)
        # Multiplying by 3 adds the bits for uncertain concepts, which are next to those for present concepts.
        self._abnormal = reduce(or_, others, 0) * 3
        self._rows: dict[int, int] = {}

    def _mask(self, label: str) -> int:
        """Return the bits that the engine's masks have if a concept of a label is present."""
        lexicon = self._engine.lexicon
        return sum(1 << 2 * lexicon.concepts.index(concept) for concept in lexicon.labels.get(label, ()))

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns of the label matrix."""
        return self._labels

    @property
    def signature(self) -> str:
        """Schema, lexicon contents and version."""
        lexicon = self._engine.lexicon
        schema = lexicon.name if is_yaml_path(self.schema) else self.schema
        return format_signature("rules", schema=schema, lexicon=lexicon.digest)

    @property
    def modality(self) -> Modality | None:
        """Modality of the reports that the labels are made for, ``ct`` or ``xray``; ``None`` for both."""
        return self._engine.lexicon.modality

    def arguments(self) -> dict[str, str]:
        """Return the keyword arguments that rebuild this labeler."""
        return {"schema": self.schema}

    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Label reports.

        Args:
            reports: ``N`` report texts; an empty one has no positive label.

        Returns:
            Bool tensor of shape ``(N, L)``.

        Raises:
            TypeError: If ``reports`` is a single string or one of its rows is not a string.

        Example:
            >>> RuleLabeler("chexbert")(["Small effusion.", "Clear lungs.", ""]).sum(1).tolist()
            [1, 1, 0]
        """
        check_reports("reports", reports)
        rows = self._rows
        packed = np.zeros(len(reports), dtype=np.int64)
        for index, (report, found) in enumerate(zip(reports, self._engine.masks(reports), strict=True)):
            # "No Finding" is not positive for a blank report.
            if not found and not report.strip():
                continue
            row = rows.get(found)
            packed[index] = self._row(found) if row is None else row
        bits = packed[:, None] >> np.arange(len(self._labels)) & 1
        return torch.from_numpy(bits.astype(np.bool_))

    def _row(self, present: int) -> int:
        """Return the label bits for the concepts found in a report, and remember them."""
        row = 0
        for column, mask in enumerate(self._masks):
            row |= bool(present & mask) << column
        if _NO_FINDING in self._labels and not present & self._abnormal:
            row |= 1 << self._labels.index(_NO_FINDING)
        if len(self._rows) < _MAX_ROWS:
            self._rows[present] = row
        return row

    def explain(self, report: str) -> dict[str, list[Finding]]:
        """Return the findings of each positive label.

        Args:
            report: Report text.

        Returns:
            The mentions of each positive label, with their offsets in the report; empty for "No Finding".

        Raises:
            TypeError: If ``report`` is not a string.

        Example:
            >>> RuleLabeler("ct_rate").explain("No effusion. Hiatal hernia.")["Hiatal hernia"][0].start
            13
        """
        check_reports("report", [report])
        members = self._engine.lexicon.labels
        positive = [label for label, found in zip(self._labels, self([report])[0].tolist(), strict=True) if found]
        present = [finding for finding in self._engine.extract(report) if finding.presence == "present"]
        return {
            label: [finding for finding in present if finding.concept in members.get(label, ())] for label in positive
        }


def _rules(schema: str) -> tuple[FindingEngine, tuple[str, ...]]:
    """Return the engine and the labels of a label schema, or of the file with this path."""
    if not is_yaml_path(schema):
        labels = get_label_schema(schema).labels
        if schema not in _LEXICONS:
            raise ValueError(
                f"label schema {schema!r} has no rules; schemas with rules: {', '.join(sorted(_LEXICONS))}"
            )
        return get_engine(_LEXICONS[schema]), labels
    engine = get_engine(schema)
    labels = tuple(engine.lexicon.labels)
    if not 0 < len(labels) <= _MOST_LABELS:
        raise ValueError(
            f"{schema}, labels: must name 1 to {_MOST_LABELS} labels with their concepts, got {len(labels)}"
        )
    return engine, labels
