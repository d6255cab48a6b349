"""Make the labeler of ``--labeler``, and call it in batches with a progress bar."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rrg_rewards.cli.options import UsageError
from rrg_rewards.labelers.base import Labeler
from rrg_rewards.labelers.registry import get_labeler

__all__ = ["BatchedLabeler", "labeler_from_option"]


class BatchedLabeler:
    """A labeler that labels ``batch_size`` reports at a time, so that memory does not grow with the table.

    Args:
        labeler: The labeler.
        batch_size: Maximum number of reports in a batch.
        report: Function that :meth:`Terminal.progress` yields.
    """

    def __init__(self, labeler: Labeler, batch_size: int, report: Callable[[int, int], None]) -> None:
        self._labeler = labeler
        self._batch_size = batch_size
        self._report = report

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self._labeler.labels

    @property
    def signature(self) -> str:
        """Signature of the labeler; batches do not change it."""
        return self._labeler.signature

    @property
    def modality(self) -> str | None:
        """Modality of the reports that the labels are made for; ``None`` if it is unknown."""
        return getattr(self._labeler, "modality", None)

    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Return the labels of ``N`` reports, a bool tensor of shape ``(N, L)``."""
        self._report(0, len(reports))
        matrix = torch.zeros(len(reports), len(self.labels), dtype=torch.bool)
        for start in range(0, len(reports), self._batch_size):
            batch = reports[start : start + self._batch_size]
            matrix[start : start + len(batch)] = self._labeler(batch)
            self._report(len(batch), 0)
        return matrix


def labeler_from_option(name: str) -> Labeler:
    """Make a labeler from the value of ``--labeler``.

    Raises:
        UsageError: For an unknown name.
    """
    try:
        return get_labeler(name)
    except ValueError as error:
        raise UsageError(f"argument --labeler: {error}") from error
