"""Metrics whose per-report scores are read off what judges say of each pair."""

import warnings
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, get_args

import torch
from torch import Tensor
from typing_extensions import Self

from rrg_rewards.judges.base import FailureKind, Judge, JudgeFailure, JudgeTask, run_coroutine
from rrg_rewards.judges.registry import get_judge
from rrg_rewards.metrics.base import ReportMetric, Scores

__all__ = ["FAILURE_KINDS", "AskingMetric", "JudgeWarning", "JudgedMetric", "JudgedScores"]

FAILURE_KINDS: tuple[str, ...] = get_args(FailureKind)
"""Why a judge may give no result, in the order in which failures are counted."""


class JudgeWarning(UserWarning):
    """A judge failed on some pairs, which have no score."""


Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class JudgedScores(Scores):
    """Per-report scores with what the judge said.

    Args:
        value: The score, float tensor ``(N,)``; NaN where a pair is unscorable, or the judge failed.
        details: Sub-scores by name, each ``(N,)``; NaN where there is no score.
        results: What the judge gave for each of the ``N`` pairs: its result, a
            :class:`~rrg_rewards.judges.JudgeFailure`, or ``None`` where a pair was not fit to be judged.
    """

    results: tuple[Any, ...]

    @property
    def failures(self) -> dict[str, Tensor]:
        """Which pairs the judge failed on, by each kind of failure: bool tensors ``(N,)``."""
        kinds = [result.kind if isinstance(result, JudgeFailure) else None for result in self.results]
        return {name: torch.tensor([kind == name for kind in kinds], dtype=torch.bool) for name in FAILURE_KINDS}

    @property
    def explanations(self) -> dict[str, list[str]]:
        """Why the judge failed on a pair, in words, and empty where it did not."""
        failed = [result if isinstance(result, JudgeFailure) else None for result in self.results]
        return {"failure": ["" if failure is None else f"{failure.kind}: {failure.reason}" for failure in failed]}

    def expand(self, rows: Tensor) -> Self:
        """Put scores of the pairs chosen by ``rows`` back in their places; the others were not judged."""
        scores, results = super().expand(rows), iter(self.results)
        placed = tuple(next(results) if chosen else None for chosen in rows.tolist())
        return replace(self, value=scores.value, details=scores.details, results=placed)


class AskingMetric(ReportMetric, Generic[Item, Result]):
    """A report metric that asks about each pair, and may be given no result.

    Subclasses say what is asked about a pair in :meth:`_items`, ask it in :meth:`_ask`, and turn results into scores in
    :meth:`_judged`. A pair for which there is no result has no score: it is counted in ``num_unscorable`` and, by kind
    of failure, in ``num_failed``, and a warning says how many there were.

    Args:
        kwargs: Further arguments of :class:`torchmetrics.Metric`.
    """

    num_failed: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("num_failed", torch.zeros(len(FAILURE_KINDS), dtype=torch.long), dist_reduce_fx="sum")

    @property
    @abstractmethod
    def is_immediate(self) -> bool:
        """Whether nobody is waited for, so that there is nothing to run beside it."""

    @abstractmethod
    def _items(self, preds: Sequence[str], target: Sequence[str], context: Mapping[str, Sequence[Any]]) -> list[Item]:
        """What to ask about pairs that are all scorable."""

    @abstractmethod
    async def _ask(self, items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Result of each item, in order, or why there is none."""

    def _ask_now(self, items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """:meth:`_ask` for callers that are not asynchronous."""
        return run_coroutine(self._ask(items))

    @abstractmethod
    def _judged(self, results: Sequence[Result | JudgeFailure]) -> JudgedScores:
        """Scores of pairs that were asked about; NaN where there is no result."""

    async def score_async(
        self, preds: Sequence[str | None], target: Sequence[str | None], **context: Sequence[Any]
    ) -> Scores:
        """:meth:`score` without blocking the event loop while a judge is waited for; same arguments and result."""
        rows, chosen_preds, chosen_target, chosen_context = self._choose(preds, target, context)
        results = await self._ask(self._items(chosen_preds, chosen_target, chosen_context))
        return self._warned(results).expand(rows)

    def _score(self, preds: Sequence[str], target: Sequence[str], **context: Sequence[Any]) -> JudgedScores:
        return self._warned(self._ask_now(self._items(preds, target, context)))

    def _warned(self, results: Sequence[Result | JudgeFailure]) -> JudgedScores:
        scores = self._judged(results)
        counts = {kind: int(failed.sum()) for kind, failed in scores.failures.items()}
        if any(counts.values()):
            told = ", ".join(f"{kind} {count}" for kind, count in counts.items() if count)
            # On each process and not only on the first: every one asks about reports of its own.
            warnings.warn(
                f"{self.name}: the judge failed on {sum(counts.values())} of {len(results)} report pairs ({told}), "
                "which have no score",
                JudgeWarning,
                stacklevel=2,
            )
        return scores

    def _accumulate(self, scores: Scores) -> None:
        failed = [failures.sum() for failures in scores.failures.values()]
        self.num_failed += torch.stack(failed).to(self.device)


class JudgedMetric(AskingMetric[Item, Result]):
    """A report metric for which one judge is asked one question about each pair.

    Subclasses say what is asked about a pair in :meth:`_items`, and turn results into scores in :meth:`_judged`.

    Args:
        judge: A judge, or its name or settings as :func:`rrg_rewards.judges.get_judge` takes them.
        task: What the judge is asked.
        kwargs: Further arguments of :class:`torchmetrics.Metric`.
    """

    def __init__(self, judge: str | Mapping[str, Any] | Judge, task: JudgeTask[Item, Result], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.judge = get_judge(judge)
        self.task = task

    @property
    def is_immediate(self) -> bool:
        """Whether the judge is not waited for."""
        return self.judge.is_immediate

    async def _ask(self, items: Sequence[Item]) -> list[Result | JudgeFailure]:
        return await self.judge.evaluate(self.task, items)

    def _ask_now(self, items: Sequence[Item]) -> list[Result | JudgeFailure]:
        return self.judge.evaluate_now(self.task, items)
