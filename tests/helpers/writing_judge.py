"""A judge that mines and rewrites reports by rules: its answers are texts, which the tasks check."""

import json
import re
from collections.abc import Sequence
from typing import Any

from rrg_rewards.findings import paraphrase_report
from rrg_rewards.judges.base import AnswerError, Judge, JudgeFailure, JudgeTask
from rrg_rewards.judges.tasks.finebench import ReportFindings
from rrg_rewards.judges.tasks.rewriting import WrongDetail
from rrg_rewards.questions.engine import build_items

OTHER = {"left": "right", "right": "left", "spiculated": "smooth", "small": "large"}
_DETAIL = re.compile(rf"\b(?:{'|'.join(OTHER)})\b|\b\d+(?= mm)", re.IGNORECASE)


def triples(item: ReportFindings) -> str:
    """The attributes that the finding engine reads, in passages of the report that state them."""
    entries = [
        {"quote": passage, "finding": one.finding, "attribute": one.attribute.upper(), "value": one.answer}
        for one in build_items(item.report)
        for passage in item.report.split(". ")
        if one.finding in item.findings and one.attribute != "existence" and one.answer in passage.lower()
    ]
    return json.dumps({"triples": entries})


def wrong_detail(item: WrongDetail) -> str:
    """Exchange the first side, size or word of the answer that the report contains."""
    found = _DETAIL.search(item.item.answer.lower())
    before = "" if found is None else found[0]
    after = str(3 * int(before)) if before.isdigit() else OTHER.get(before, "")
    return json.dumps(
        {"before": f"{before} mm" if before.isdigit() else before, "after": after + " mm" * before.isdigit()}
    )


class WritingJudge(Judge):
    """Answers the tasks of mining and rewriting.

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
            return task.parse(item, self._answer(task.name, item))
        except AnswerError as error:
            return JudgeFailure(error.kind, str(error))

    def _answer(self, name: str, item: Any) -> str:
        report = item if isinstance(item, str) else item.report
        if self.refuses is not None and self.refuses in report:
            return "I cannot."
        if name == "ct_finebench_triples":
            return triples(item)
        if name == "ct_finebench_paraphrase":
            return json.dumps({"report": paraphrase_report(report, seed=0).candidate})
        return wrong_detail(item)
