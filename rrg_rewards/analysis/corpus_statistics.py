"""Sufficient statistics of the report pairs of a table, from which a corpus value is computed."""

import math

import torch
from torch import Tensor

from rrg_rewards.metrics.scores import Scores


class StatisticRows:
    """Sufficient statistics of report pairs that are added batch by batch, without a copy of each batch.

    Example:
        >>> rows = StatisticRows()
        >>> for value in (0.5, 1.0):
        ...     rows.add(Scores(torch.tensor([value])))
        >>> rows.tensors(), rows.value()
        ((tensor([0.5000, 1.0000]),), 0.75)
    """

    def __init__(self) -> None:
        self._columns: list[tuple[torch.dtype, torch.Size, bytearray]] = []
        self._last: Scores | None = None

    def __len__(self) -> int:
        """Number of scored pairs so far."""
        return len(self.tensors()[0]) if self._columns else 0

    def add(self, scores: Scores) -> None:
        """Add the statistics of a batch."""
        columns = [column.detach().cpu().contiguous() for column in scores.sufficient_statistics]
        self._columns = self._columns or [(column.dtype, column.shape[1:], bytearray()) for column in columns]
        for (_, _, content), column in zip(self._columns, columns, strict=True):
            content += column.view(torch.uint8).numpy().tobytes()
        # For `aggregate`; its pairs do not matter.
        self._last = scores

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the statistics of all scored pairs so far."""
        return tuple(
            torch.frombuffer(content, dtype=dtype).view(-1, *shape) if content else torch.empty(0, *shape, dtype=dtype)
            for dtype, shape, content in self._columns
        )

    def value(self) -> float:
        """Return the corpus value of all scored pairs so far, NaN if it is undefined or there are none."""
        if self._last is None or not len(self):
            return math.nan
        return float(self._last.aggregate(*self.tensors()))
