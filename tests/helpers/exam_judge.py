"""A judge for CT-FineBench that equals the finding engine, synchronous or asynchronous, with scripted failures."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

from rrg_rewards.judges.base import FailureKind, Judge, JudgeFailure, JudgeTask
from rrg_rewards.judges.tasks.finebench import AnswersTask, ItemsTask
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.questions.grading import compare_answers


class ExamJudge(Judge):
    """Makes questions, answers and grades by rules, so that a metric has the same scores with and without it.

    Args:
        waits: Whether answers take a turn of the event loop.
        fail_on: Kind of failure by a word of the report that is read, ``""`` for every one.
        failing_rank: The only process on which the judge fails; default: all.
    """

    def __init__(
        self, waits: bool = True, fail_on: Mapping[str, FailureKind] | None = None, failing_rank: int | None = None
    ) -> None:
        self.waits = waits
        self.fail_on = dict(fail_on or {})
        self.failing_rank = failing_rank
        self.is_immediate = not waits
        self.asked: list[tuple[str, list[Any]]] = []

    def arguments(self) -> dict[str, Any]:
        return {"waits": self.waits, "fail_on": self.fail_on, "failing_rank": self.failing_rank}

    @property
    def signature(self) -> str:
        return "exam"

    async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        if self.waits:
            await asyncio.sleep(0)
        self.asked.append((task.name, list(items)))
        return [self._answer(task, item) for item in items]

    def _answer(self, task: JudgeTask[Any, Any], item: Any) -> Any:
        report = item if isinstance(task, ItemsTask) else getattr(item, "report", "")
        rank = dist.get_rank() if dist.is_initialized() else 0
        if self.failing_rank is None or rank == self.failing_rank:
            for word, kind in self.fail_on.items():
                if word in report:
                    return JudgeFailure(kind, "told to")
        if isinstance(task, ItemsTask):
            return build_items(item, task.questions)
        if isinstance(task, AnswersTask):
            return tuple(answer_items(item.report, item.items))
        return tuple(
            compare_answers(answer, asked.answer, asked.answer_type)
            for asked, answer in zip(item.items, item.answers, strict=True)
        )
