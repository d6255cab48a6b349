"""Label reports with a judge, which is a language model behind a server or in this process."""

import hashlib
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.findings.reading.modality import Modality
from rrg_rewards.judges.base import Judge, JudgeFailure, JudgeWarning, remember_results
from rrg_rewards.judges.registry import get_judge
from rrg_rewards.judges.tasks.labels import LabelsTask, StatedLabel
from rrg_rewards.labelers.base import FallibleLabeler, LabelledReports
from rrg_rewards.schemas.labels import SUPPORT_DEVICES, LabelSchema, get_label_schema, is_no_abnormality
from rrg_rewards.utilities.checks import check_reports
from rrg_rewards.utilities.signature import format_signature
from rrg_rewards.utilities.yaml_files import absolute_yaml_path

# Number of reports whose labels are remembered.
_REMEMBERED = 1024
_MODALITIES: Mapping[str, Modality] = {"chest CT": "ct", "abdominal CT": "ct", "chest X-ray": "xray"}
_NOT_STATED = StatedLabel("negative", None)


class JudgeLabeler(FallibleLabeler):
    """Label reports with a language model.

    The judge states each label of the schema as positive, negative or uncertain and quotes the report
    (:class:`rrg_rewards.judges.tasks.labels.LabelsTask`). As with rules, an uncertain label is not positive. A label
    that means "no abnormality", such as CheXbert's "No Finding", is not part of the question: it is positive unless a
    label other than support devices is positive or uncertain.

    A report without a valid answer has no labels: its row is NaN, a :class:`~rrg_rewards.judges.base.JudgeWarning`
    gives the number of such reports, and metrics count its pair as unscorable. A blank report has no positive label,
    and the judge is not asked.

    Answers about recent reports are remembered, because all candidates of a reference need its labels. A judge with a
    ``cache`` also stores them on disk. Calls block until the judge has answered, also inside of an event loop.

    Source: Hamamci et al., "CRG Score", MIDL 2025, Section 2.2.

    Args:
        schema: Name or YAML file of a label schema (:func:`rrg_rewards.schemas.get_label_schema`), or a schema.
        judge: A judge, or its name or settings as :func:`rrg_rewards.judges.get_judge` accepts them, but not ``rules``.
        remembered: Number of reports whose labels are remembered, and at least those of the last call; 0 for none.

    Raises:
        ValueError: If the schema or the judge is unknown, the schema has only labels that mean "no abnormality", the
            judge is ``rules``, or ``remembered`` is negative.
        TypeError: For an object that is not a judge, or an argument that the judge does not take.

    Example:
        >>> labeler = JudgeLabeler("ct_rate", "openai:my-model")
        >>> labeler.labels[2], labeler.signature
        ('Cardiomegaly', 'judge|schema:ct_rate@...|judge:{openai|model:my-model|...}|prompt:...|version:...')
    """

    def __init__(
        self,
        schema: str | Path | LabelSchema,
        judge: str | Mapping[str, Any] | Judge,
    ) -> None:
        self._given = absolute_yaml_path(schema)
        self.schema = get_label_schema(schema)
        self.judge = get_judge(judge)
        if self.judge.task_names is not None:
            raise ValueError(
                f"judge: the judge {self.judge.short_name!r} evaluates CRIMSON only; for rules use the labeler "
                "'rules:SCHEMA'"
            )
        self.has_independent_rows = self.judge.has_independent_rows
        self._derived = [is_no_abnormality(label) for label in self.labels]
        if all(self._derived):
            raise ValueError(f"label schema {self.schema.name!r} has no label of an abnormality")
        definitions = self.schema.definitions or ("",) * len(self.labels)
        asked = [
            (label, text)
            for label, text, derived in zip(self.labels, definitions, self._derived, strict=True)
            if not derived
        ]
        self.task = LabelsTask([label for label, _ in asked], [text for _, text in asked])
        self._known: dict[str, tuple[StatedLabel, ...]] = {}

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each: that of the judge."""
        return self.judge.worker_refusal

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this labeler."""
        return {"schema": self._given, "judge": self.judge}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns of the label matrix."""
        return self.schema.labels

    @property
    def modality(self) -> Modality | None:
        """Modality of the reports that the labels are made for, ``ct`` or ``xray``; ``None`` if it is unknown."""
        return _MODALITIES.get(self.schema.modality)

    @property
    def signature(self) -> str:
        """Schema with a digest of its labels, judge and prompt version."""
        digest = hashlib.sha256(repr((self.labels, self.schema.definitions)).encode()).hexdigest()[:8]
        return format_signature(
            "judge",
            schema=f"{self.schema.name}@{digest}",
            judge=f"{{{self.judge.signature}}}",
            prompt=self.task.prompt_hash,
        )

    def states(self, reports: Sequence[str]) -> list[tuple[StatedLabel, ...] | JudgeFailure]:
        """Return the state of each label, with its quote.

        Args:
            reports: ``N`` report texts. Equal reports are labelled once.

        Returns:
            For each report a :class:`~rrg_rewards.judges.tasks.labels.StatedLabel` for each label, or the judge's
            failure.

        Raises:
            TypeError: If ``reports`` is a single string or one of its rows is not a string.
        """
        check_reports("reports", reports)
        blank = tuple(_NOT_STATED for _ in self.labels)
        found: dict[str, tuple[StatedLabel, ...] | JudgeFailure] = {
            report: self._known.get(report, blank) for report in reports if report in self._known or not report.strip()
        }
        unknown = [report for report in dict.fromkeys(reports) if report not in found]
        outcomes = self.judge.evaluate_now(self.task, unknown) if unknown else []
        for report, outcome in zip(unknown, outcomes, strict=True):
            found[report] = outcome if isinstance(outcome, JudgeFailure) else self._with_derived(outcome)
        # All reports of a call, because another metric with this labeler may get the same batch next.
        remember_results(self._known, found, max(_REMEMBERED, len(found)))
        return [found[report] for report in reports]

    def label(self, reports: Sequence[str]) -> LabelledReports:
        """Return the labels of reports, and a failure for each report without a valid answer; see :meth:`states`."""
        states = self.states(reports)
        failures = tuple(outcome if isinstance(outcome, JudgeFailure) else None for outcome in states)
        rows = [
            [False] * len(self.labels)
            if isinstance(stated, JudgeFailure)
            else [label.state == "positive" for label in stated]
            for stated in states
        ]
        return LabelledReports(torch.tensor(rows, dtype=torch.bool).view(len(rows), len(self.labels)), failures)

    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Label reports; see :meth:`states`.

        Returns:
            float32 tensor ``(N, L)`` of 0 and 1; NaN in the rows of reports without a valid answer, with a warning.
        """
        labels, failures = self.label(reports)
        matrix = labels.float()
        failed = [failure is not None for failure in failures or ()]
        matrix[torch.tensor(failed, dtype=torch.bool)] = float("nan")
        if any(failed):
            kinds = Counter(failure.kind for failure in failures or () if failure is not None)
            by_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
            warnings.warn(
                f"the judge failed on {sum(failed)} of {len(reports)} reports ({by_kind}), which have no labels",
                JudgeWarning,
                stacklevel=2,
            )
        return matrix

    def _with_derived(self, stated: tuple[StatedLabel, ...]) -> tuple[StatedLabel, ...]:
        """Add the labels that mean "no abnormality" to those of the judge's answer."""
        is_normal = all(
            label_state.state == "negative" or label == SUPPORT_DEVICES
            for label, label_state in zip(self.task.labels, stated, strict=True)
        )
        derived = StatedLabel("positive" if is_normal else "negative", None)
        asked = iter(stated)
        return tuple(derived if is_derived else next(asked) for is_derived in self._derived)
