"""A judge that mines reports by rules: its answers are texts, which the task checks."""

import json
from collections.abc import Sequence
from typing import Any

from rrg_rewards.judges.base import AnswerError, Judge, JudgeFailure, JudgeTask
from rrg_rewards.judges.tasks.finebench import ReportFindings
from rrg_rewards.questions.engine import build_items


def triples(item: ReportFindings) -> str:
    """The attributes that the finding engine reads, in passages of the report that state them."""
    entries = [
        {"quote": passage, "finding": one.finding, "attribute": one.attribute.upper(), "value": one.answer}
        for one in build_items(item.report)
        for passage in item.report.split(". ")
        if one.finding in item.findings and one.attribute != "existence" and one.answer in passage.lower()
    ]
    return json.dumps({"triples": entries})


class WritingJudge(Judge):
    """Answers the task of mining.

    Args:
        refuses: Word of the reports that are answered with nonsense.
    """

    def __init__(self, refuses: str | None = None) -> None:
        self.refuses = refuses

    def arguments(self) -> dict[str, Any]:
        return {"refuses": self.refuses}

    @property
    def signature(self) -> str:
        return "writing"

    async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        return [self._result(task, item) for item in items]

    def _result(self, task: JudgeTask[Any, Any], item: Any) -> Any:
        try:
            return task.parse(item, self._answer(item))
        except AnswerError as error:
            return JudgeFailure(error.kind, str(error))

    def _answer(self, item: ReportFindings) -> str:
        if self.refuses is not None and self.refuses in item.report:
            return "I cannot."
        return triples(item)
