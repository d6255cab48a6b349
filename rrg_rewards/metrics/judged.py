"""Report metrics whose scores are computed from answers of judges."""

import warnings
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

import torch
from torch import Tensor

from rrg_rewards.judges.base import FailureKind, Judge, JudgeFailure, JudgeTask, JudgeWarning
from rrg_rewards.judges.registry import get_judge
from rrg_rewards.metrics.base import Column, ReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.precision import own_precision
from rrg_rewards.utilities.processes import run_coroutine

FAILURE_KINDS: tuple[str, ...] = get_args(FailureKind)
"""Kinds of judge failures, in the order of the counts in ``num_failed``."""


Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


def failed_by_kind(results: Sequence[Any]) -> dict[str, Tensor]:
    """Return which of ``N`` results are failures, by kind of failure: bool tensors ``(N,)``."""
    kinds = [result.kind if isinstance(result, JudgeFailure) else None for result in results]
    return {name: torch.tensor([kind == name for kind in kinds], dtype=torch.bool) for name in FAILURE_KINDS}


def failure_texts(results: Sequence[Any]) -> list[str]:
    """Return kind and reason of each failure among ``N`` results, ``""`` for the others."""
    return [f"{one.kind}: {one.reason}" if isinstance(one, JudgeFailure) else "" for one in results]


def warn_of_failures(name: str, results: Sequence[Any]) -> None:
    """Warn if results of report pairs contain failures, with their number by kind.

    References that rules cannot read are left out: :class:`~rrg_rewards.metrics.UnreadWarning` tells of them.

    Args:
        name: Name of the metric.
        results: A result or a failure for each pair.
    """
    counts = {kind: int(failed.sum()) for kind, failed in failed_by_kind(results).items() if kind != "unread"}
    if any(counts.values()):
        by_kind = ", ".join(f"{kind} {count}" for kind, count in counts.items() if count)
        # Warn on every process, because each process judges different reports.
        warnings.warn(
            f"{name}: the judge failed on {sum(counts.values())} of {len(results)} report pairs ({by_kind}), which "
            "have no score",
            JudgeWarning,
            stacklevel=2,
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class JudgedScores(Scores):
    """Per-report scores with the results of the judge.

    Args:
        value: Score, float tensor ``(N,)``; NaN if a pair is unscorable or the judge failed.
        details: Sub-scores by name, each ``(N,)``; NaN for a pair without a score.
        results: For each of the ``N`` pairs the judge's result, a :class:`~rrg_rewards.judges.JudgeFailure`, or
            ``None`` if the pair was not judged.
    """

    results: tuple[Any, ...]

    _row_fields = ("results",)

    @property
    def failures(self) -> dict[str, Tensor]:
        """Pairs on which the judge failed, by kind of failure: bool tensors ``(N,)``."""
        return failed_by_kind(self.results)

    @property
    def explanations(self) -> dict[str, list[str]]:
        """Column ``failure``: kind and reason of the judge's failure on each pair; empty without a failure."""
        return {"failure": failure_texts(self.results)}


class AsyncReportMetric(ReportMetric, Generic[Item, Result]):
    """A report metric that queries judges about each pair, synchronously or asynchronously.

    Subclasses implement :meth:`_items`, :meth:`_query` and :meth:`_judged`. A pair on which a judge failed has no
    score. It is counted in ``num_unscorable`` and, by kind of failure, in ``num_failed``, and a :class:`JudgeWarning`
    reports the number of such pairs.

    Args:
        kwargs: Further arguments of :class:`torchmetrics.Metric`.
    """

    num_failed: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("num_failed", torch.zeros(len(FAILURE_KINDS), dtype=torch.long), dist_reduce_fx="sum")

    @property
    def is_immediate(self) -> bool:
        """Whether all judges answer without waiting; asynchronous scoring is then no faster."""
        return all(judge.is_immediate for judge in self.judges().values())

    @property
    def has_independent_rows(self) -> bool:
        """Whether all judges evaluate an item in the same way in any batch."""
        return all(judge.has_independent_rows for judge in self.judges().values())

    @abstractmethod
    def _items(self, preds: Sequence[str], target: Sequence[str], context: Mapping[str, Sequence[Any]]) -> list[Item]:
        """Return one query item for each pair; all pairs are scorable."""

    @abstractmethod
    async def _query(self, items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Return the result or the failure of each item, in order."""

    def _query_now(self, items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Run :meth:`_query` from synchronous code."""
        return run_coroutine(self._query(items))

    @abstractmethod
    def _judged(self, results: Sequence[Result | JudgeFailure]) -> JudgedScores:
        """Compute scores from results; NaN for failures."""

    async def score_async(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Column) -> Scores:
        """Do the same as :meth:`score` without blocking the event loop while a judge answers."""
        if self.is_immediate:
            return self.score(preds, target, **context)
        rows, chosen_preds, chosen_target, chosen_context = self._choose(preds, target, context)
        results = await self._query(self._items(chosen_preds, chosen_target, chosen_context))
        # Not around the query: other coroutines run while it waits.
        with own_precision():
            scores = self._checked_scores(results)
        return self._expand(scores, rows)

    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> JudgedScores:
        return self._checked_scores(self._query_now(self._items(preds, target, context)))

    def _checked_scores(self, results: Sequence[Result | JudgeFailure]) -> JudgedScores:
        """Compute scores; warn if a judge failed."""
        scores = self._judged(results)
        warn_of_failures(self.name, scores.results)
        return scores

    def _accumulate(self, scores: Scores) -> None:
        super()._accumulate(scores)
        failed = [failures.sum() for failures in scores.failures.values()]
        self.num_failed = self.num_failed + torch.stack(failed).to(self.device)

    def _unscorable_reasons(self) -> str:
        return f"the judge failed on {int(self.num_failed.sum())}; {super()._unscorable_reasons()}"

    def _pair_counts(self) -> dict[str, Tensor]:
        """Return the numbers of ``scored`` and ``unscorable`` pairs and of failures by kind (``failed_<kind>``)."""
        names = ("scored", "unscorable", *(f"failed_{kind}" for kind in FAILURE_KINDS))
        values = (self.num_scored.clone(), self.num_unscorable.clone(), *self.num_failed.clone())
        return dict(zip(names, values, strict=True))


class JudgedMetric(AsyncReportMetric[Item, Result]):
    """A report metric with one judge, which is queried once for each pair.

    Subclasses implement :meth:`_items` and :meth:`_judged`.

    Args:
        judge: A judge, or its name or settings as :func:`rrg_rewards.judges.get_judge` accepts them.
        task: Prompt and answer format of the queries.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.
    """

    def __init__(self, judge: str | Mapping[str, Any] | Judge, task: JudgeTask[Item, Result], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.judge = get_judge(judge)
        self.task = task

    def extra_repr(self) -> str:
        """Judge and task."""
        return f"judge={self.judge!r}, task={self.task!r}"

    def judges(self) -> Mapping[str, Judge]:
        """Return the judge, as ``"judge"``."""
        return {"judge": self.judge}

    def queries(self, preds: Sequence[str | None], target: Sequence[str | None], **context: Column) -> list[Item]:
        """Return what the judge would be asked about each scorable pair, without asking it."""
        _, chosen_preds, chosen_target, chosen_context = self._choose(preds, target, context)
        return self._items(chosen_preds, chosen_target, chosen_context)

    async def _query(self, items: Sequence[Item]) -> list[Result | JudgeFailure]:
        return await self.judge.evaluate(self.task, items)

    def _query_now(self, items: Sequence[Item]) -> list[Result | JudgeFailure]:
        return self.judge.evaluate_now(self.task, items)
