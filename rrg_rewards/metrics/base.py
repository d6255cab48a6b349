"""What every metric on report text has in common: one number per report pair, then sums of it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric

from rrg_rewards.utilities.checks import check_reports, check_same_length

__all__ = ["ReportMetric", "ScalarMetric", "Scores"]


@dataclass(frozen=True)
class Scores:
    """Per-report scores of ``N`` report pairs.

    Args:
        value: The score, float tensor ``(N,)``; NaN where a pair is unscorable.
        details: Sub-scores by name, each a float tensor ``(N,)``; NaN where a pair is unscorable.

    Example:
        >>> import torch
        >>> Scores(torch.tensor([0.5, float("nan")])).scored
        tensor([ True, False])
    """

    value: Tensor
    details: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.value)

    @property
    def scored(self) -> Tensor:
        """Which pairs have a score: bool tensor ``(N,)``."""
        return ~self.value.isnan()

    @property
    def explanations(self) -> dict[str, list[str]]:
        """What went wrong in each report, in words: columns of ``N`` texts by name."""
        return {}

    @property
    def failures(self) -> dict[str, Tensor]:
        """Which pairs a judge gave no result for, by kind of failure: bool tensors ``(N,)``; empty without a judge."""
        return {}

    @property
    def sufficient_statistics(self) -> tuple[Tensor, ...]:
        """What the corpus value is made of: tensors with one row for each scored pair, for :meth:`aggregate`."""
        return (self.value[self.scored],)

    @staticmethod
    def aggregate(*sufficient_statistics: Tensor) -> Tensor:
        """Corpus value of scored pairs from their :attr:`sufficient_statistics`: a scalar, NaN where it is undefined.

        ``scores.aggregate(*scores.sufficient_statistics)`` is what ``compute`` gives after ``update`` with the same
        pairs; rows drawn anew give a bootstrap value.

        Example:
            >>> import torch
            >>> scores = Scores(torch.tensor([0.5, float("nan"), 1.0]))
            >>> scores.aggregate(*scores.sufficient_statistics)
            tensor(0.7500, dtype=torch.float64)
        """
        return sufficient_statistics[0].double().mean()

    def expand(self, rows: Tensor) -> "Scores":
        """Put scores of the pairs chosen by ``rows`` (bool, ``(N,)``) back in their places, NaN elsewhere."""
        return replace(
            self,
            value=_scatter(self.value, rows),
            details={name: _scatter(detail, rows) for name, detail in self.details.items()},
        )


def _scatter(values: Tensor, rows: Tensor) -> Tensor:
    out = values.new_full((len(rows), *values.shape[1:]), float("nan"))
    out[rows] = values
    return out


class ScalarMetric(Metric):
    """A metric whose ``compute`` gives one number, higher is better unless a subclass says otherwise."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    def set_dtype(self, dst_type: str | torch.dtype) -> Metric:  # noqa: ARG002 (torchmetrics' signature)
        """Do nothing: the states are counts and sums of many, which a float16 would hold up to 2048 only."""
        return self

    @contextmanager
    def _synced(self) -> Iterator[None]:
        """Sync the states over processes while the context lasts, as ``compute`` does."""
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn,
            should_sync=self._to_sync and not self._is_synced,
            should_unsync=self._should_unsync and not self._is_synced,
        ):
            yield

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any = None) -> tuple[Any, Any]:
        """Plot a value, or several in their order, between the metric's bounds.

        Args:
            val: What ``compute`` or ``forward`` gave, or a list of it. Default: ``compute()``.
            ax: Matplotlib axes to draw in. Default: new ones.

        Returns:
            Matplotlib figure and axes.

        Raises:
            ModuleNotFoundError: If matplotlib is not installed (extra ``plot``).
        """
        figure, axes = self._plot(val, ax)
        return figure, axes


