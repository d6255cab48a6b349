"""Sums over the scores of a corpus that is scored in batches."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.cli.summary import CONFIDENCE, label_summary, number
from rrg_rewards.functional.bootstrap import bootstrap_interval
from rrg_rewards.functional.label_counts import LabelCounts
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.crg import LabelScores
from rrg_rewards.metrics.scores import Scores

__all__ = ["MetricTotals"]


class _Rows:
    """Rows of a tensor that grows, without a copy of each batch."""

    def __init__(self, like: Tensor) -> None:
        self._bytes = bytearray()
        self._dtype, self._shape = like.dtype, like.shape[1:]

    def add(self, rows: Tensor) -> None:
        self._bytes += rows.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()

    def tensor(self) -> Tensor:
        if not self._bytes:
            return torch.empty(0, *self._shape, dtype=self._dtype)
        return torch.frombuffer(self._bytes, dtype=self._dtype).view(-1, *self._shape)


class MetricTotals:
    """Corpus value, interval and counts of a metric, from the scores of batches of report pairs.

    The sufficient statistics of each scored pair are kept, because the bootstrap draws pairs: 8 bytes for a score.
    Everything else is summed.

    Args:
        metric: The metric.

    Example:
        >>> from rrg_rewards.metrics import BLEU
        >>> metric = BLEU()
        >>> totals = MetricTotals(metric)
        >>> for report in ("Small left pleural effusion.", "Large left pleural effusion."):
        ...     totals.add(metric.score([report], ["Small left pleural effusion."]))
        >>> summary = totals.summary(num_resamples=100, seed=0)
        >>> round(summary["value"], 3), summary["scored"]
        (0.834, 2)
    """

    def __init__(self, metric: ReportMetric) -> None:
        self._metric = metric
        self._rows: list[_Rows] = []
        self._last: Scores | None = None
        self._means: dict[str, tuple[float, int]] = {}
        self._labels: LabelCounts | None = None
        self.pairs = 0
        self.scored = 0
        self.failed: Counter[str] = Counter()

    def add(self, scores: Scores) -> None:
        """Add the scores of a batch."""
        self.pairs += len(scores)
        self.scored += int(scores.scored.sum())
        # `update` also adds 0, so that every kind of failure has a count.
        self.failed.update({kind: int(rows.sum()) for kind, rows in scores.failures.items()})
        for name, values in scores.details.items():
            total, count = self._means.get(name, (0.0, 0))
            self._means[name] = total + float(values.double().nansum()), count + int((~values.isnan()).sum())
        if isinstance(scores, LabelScores):
            batch = scores.counts(dim=0)
            self._labels = batch if self._labels is None else LabelCounts(*map(torch.add, self._labels, batch))
        statistics = scores.sufficient_statistics
        self._rows = self._rows or [_Rows(column) for column in statistics]
        for rows, column in zip(self._rows, statistics, strict=True):
            rows.add(column)
        # For the names of labels and for `aggregate`; the texts in explanations are not needed.
        self._last = scores

    @property
    def statistics(self) -> tuple[Tensor, ...]:
        """The sufficient statistics of all scored pairs so far."""
        return tuple(rows.tensor() for rows in self._rows)

    def summary(self, num_resamples: int, seed: int) -> dict[str, Any]:
        """Return the corpus value with its interval, counts and parts; undefined numbers are ``None``.

        Args:
            num_resamples: Resamples of the bootstrap; 0 for no interval.
            seed: Seed of the bootstrap.
        """
        assert self._last is not None
        value = low = high = float("nan")
        if self.scored:
            statistics = self.statistics
            value = float(self._last.aggregate(*statistics))
            if num_resamples:
                low, high = bootstrap_interval(self._last.aggregate, statistics, num_resamples, CONFIDENCE, seed)
        summary: dict[str, Any] = {
            "value": number(value),
            "interval": [number(low), number(high)],
            "higher_is_better": self._metric.higher_is_better,
            "scored": self.scored,
            "unscorable": self.pairs - self.scored,
            "means": {name: total / count if count else None for name, (total, count) in self._means.items()},
            "signature": self._metric.signature,
        }
        if self.failed:
            summary["failed"] = dict(self.failed)
        if self._labels is not None and isinstance(self._last, LabelScores):
            summary.update(label_summary(self._last, self._labels))
        return summary
