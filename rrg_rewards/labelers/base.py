"""What every labeler is."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

__all__ = ["Labeler"]


@runtime_checkable
class Labeler(Protocol):
    """Turns report text into a label matrix.

    ``labels`` names the columns, ``signature`` says what exactly labels (version, model revision, settings), and
    calling the labeler on ``N`` reports gives a bool tensor of shape ``(N, len(labels))`` on the CPU. An empty report
    has no positive label. Labelers used by metrics also derive from :class:`rrg_rewards.utilities.backend.Backend`.

    Example:
        >>> from rrg_rewards.labelers import Labeler, RuleLabeler
        >>> isinstance(RuleLabeler("ct_rate"), Labeler)
        True
    """

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns."""
        ...

    @property
    def signature(self) -> str:
        """What exactly labels."""
        ...

    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Label reports: bool tensor ``(N, L)``."""
        ...
