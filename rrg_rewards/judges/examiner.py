"""Examines reports by questions: makes them of one report, has another answer them, and grades the answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from rrg_rewards.findings import get_engine
from rrg_rewards.findings.questions import answer_items, build_items
from rrg_rewards.functional.answer_words import answer_vocabulary
from rrg_rewards.functional.ct_finebench import compare_answers
from rrg_rewards.judges.base import Judge, JudgeFailure, JudgeTask, run_coroutine
from rrg_rewards.judges.finebench import EXISTENCE, AnswerPairs, AnswersTask, GradesTask, ItemsTask, Questions
from rrg_rewards.judges.registry import get_judge
from rrg_rewards.judges.rules import RuleJudge
from rrg_rewards.schemas import QAItem, QuestionSchema, get_question_schema
from rrg_rewards.utilities.backend import Backend

__all__ = ["ENGINE", "Examiner", "GradedAnswer", "JudgeSetting"]

ENGINE = "engine"
"""What stands in a judge's place where the finding engine does its work."""

JudgeSetting = str | Mapping[str, Any] | Judge
"""``"engine"``, or a judge, its name or its settings as :func:`rrg_rewards.judges.get_judge` takes them."""

_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """A question, what a report answers, and how right that is.

    Args:
        item: The question with its true answer.
        answer: The report's answer; ``None`` where it gives none.
        grade: 1 (right), 0.5 (in part) or 0 (wrong, or no answer).
    """

    item: QAItem
    answer: str | None
    grade: float


