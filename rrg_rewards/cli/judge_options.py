"""Make the judge of ``--judge``, and call it in batches with a progress bar."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rrg_rewards.cli.options import UsageError
from rrg_rewards.judges.base import Item, Judge, JudgeFailure, JudgeTask, Result
from rrg_rewards.judges.registry import get_judge

__all__ = ["BatchedJudge", "judge_from_option"]


class BatchedJudge(Judge):
    """A judge that evaluates ``batch_size`` items at a time and reports progress.

    The ``batch_deadline`` of the judge applies to each batch.

    Args:
        judge: The judge.
        batch_size: Maximum number of items in a batch.
        report: Function that :meth:`Terminal.progress` yields.
    """

    def __init__(self, judge: Judge, batch_size: int, report: Callable[[int, int], None]) -> None:
        self._judge = judge
        self._batch_size = batch_size
        self._report = report
        self.is_immediate = judge.is_immediate

    @property
    def signature(self) -> str:
        """Signature of the judge; batches do not change it."""
        return self._judge.signature

    def stop(self) -> None:
        """Stop the judge."""
        self._judge.stop()

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Evaluate items batch by batch."""
        results: list[Result | JudgeFailure] = []
        self._report(0, len(items))
        for start in range(0, len(items), self._batch_size):
            batch = items[start : start + self._batch_size]
            judged = await self._judge.evaluate(task, batch)
            results += judged
            self._report(len(batch), 0)
        return results


def judge_from_option(setting: str | Mapping[str, Any] | Judge, **further: Any) -> Judge:
    """Make a judge from the value of ``--judge`` or ``--set METRIC.judge``.

    Args:
        setting: Name, or settings as a YAML mapping.
        **further: Arguments of the judge from other options; they override the settings.

    Raises:
        UsageError: For an unknown name or invalid settings.

    Example:
        >>> judge_from_option("{name: rules}").is_immediate
        True
    """
    try:
        return get_judge(setting, **further)
    except (ValueError, TypeError) as error:
        raise UsageError(f"argument --judge: {error}") from error
