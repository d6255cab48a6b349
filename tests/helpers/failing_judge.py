"""What judges with scripted answers have in common: failures that they are told, and answers that tasks check."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from rrg_rewards.judges.base import AnswerError, FailureKind, Judge, JudgeFailure, JudgeTask


class FailingJudge(Judge):
    """Answers each item by ``answer``.

    Args:
        waits: Whether answers take a turn of the event loop.
        fail_on: Kind of failure by a word of the report that is read, ``""`` for every report.
        failing_rank: The only process on which the judge fails; default: all.
    """

    name = ""

    def __init__(
        self, waits: bool = True, fail_on: Mapping[str, FailureKind] | None = None, failing_rank: int | None = None
    ) -> None:
        self.waits = waits
        self.fail_on = dict(fail_on or {})
        self.failing_rank = failing_rank
        self.is_immediate = not waits
        self.asked: list[Any] = []

    def arguments(self) -> dict[str, Any]:
        return {"waits": self.waits, "fail_on": self.fail_on, "failing_rank": self.failing_rank}

    @property
    def signature(self) -> str:
        return self.name

    async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        if self.waits:
            await asyncio.sleep(0)
        return self.answers(task, items)

    def answers(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        self.asked.append(list(items))
        return [self.told(self.report(task, item)) or self.answer(task, item) for item in items]

    def report(self, task: JudgeTask[Any, Any], item: Any) -> str:
        """Return the report that may have a word of ``fail_on``."""
        return str(item)

    def answer(self, task: Any, item: Any) -> Any:
        """Return the result of an item."""
        raise NotImplementedError

    def told(self, report: str) -> JudgeFailure | None:
        """Return the failure that was scripted for a report."""
        rank = dist.get_rank() if dist.is_initialized() else 0
        kinds = [kind for word, kind in self.fail_on.items() if word in report]
        return JudgeFailure(kinds[0], "told to") if kinds and self.failing_rank in (None, rank) else None


def parsed(task: JudgeTask[Any, Any], item: Any, text: str) -> Any:
    """Return the result of a text, or the failure of a text that is no answer."""
    try:
        return task.parse(item, text)
    except AnswerError as error:
        return JudgeFailure(error.kind, str(error))
