"""Examine a report with questions that are made from another report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import compress
from pathlib import Path
from typing import Any

from rrg_rewards.findings.reading.lexicon import Lexicon, load_lexicon
from rrg_rewards.judges.base import Judge, JudgeFailure, JudgeTask, remember_results
from rrg_rewards.judges.registry import get_judge
from rrg_rewards.judges.rules import RuleJudge
from rrg_rewards.judges.tasks.finebench import EXISTENCE, AnswerPairs, AnswersTask, GradesTask, ItemsTask, Questions
from rrg_rewards.questions.descriptions import check_readable
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.questions.grading import Grading, OverSpecified, check_grading, compare_answers
from rrg_rewards.questions.schema import QAItem, QuestionSchema, get_question_schema
from rrg_rewards.questions.vocabulary import answer_vocabulary
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.processes import run_coroutine
from rrg_rewards.utilities.yaml_files import absolute_yaml_path

ENGINE = "engine"
"""Setting that selects the finding engine instead of a judge."""

JudgeSetting = str | Mapping[str, Any] | Judge
"""``"engine"``, or a judge as :func:`rrg_rewards.judges.get_judge` accepts it."""

_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """A question, a report's answer, and the grade of the answer.

    Args:
        item: The question with its true answer.
        answer: The report's answer; ``None`` if it does not contain one.
        grade: 1 (right), 0.5 (partly right) or 0 (wrong, or no answer); any value in [0, 1] for lists that are graded
            by overlap.
    """

    item: QAItem
    answer: str | None
    grade: float


class Examiner(Backend):
    """Examines a candidate report with questions made from its reference, as in CT-FineBench.

    An examination has three steps: make questions from a report, answer them from another report, and grade the
    answers. Each step is done by a judge, or by the finding engine with the rules of
    :func:`rrg_rewards.questions.grading.compare_answers`. The questions of recent reports are cached, because all
    candidates of a reference, in all epochs, use the same questions.

    Args:
        schema: Name or YAML file of the question schema, or the schema.
        builder: Makes questions: ``"engine"`` or a judge.
        answerer: Answers questions from a report: ``"engine"`` or a judge.
        comparer: Grades answers: ``"engine"`` or a judge.
        grading: How ``"engine"`` grades lists: ``"levels"`` or ``"overlap"``
            (:func:`rrg_rewards.questions.compare_answers`).
        over_specified: How correct answers that say more than the true one are graded, by ``"engine"`` and by judges:
            ``"right"`` or ``"partial"``.
        remembered: Number of reports whose questions are cached.

    Raises:
        ValueError: For an unknown schema, grading or judge, for a schema that the engine cannot read although it builds
            or answers questions, or for the judge ``rules``, which supports CRIMSON only.
        TypeError: For an object that is not a judge, or an argument that the judge does not take.

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
        grading: Grading = "levels",
        over_specified: OverSpecified = "right",
        remembered: int = _REMEMBERED,
    ) -> None:
        self._given = absolute_yaml_path(schema)
        self.schema = get_question_schema(self._given)
        self.builder = _judge("builder", builder)
        self.answerer = _judge("answerer", answerer)
        self.comparer = _judge("comparer", comparer)
        if self.builder is None or self.answerer is None:
            check_readable(self.schema)
        self.remembered = remembered
        check_grading(grading, over_specified)
        self.grading: Grading = grading
        self.over_specified: OverSpecified = over_specified
        self._built: dict[str, tuple[QAItem, ...]] = {}
        self._items_task, self._answers_task = ItemsTask(self.schema), AnswersTask()
        self._grades_task = GradesTask(over_specified)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this examiner."""
        return {
            "schema": self._given,
            "builder": self.builder or ENGINE,
            "answerer": self.answerer or ENGINE,
            "comparer": self.comparer or ENGINE,
            "grading": self.grading,
            "over_specified": self.over_specified,
            "remembered": self.remembered,
        }

    @cached_property
    def lexicon(self) -> Lexicon:
        """Lexicon of the question schema. A file of the user is read once, also if it is edited later."""
        return load_lexicon(self.schema.lexicon)

    @property
    def is_immediate(self) -> bool:
        """Whether all steps are immediate, as :attr:`rrg_rewards.judges.Judge.is_immediate` defines it."""
        return all(judge is None or judge.is_immediate for judge in (self.builder, self.answerer, self.comparer))

    @property
    def signature(self) -> dict[str, str]:
        """Question schema with digest, and for each step the digest of the engine, or the judge and its prompt."""
        words = answer_vocabulary().digest
        engine = f"{ENGINE}@{self.lexicon.digest}+{words}"
        return {
            "schema": f"{self.schema.name}@{self.schema.digest}",
            "builder": _signature(self.builder, self._items_task, engine),
            "answerer": _signature(self.answerer, self._answers_task, engine),
            "comparer": _signature(self.comparer, self._grades_task, f"{ENGINE}@{words}"),
            **({} if self.grading == "levels" else {"grading": self.grading}),
            "over_specified": self.over_specified,
        }

    def build_now(self, reports: Sequence[str]) -> list[tuple[QAItem, ...] | JudgeFailure]:
        """Call :meth:`build` from synchronous code."""
        return run_coroutine(self.build(reports))

    async def build(
        self, reports: Sequence[str], remember: bool = True, include_uncertain: bool = False
    ) -> list[tuple[QAItem, ...] | JudgeFailure]:
        """Make questions from reports. Equal reports are read once.

        Args:
            reports: ``N`` reports.
            remember: Whether to cache the questions.
            include_uncertain: Whether the engine also makes questions on uncertain findings, which are not cached. A
                judge makes the same questions in both cases.

        Returns:
            For each report its questions, or the judge's failure. A report without a finding of the schema has no
            questions.
        """
        known = {} if include_uncertain and self.builder is None else self._built
        unknown = [report for report in dict.fromkeys(reports) if report not in known]
        found: dict[str, Any] = {report: known[report] for report in reports if report in known}
        if self.builder is None:
            build = partial(build_items, include_uncertain=True) if include_uncertain else build_items
            made: list[Any] = [build(report, self.schema) for report in unknown]
        else:
            made = await self.builder.evaluate(self._items_task, unknown) if unknown else []
        found.update(zip(unknown, made, strict=True))
        if remember and not include_uncertain:
            remember_results(self._built, found, self.remembered)
        return [found[report] for report in reports]

    async def examine(
        self, reports: Sequence[str], items: Sequence[tuple[QAItem, ...]]
    ) -> list[tuple[GradedAnswer, ...] | JudgeFailure]:
        """Answer questions from reports and grade the answers.

        Args:
            reports: ``N`` reports.
            items: Questions for each report.

        Returns:
            For each report its graded answers in the order of the questions, or the judge's failure.
        """
        answers = await self._answers(reports, items)
        answered = [not isinstance(given, JudgeFailure) for given in answers]
        pairs = list(zip(compress(items, answered), compress(answers, answered), strict=True))
        grades = iter(await self._grades(pairs))
        return [
            given if isinstance(given, JudgeFailure) else _graded(report_items, given, next(grades))
            for report_items, given in zip(items, answers, strict=True)
        ]

    async def _answers(self, reports: Sequence[str], items: Sequence[tuple[QAItem, ...]]) -> list[Any]:
        if self.answerer is None:
            return [
                tuple(answer_items(report, report_items, self.schema))
                for report, report_items in zip(reports, items, strict=True)
            ]
        questions = [Questions(report, report_items) for report, report_items in zip(reports, items, strict=True)]
        return await _evaluated(self.answerer, self._answers_task, questions)

    async def _grades(self, pairs: Sequence[tuple[tuple[QAItem, ...], Any]]) -> list[Any]:
        """Return the grades or a failure for each pair of questions and answers."""
        judged = [[self._is_judged(item, answer) for item, answer in zip(*pair, strict=True)] for pair in pairs]
        requests = [
            AnswerPairs(tuple(compress(items, chosen)), tuple(compress(answers, chosen)))
            for (items, answers), chosen in zip(pairs, judged, strict=True)
        ]
        results = await _evaluated(self.comparer, self._grades_task, requests)
        return [
            found if isinstance(found, JudgeFailure) else self._with_rules(*pair, chosen, found)
            for pair, chosen, found in zip(pairs, judged, results, strict=True)
        ]

    def _is_judged(self, item: QAItem, answer: str | None) -> bool:
        """Whether the judge grades an answer. Rules grade missing answers and answers on existence."""
        return self.comparer is not None and answer is not None and item.answer_type != EXISTENCE

    def _with_rules(
        self,
        items: Sequence[QAItem],
        answers: Sequence[str | None],
        chosen: Sequence[bool],
        judged: Sequence[float],
    ) -> tuple[float, ...]:
        """Combine the judge's grades of the chosen answers with the rules' grades of the others."""
        grades = iter(judged)
        return tuple(
            next(grades)
            if is_chosen
            else compare_answers(answer, item.answer, item.answer_type, self.grading, self.over_specified)
            for item, answer, is_chosen in zip(items, answers, chosen, strict=True)
        )


async def _evaluated(judge: Judge | None, task: JudgeTask[Any, Any], requests: Sequence[Any]) -> list[Any]:
    """Evaluate requests. Requests without questions have an empty result and are not sent."""
    pending = [request for request in requests if request.items]
    results: Iterator[Any] = iter(await judge.evaluate(task, pending) if judge is not None and pending else ())
    return [next(results) if request.items else () for request in requests]


def _judge(name: str, setting: JudgeSetting) -> Judge | None:
    if setting == ENGINE:
        return None
    judge = get_judge(setting)
    if isinstance(judge, RuleJudge):
        raise ValueError(f"{name}: the judge 'rules' evaluates CRIMSON only; for rules set {name}='engine'")
    return judge


def _signature(judge: Judge | None, task: JudgeTask[Any, Any], engine: str) -> str:
    return engine if judge is None else f"{{{judge.signature}|prompt:{task.prompt_hash}}}"


def _graded(items: Sequence[QAItem], answers: Sequence[str | None], grades: Any) -> Any:
    if isinstance(grades, JudgeFailure):
        return grades
    return tuple(GradedAnswer(*row) for row in zip(items, answers, grades, strict=True))
