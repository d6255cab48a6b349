"""The protocol of labelers, and labelers that may fail on a report."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from rrg_rewards.judges.base import Judge, JudgeFailure
from rrg_rewards.utilities.backend import Backend


@runtime_checkable
class Labeler(Protocol):
    """Converts reports to a label matrix.

    Calling the labeler with ``N`` reports returns a bool tensor of shape ``(N, len(labels))`` on the CPU. An empty
    report has no positive label. A labeler that is used by a metric must also derive from
    :class:`rrg_rewards.utilities.backend.Backend`. A labeler that cannot label every report derives from
    :class:`FallibleLabeler`.

    Example:
        >>> from rrg_rewards.labelers import Labeler, RuleLabeler
        >>> isinstance(RuleLabeler("ct_rate"), Labeler)
        True
    """

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns of the label matrix."""
        ...

    @property
    def signature(self) -> str:
        """Version, model revision and settings, as one line."""
        ...

    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Return the label matrix ``(N, L)`` of reports."""
        ...


class LabelledReports(NamedTuple):
    """Labels of ``N`` reports.

    Args:
        labels: Bool tensor ``(N, L)``; False in the rows of reports without labels.
        failures: For each report the reason why it has no labels, or ``None``; ``None`` alone for a labeler that never
            fails.
    """

    labels: Tensor
    failures: tuple[JudgeFailure | None, ...] | None = None


class FallibleLabeler(Backend, ABC):
    """Base of labelers that may fail on a report, such as one with a judge.

    Metrics and commands call :meth:`label`. They count a report without labels as unscorable. A subclass also has the
    attributes of a :class:`Labeler`; its call returns a float tensor with NaN in the rows of reports without labels.
    """

    @abstractmethod
    def label(self, reports: Sequence[str]) -> LabelledReports:
        """Return the labels of reports, and a failure for each report without labels."""


def labeler_judge(labeler: Labeler) -> Judge | None:
    """Return the judge that a labeler asks; ``None`` if it asks none.

    Example:
        >>> from rrg_rewards.labelers import RuleLabeler
        >>> labeler_judge(RuleLabeler("ct_rate")) is None
        True
    """
    judge = getattr(labeler, "judge", None)
    return judge if isinstance(judge, Judge) else None


def label_reports(labeler: Labeler, reports: Sequence[str]) -> LabelledReports:
    """Return the labels of reports from any labeler.

    Example:
        >>> from rrg_rewards.labelers import RuleLabeler
        >>> label_reports(RuleLabeler("ct_rate"), ["Hiatal hernia."]).labels.sum()
        tensor(1)
    """
    # FallibleLabeler is a class and no protocol, because a check of a protocol may read the signature.
    return labeler.label(reports) if isinstance(labeler, FallibleLabeler) else LabelledReports(labeler(reports))
