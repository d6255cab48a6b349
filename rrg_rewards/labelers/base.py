"""The protocol of labelers."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

__all__ = ["Labeler"]


@runtime_checkable
class Labeler(Protocol):
    """Converts reports to a label matrix.

    Calling the labeler with ``N`` reports returns a bool tensor of shape ``(N, len(labels))`` on the CPU. An empty
    report has no positive label. A labeler that is used by a metric must also derive from
    :class:`rrg_rewards.utilities.backend.Backend`.

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
        """Return the bool label matrix ``(N, L)`` of reports."""
        ...