class Examiner(Backend):
    """Make questions of reports, have other reports answer them, and grade the answers.

    Each of the three is done by the finding engine and the rules of
    :func:`rrg_rewards.functional.ct_finebench.compare_answers`, or by a judge. Questions made of a report are
    remembered, so that the candidates of a group, and the epochs of a training, share those of their reference.

    Args:
        schema: Name or YAML file of the question schema, or the schema.
        builder: Who makes questions: ``"engine"`` or a judge.
        answerer: Who answers them from a report: ``"engine"`` or a judge.
        comparer: Who grades answers: ``"engine"`` or a judge.
        remembered: Reports whose questions are remembered, the last ones that were asked for.

    Raises:
        ValueError: For an unknown schema or judge, or the judge ``rules``, which knows CRIMSON only.
        TypeError: For something that is no judge, or an argument that the judge does not take.

    Example:
        >>> examiner = Examiner()
        >>> (items,) = examiner.build_now(["Nodule of 8 mm in the left upper lobe."])
        >>> "numeric" in {item.answer_type for item in items}
        True
    """

    def __init__(
        self,
        schema: str | Path | QuestionSchema = "ct_rate",
        *,
        builder: JudgeSetting = ENGINE,
        answerer: JudgeSetting = ENGINE,
        comparer: JudgeSetting = ENGINE,
        remembered: int = _REMEMBERED,
    ) -> None:
        self._given = schema
        self.schema = schema if isinstance(schema, QuestionSchema) else get_question_schema(schema)
        self.builder = _judge("builder", builder)
        self.answerer = _judge("answerer", answerer)
        self.comparer = _judge("comparer", comparer)
        self.remembered = remembered
        self._built: dict[str, tuple[QAItem, ...]] = {}
        self._items_task, self._answers_task, self._grades_task = ItemsTask(self.schema), AnswersTask(), GradesTask()

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this examiner."""
        return {
            "schema": self._given,
            "builder": self.builder or ENGINE,
            "answerer": self.answerer or ENGINE,
            "comparer": self.comparer or ENGINE,
            "remembered": self.remembered,
        }

    @property
    def is_immediate(self) -> bool:
        """Whether nobody is waited for."""
        return all(judge is None or judge.is_immediate for judge in (self.builder, self.answerer, self.comparer))

    @property
    def signature(self) -> dict[str, str]:
        """What exactly makes questions, answers and grades, by name: an engine's lexicon, a judge and its prompt."""
        words = answer_vocabulary().digest
        engine = f"{ENGINE}@{get_engine(self.schema.lexicon).lexicon.digest}+{words}"
        return {
            "schema": f"{self.schema.name}@{self.schema.digest}",
            "builder": engine if self.builder is None else _told(self.builder, self._items_task),
            "answerer": engine if self.answerer is None else _told(self.answerer, self._answers_task),
            "comparer": f"{ENGINE}@{words}" if self.comparer is None else _told(self.comparer, self._grades_task),
        }

    def build_now(self, reports: Sequence[str]) -> list[tuple[QAItem, ...] | JudgeFailure]:
        """:meth:`build` for callers that are not asynchronous."""
        return run_coroutine(self.build(reports))

    async def build(self, reports: Sequence[str], remember: bool = True) -> list[tuple[QAItem, ...] | JudgeFailure]:
        """Make the questions of reports, each distinct one once.

        Args:
            reports: ``N`` reports.
            remember: Whether questions are remembered, for reports that will come again.

        Returns:
            For each report its questions, none where it states no finding of the schema, or why there are none.
        """
        unknown = [report for report in dict.fromkeys(reports) if report not in self._built]
        found: dict[str, Any] = {report: self._built[report] for report in reports if report in self._built}
        if self.builder is None:
            made: list[Any] = [build_items(report, self.schema) for report in unknown]
        else:
            made = await self.builder.evaluate(self._items_task, unknown) if unknown else []
        found.update(zip(unknown, made, strict=True))
        if remember:
            self._remember(found)
        return [found[report] for report in reports]

    def _remember(self, found: Mapping[str, Any]) -> None:
        for report, items in found.items():
            if not isinstance(items, JudgeFailure):
                # To the end of the order: the first are forgotten first.
                self._built.pop(report, None)
                self._built[report] = items
        for report in list(self._built)[: max(0, len(self._built) - self.remembered)]:
            self._built.pop(report, None)

    async def examine(
        self, reports: Sequence[str], items: Sequence[tuple[QAItem, ...]]
    ) -> list[tuple[GradedAnswer, ...] | JudgeFailure]:
        """Answer questions from reports, and grade the answers.

        Args:
            reports: ``N`` reports.
            items: Questions to each.

        Returns:
            For each report its answers with their grades, in the order of the questions, or why there are none.
        """
        answers = await self._answers(reports, items)
        answered = [not isinstance(given, JudgeFailure) for given in answers]
        pairs = list(zip(compress(items, answered), compress(answers, answered), strict=True))
        grades = iter(await self._grades(pairs))
        return [
            given if isinstance(given, JudgeFailure) else _graded(asked, given, next(grades))
            for asked, given in zip(items, answers, strict=True)
        ]

    async def _answers(self, reports: Sequence[str], items: Sequence[tuple[QAItem, ...]]) -> list[Any]:
        if self.answerer is None:
            return [
                tuple(answer_items(report, asked, self.schema)) for report, asked in zip(reports, items, strict=True)
            ]
        # Nobody is asked about nothing.
        asked = [Questions(report, own) for report, own in zip(reports, items, strict=True) if own]
        given: Iterator[Any] = iter(await self.answerer.evaluate(self._answers_task, asked)) if asked else iter(())
        return [next(given) if own else () for own in items]

    async def _grades(self, pairs: Sequence[tuple[tuple[QAItem, ...], Any]]) -> list[Any]:
        """Grades of all answers to some questions, or a failure, for each of ``pairs``."""
        if self.comparer is None:
            return [
                tuple(
                    compare_answers(answer, item.answer, item.answer_type) for item, answer in zip(*pair, strict=True)
                )
                for pair in pairs
            ]
        # What is not there, and yes or no, needs no judgement.
        weighed = [[_is_weighed(item, answer) for item, answer in zip(*pair, strict=True)] for pair in pairs]
        asked = [
            AnswerPairs(tuple(compress(items, chosen)), tuple(compress(answers, chosen)))
            for (items, answers), chosen in zip(pairs, weighed, strict=True)
        ]
        with_any = [one for one in asked if one.items]
        given: Iterator[Any] = iter(await self.comparer.evaluate(self._grades_task, with_any)) if with_any else iter(())
        judged = [next(given) if one.items else () for one in asked]
        return [
            found if isinstance(found, JudgeFailure) else _with_rules(*pair, chosen, found)
            for pair, chosen, found in zip(pairs, weighed, judged, strict=True)
        ]


def _judge(name: str, setting: JudgeSetting) -> Judge | None:
    if setting == ENGINE:
        return None
    judge = get_judge(setting)
    if isinstance(judge, RuleJudge):
        raise ValueError(f"{name}: the judge 'rules' evaluates CRIMSON only; for rules set {name}='engine'")
    return judge


def _told(judge: Judge, task: JudgeTask[Any, Any]) -> str:
    return f"{{{judge.signature}|prompt:{task.prompt_hash}}}"


def _is_weighed(item: QAItem, answer: str | None) -> bool:
    return answer is not None and item.answer_type != EXISTENCE


def _with_rules(
    items: Sequence[QAItem], answers: Sequence[str | None], chosen: Sequence[bool], judged: Sequence[float]
) -> tuple[float, ...]:
    """Grades of a judge for what was chosen, and of the rules for the rest."""
    grades = iter(judged)
    return tuple(
        next(grades) if is_chosen else compare_answers(answer, item.answer, item.answer_type)
        for item, answer, is_chosen in zip(items, answers, chosen, strict=True)
    )


def _graded(items: Sequence[QAItem], answers: Sequence[str | None], grades: Any) -> Any:
    if isinstance(grades, JudgeFailure):
        return grades
    return tuple(GradedAnswer(*one) for one in zip(items, answers, grades, strict=True))
