"""Judges as commands use them: by name or settings, in batches, with progress."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from rrg_rewards.cli.options import UsageError
from rrg_rewards.judges.base import Item, Judge, JudgeFailure, JudgeTask, Result
from rrg_rewards.judges.registry import get_judge

__all__ = ["BatchedJudge", "judge_from_option"]


class BatchedJudge(Judge):
    """A judge that is asked about ``batch_size`` items at a time, so that a long run shows how far it is.

    A judge's deadline for a batch, if it has one, is for each of these.

    Args:
        judge: The judge to ask.
        batch_size: Most items in one call.
        report: Told how many items are done and how many have been added, as :meth:`Terminal.progress` yields it.
    """

    def __init__(self, judge: Judge, batch_size: int, report: Callable[[int, int], None]) -> None:
        self._judge = judge
        self._batch_size = batch_size
        self._report = report
        self.is_immediate = judge.is_immediate

    @property
    def signature(self) -> str:
        """What exactly judges; batches change nothing about it."""
        return self._judge.signature

    def stop(self) -> None:
        """Ask nothing more."""
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
    """Make the judge that ``--judge`` or ``--set METRIC.judge`` gives: a name, or settings as a YAML mapping.

    Args:
        setting: The name or settings.
        **further: Arguments of the judge that other options give; they take precedence.

    Raises:
        UsageError: If there is none of that name, or it does not take the settings.

    Example:
        >>> judge_from_option("{name: rules}").is_immediate
        True
    """
    if isinstance(setting, str) and setting.lstrip().startswith("{"):
        try:
            setting = yaml.safe_load(setting)
        except yaml.YAMLError as error:
            raise UsageError(f"argument --judge: cannot read {setting!r} as a mapping") from error
    try:
        return get_judge(setting, **further)
    except (ValueError, TypeError) as error:
        raise UsageError(f"argument --judge: {error}") from error
