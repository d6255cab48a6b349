"""Rewards that wait for a judge without keeping the trainer's other rewards waiting."""

from collections.abc import Callable, Sequence
from typing import Any

from rrg_rewards.metrics.base import Scores
from rrg_rewards.metrics.judged import AskingMetric
from rrg_rewards.rewards.base import Completion, MetricReward

__all__ = ["AsyncMetricReward"]


class AsyncMetricReward(MetricReward):
    """A judged metric as an asynchronous reward function: a trainer awaits it together with others of its kind.

    Calling it gives a coroutine of what :class:`MetricReward` returns, and logs the same. TRL awaits such objects from
    version 1.14 on; for an older one, or a trainer that takes plain functions only, ``MetricReward(metric)`` waits for
    the judge itself.

    Args:
        metric: A metric with a judge.
        options: As :class:`MetricReward` takes them.

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

    metric: AskingMetric[Any, Any]

    def __init__(self, metric: AskingMetric[Any, Any], **options: Any) -> None:
        if not isinstance(metric, AskingMetric):
            raise TypeError(f"metric must be one with a judge, got {type(metric).__name__}; use MetricReward")
        super().__init__(metric, **options)

    async def score_async(self, completions: Sequence[Completion], **columns: Any) -> Scores:
        """:meth:`MetricReward.score` without blocking the event loop while the judge is waited for."""
        preds, references, context = self._metric_inputs(completions, columns)
        return await self.metric.score_async(preds, references, **context)

    # Trainers tell asynchronous rewards by their __call__ being a coroutine function.
    async def __call__(  # type: ignore[override]
        self,
        completions: Sequence[Completion],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Reward completions: as :meth:`MetricReward.__call__`, to be awaited."""
        return self._finish(await self.score_async(completions, **columns), log_metric, log_extra)
