"""A judge for CT-FineBench that equals the finding engine, synchronous or asynchronous, with scripted failures."""

from collections.abc import Sequence
from typing import Any

from failing_judge import FailingJudge

from rrg_rewards.judges.base import JudgeTask
from rrg_rewards.judges.tasks.finebench import AnswersTask, ItemsTask
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.questions.grading import compare_answers


class ExamJudge(FailingJudge):
    """Makes questions, answers and grades by rules, so that a metric has the same scores with and without it."""

    name = "exam"

    def answers(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        found = super().answers(task, items)
        self.asked[-1] = (task.name, self.asked[-1])
        return found

    def report(self, task: JudgeTask[Any, Any], item: Any) -> str:
        return str(item if isinstance(task, ItemsTask) else getattr(item, "report", ""))

    def answer(self, task: JudgeTask[Any, Any], item: Any) -> Any:
        if isinstance(task, ItemsTask):
            return build_items(item, task.questions)
        if isinstance(task, AnswersTask):
            return tuple(answer_items(item.report, item.items))
        return tuple(
            compare_answers(answer, asked.answer, asked.answer_type)
            for asked, answer in zip(item.items, item.answers, strict=True)
        )