class ReportMetric(ScalarMetric, ABC):
    """A corpus metric made of per-report scores.

    Subclasses score report pairs in :meth:`_score`, add the scores to their states in :meth:`_accumulate`, and turn
    states into the corpus value in ``compute``. Inputs of all report metrics are alike: two lists of ``N`` report
    texts, and further columns of ``N`` values by keyword.

    A pair is unscorable where a prediction is ``None``, or a reference is ``None`` or blank: its score is NaN, it is
    counted in ``num_unscorable`` and left out of the corpus value. A blank prediction is a report that says nothing,
    and is scored.
    """

    name: ClassVar[str]
    """What the metric is called in logs, tables and rewards."""

    num_unscorable: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("num_unscorable", torch.tensor(0), dist_reduce_fx="sum")
        # A MetricCollection takes metrics whose states are equal after the first batch for one and the same, and from
        # then on updates only one of them: two labelers or judges that agree on a batch would share one value. NaN
        # equals nothing, so a report metric is never taken for another.
        self.add_state("never_shared", torch.tensor(float("nan")), dist_reduce_fx="max")

    @property
    def compares_across_batches(self) -> bool:
        """Whether per-report scores of different calls of :meth:`score` are on one scale."""
        return True

    @property
    @abstractmethod
    def signature(self) -> str:
        """What exactly is computed: metric, version, models and settings in one line."""

    @abstractmethod
    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> Scores:
        """Score pairs that are all scorable."""

    @abstractmethod
    def _accumulate(self, scores: Scores) -> None:
        """Add scores to the states."""

    def _scorable(
        self,
        preds: Sequence[str | None],
        target: Sequence[str | None],
        context: Mapping[str, Sequence[Any]],  # noqa: ARG002 (for subclasses)
    ) -> Tensor:
        """Tell which pairs can be scored: bool tensor ``(N,)``."""
        present = [p is not None and t is not None and bool(t.strip()) for p, t in zip(preds, target, strict=True)]
        return torch.tensor(present, dtype=torch.bool)

    def score(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Sequence[Any]) -> Scores:
        """Score report pairs one by one, without touching the metric's state.

        Args:
            preds: ``N`` candidate reports.
            target: ``N`` reference reports.
            context: Further columns of ``N`` values that the metric uses, by name.

        Returns:
            Scores of the ``N`` pairs, in order.

        Raises:
            TypeError: If a report is no text, by argument and row.
            ValueError: If lengths differ.
        """
        rows, chosen_preds, chosen_target, chosen_context = self._choose(preds, target, context)
        return self._score(chosen_preds, chosen_target, **chosen_context).expand(rows)

    def _choose(
        self, preds: Sequence[str | None], target: Sequence[str | None], context: Mapping[str, Sequence[Any]]
    ) -> tuple[Tensor, list[str], list[str], dict[str, list[Any]]]:
        """Check what :meth:`score` was given: which rows can be scored, and their reports and context."""
        check_reports("preds", preds, allow_none=True)
        check_reports("target", target, allow_none=True)
        check_same_length("preds", preds, "target", target)
        for name, column in context.items():
            if isinstance(column, str) or not hasattr(column, "__len__"):
                raise TypeError(f"{name} must be a column of {len(preds)} values, got {type(column).__name__}")
            check_same_length("preds", preds, name, column)
        rows = self._scorable(preds, target, context)
        chosen = rows.nonzero().flatten().tolist()
        return (
            rows,
            [preds[row] or "" for row in chosen],
            [target[row] or "" for row in chosen],
            {name: [column[row] for row in chosen] for name, column in context.items()},
        )

    def _check_columns(self, context: Mapping[str, Any], known: Sequence[str]) -> None:
        """Raise for a context column that the metric does not know."""
        unknown = context.keys() - set(known)
        if unknown:
            raise TypeError(f"{self.name} takes no column {', '.join(sorted(unknown))}; it knows {', '.join(known)}")

    def update(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Sequence[Any]) -> None:
        """Score report pairs and add the scores to the state. Takes what :meth:`score` takes."""
        self._add(self.score(preds, target, **context))

    def add_scores(self, scores: Scores) -> None:
        """Add scores that :meth:`score` gave: ``update`` in two steps, for those who need the scores too.

        Args:
            scores: What :meth:`score` of this metric returned.

        Example:
            >>> from rrg_rewards.metrics import ReportCRG
            >>> metric = ReportCRG()
            >>> scores = metric.score(["Cardiomegaly."], ["Cardiomegaly. Hiatal hernia."])
            >>> metric.add_scores(scores)
            >>> metric.compute()
            tensor(0.5000, dtype=torch.float64)
        """
        # What torchmetrics does around `update`: forget the value computed before, and count the call.
        self._computed = None
        self._update_count += 1
        self._add(scores)

    def _add(self, scores: Scores) -> None:
        self.num_unscorable += int((~scores.scored).sum())
        self._accumulate(scores)
