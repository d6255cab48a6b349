"""Rewards of judged metrics that run concurrently with the other rewards of a trainer."""

from collections.abc import Sequence
from typing import Any

from rrg_rewards.metrics.judged import AsyncReportMetric
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import MetricReward, Reward
from rrg_rewards.rewards.completions import Completion

__all__ = ["AsyncMetricReward", "AsyncReward"]


class AsyncReward(Reward):
    """A reward function whose call returns a coroutine. Subclasses implement :meth:`score_async`."""

    # Trainers recognise an asynchronous reward because its __call__ is a coroutine function.
    async def __call__(  # type: ignore[override]
        self, completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        """Reward completions; see :meth:`Reward.__call__`."""
        log_metric, log_extra = columns.pop("log_metric", None), columns.pop("log_extra", None)
        scores = await self.score_async(completions, **columns)
        return self._finish(scores, len(completions), log_metric, log_extra)


class AsyncMetricReward(AsyncReward, MetricReward):
    """An asynchronous reward function that wraps a metric with a judge and runs concurrently with other rewards.

    A call returns a coroutine. Its result and the logged values are those of :class:`MetricReward`. For
    trainers that only support plain functions, use ``MetricReward(metric)``, which blocks until the judge has answered.

    Args:
        metric: A metric with a judge.
        options: Arguments of :class:`MetricReward`.

    Raises:
        TypeError: If the metric has no judge.

    Example:
        >>> import asyncio
        >>> from rrg_rewards.functional import CrimsonEvaluation
        >>> from rrg_rewards.judges import Judge
        >>> from rrg_rewards.metrics import CRIMSON
        >>> from rrg_rewards.rewards import AsyncMetricReward
        >>> class KindJudge(Judge):
        ...     signature = "kind"
        ...     async def evaluate(self, task, items):
        ...         return [CrimsonEvaluation() for pair in items]
        >>> reward = AsyncMetricReward(CRIMSON(judge=KindJudge()), reference_column="report")
        >>> asyncio.run(reward(completions=["Normal."], report=["Normal."]))
        [1.0]
    """

    metric: AsyncReportMetric[Any, Any]

    def __init__(self, metric: AsyncReportMetric[Any, Any], **options: Any) -> None:
        if not isinstance(metric, AsyncReportMetric):
            raise TypeError(f"metric must be a metric with a judge, got {type(metric).__name__}; use MetricReward")
        super().__init__(metric, **options)

    async def score_async(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """Score completions as :meth:`MetricReward.score` does, without blocking the event loop."""
        preds, references, context = self._metric_inputs(completions, columns)
        return await self.metric.score_async(preds, references, **context)
