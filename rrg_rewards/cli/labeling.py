"""Labelers as commands use them: by name, in batches, with progress."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rrg_rewards.cli.options import UsageError
from rrg_rewards.labelers.base import Labeler
from rrg_rewards.labelers.registry import get_labeler

__all__ = ["BatchedLabeler", "labeler_from_option"]


class BatchedLabeler:
    """A labeler that is called on ``batch_size`` reports at a time, so that memory does not grow with the table.

    Args:
        labeler: The labeler to call.
        batch_size: Most reports in one call.
        report: Told how many reports are done and how many have been added, as :meth:`Terminal.progress` yields it.
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
        """What exactly labels; batches change nothing about it."""
        return self._labeler.signature

    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Label reports: bool tensor ``(N, L)``."""
        self._report(0, len(reports))
        matrix = torch.zeros(len(reports), len(self.labels), dtype=torch.bool)
        for start in range(0, len(reports), self._batch_size):
            batch = reports[start : start + self._batch_size]
            matrix[start : start + len(batch)] = self._labeler(batch)
            self._report(len(batch), 0)
        return matrix


def labeler_from_option(name: str) -> Labeler:
    """Make the labeler that ``--labeler`` names.

    Raises:
        UsageError: If there is none of that name.
    """
    try:
        return get_labeler(name)
    except ValueError as error:
        raise UsageError(f"argument --labeler: {error}") from error
