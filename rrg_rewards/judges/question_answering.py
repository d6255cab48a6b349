"""Examine a report with questions that are made from another report."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

from rrg_rewards.findings.reading.lexicon import Lexicon, load_lexicon
from rrg_rewards.judges.base import Judge, JudgeFailure, JudgeTask, JudgeWarning, remember_results
from rrg_rewards.judges.registry import get_judge
from rrg_rewards.judges.tasks.finebench import (
    EXISTENCE,
    AnswerPairs,
    AnswersTask,
    GradesTask,
    ItemsTask,
    Questions,
    Refused,
)
from rrg_rewards.judges.tasks.finebench_prompt_files import AnswerPromptTask, GradePromptTask
from rrg_rewards.judges.tasks.prompt_files import read_prompt_task
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.questions.grading import Grading, OverSpecified, check_grading, compare_answers
from rrg_rewards.questions.schema import QAItem, QuestionSchema, get_question_schema
from rrg_rewards.questions.stated import check_readable
from rrg_rewards.questions.vocabulary import answer_vocabulary
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.yaml_files import absolute_yaml_path

ENGINE = "engine"
"""Setting that selects the finding engine instead of a judge."""

JudgeSetting = str | Mapping[str, Any] | Judge
"""``"engine"``, or a judge as :func:`rrg_rewards.judges.get_judge` accepts it."""

# Number of reports whose questions are cached.
_REMEMBERED = 1024
# Failures of a judge that answered.
_INVALID = ("malformed", "inconsistent")
_UNGRADED = JudgeFailure("inconsistent", "a grade is not right, partial or wrong, also when asked for alone")


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """A question, a report's answer, and the grade of the answer.

    Args:
        item: The question with its true answer.
        answer: The report's answer; ``None`` if it does not contain one.
        grade: 1 (right), 0.5 (partly right) or 0 (wrong, or no answer); any value in [0, 1] for lists that are graded
            by overlap.
        not_verbatim: Whether the answer is ``None`` because the judge's answers to the question were not in the words
            of the report.
    """

    item: QAItem
    answer: str | None
    grade: float
    not_verbatim: bool = False


class _Given(NamedTuple):
    """The answers of one report, and which of them the judge gave in other words than the report's."""

    answers: tuple[str | None, ...]
    not_verbatim: tuple[bool, ...]


class Examiner(Backend):
    """Examines a candidate report with questions made from its reference, as in CT-FineBench.

    An examination has three steps: make questions from a report, answer them from another report, and grade the
    answers. Each step is done by a judge, or by the finding engine with the rules of
    :func:`rrg_rewards.questions.grading.compare_answers`. The questions of recent reports are cached, because all
    candidates of a reference, in all epochs, use the same questions.

    A judge answers all questions about a report in one request. A question whose answer is not in the words of the
    report is asked again in a request of its own; if that answer is not either, or is invalid, the question has no
    answer (``None``) and is marked as ``not_verbatim``. A pair of answers whose grade is none of the three is likewise
    graded again; if that grade is invalid too, the report fails.

    A judge that makes questions may state an attribute in other words than the report's. It then has no question, and a
    warning counts such attributes.

    With prompts of the user, ``answer_prompt`` and ``grade_prompt``, each question and each pair is a request of its
    own, as in the paper, and answers need not be in the words of the report.

    Args:
        schema: Name or YAML file of the question schema, or the schema.
        builder: Makes questions: ``"engine"`` or a judge.
        answerer: Answers questions from a report: ``"engine"`` or a judge.
        comparer: Grades answers: ``"engine"`` or a judge.
        grading: How ``"engine"`` grades lists: ``"levels"`` or ``"overlap"``
            (:func:`rrg_rewards.questions.compare_answers`).
        over_specified: How correct answers that say more than the true one are graded, by ``"engine"`` and by judges:
            ``"right"`` or ``"partial"``.
        answer_prompt: File with the prompt by which the judge answers
            (:class:`rrg_rewards.judges.tasks.finebench_prompt_files.AnswerPromptTask`); default: a prompt of this
            package.
        grade_prompt: File with the prompt by which the judge grades, also answers on the existence of a finding
            (:class:`rrg_rewards.judges.tasks.finebench_prompt_files.GradePromptTask`). ``over_specified`` then has no
            effect on the grades.

    Raises:
        ValueError: For an unknown schema, grading or judge, for a schema that the engine cannot read although it
            answers questions (if it only makes them, when it makes the first one), or for the judge ``rules``, which
            supports CRIMSON only; for a prompt file without a judge that uses it, or with wrong placeholders.
        OSError: If a prompt file cannot be read.
        TypeError: For an object that is not a judge, or an argument that the judge does not take.

    Example:
        >>> import asyncio
        >>> (items,) = asyncio.run(Examiner().build(["Nodule of 8 mm in the left upper lobe."]))
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
        answer_prompt: str | Path | None = None,
        grade_prompt: str | Path | None = None,
    ) -> None:
        self._given = absolute_yaml_path(schema)
        self.schema = get_question_schema(self._given)
        self.builder = _judge("builder", builder)
        self.answerer = _judge("answerer", answerer)
        self.comparer = _judge("comparer", comparer)
        # The engine checks as a builder when it makes the first question; with given questions it makes none.
        if self.answerer is None:
            check_readable(self.schema)
        check_grading(grading, over_specified)
        self.grading: Grading = grading
        self.over_specified: OverSpecified = over_specified
        self._built: dict[str, tuple[QAItem, ...]] = {}
        # Absolute, because worker processes may have another working folder.
        self.answer_prompt = None if answer_prompt is None else str(Path(answer_prompt).resolve())
        self.grade_prompt = None if grade_prompt is None else str(Path(grade_prompt).resolve())
        self._items_task = ItemsTask(self.schema)
        self._answers_task = _from_file("answer", self.answer_prompt, self.answerer, AnswerPromptTask) or AnswersTask()
        self._grades_task = _from_file("grade", self.grade_prompt, self.comparer, GradePromptTask) or GradesTask(
            over_specified
        )

    def judges(self) -> dict[str, Judge]:
        """Return the judges by what they make: ``questions``, ``answers``, ``grades``."""
        steps = {"questions": self.builder, "answers": self.answerer, "grades": self.comparer}
        return {made: judge for made, judge in steps.items() if judge is not None}

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each: that of its judges."""
        return next((judge.worker_refusal for judge in self.judges().values() if judge.worker_refusal), None)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this examiner."""
        return {
            "schema": self._given,
            "builder": self.builder or ENGINE,
            "answerer": self.answerer or ENGINE,
            "comparer": self.comparer or ENGINE,
            "grading": self.grading,
            "over_specified": self.over_specified,
            "answer_prompt": self.answer_prompt,
            "grade_prompt": self.grade_prompt,
        }

    @cached_property
    def lexicon(self) -> Lexicon:
        """Lexicon of the question schema. A file of the user is read once, also if it is edited later."""
        return load_lexicon(self.schema.lexicon)

    @property
    def is_immediate(self) -> bool:
        """Whether all steps are immediate, as :attr:`rrg_rewards.judges.Judge.is_immediate` defines it."""
        return all(judge.is_immediate for judge in self.judges().values())

    @property
    def has_independent_rows(self) -> bool:
        """Whether all steps have independent rows, as :attr:`rrg_rewards.judges.Judge.has_independent_rows` says."""
        return all(judge.has_independent_rows for judge in self.judges().values())

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
            made: list[Any] = [self._items_by_rules(report, include_uncertain) for report in unknown]
        else:
            made = await self.builder.evaluate(self._items_task, unknown) if unknown else []
            made = _without_refused(made)
        found.update(zip(unknown, made, strict=True))
        if remember and not include_uncertain:
            remember_results(self._built, found, _REMEMBERED)
        return [found[report] for report in reports]

    def _items_by_rules(self, report: str, include_uncertain: bool) -> tuple[QAItem, ...]:
        # With the published levels, bounds that say little are questions, too.
        informative_only = self.grading == "overlap"
        return build_items(report, self.schema, include_uncertain=include_uncertain, informative_only=informative_only)

    async def examine(
        self, reports: Sequence[str], items: Sequence[tuple[QAItem, ...]], share_reports: bool = False
    ) -> list[tuple[GradedAnswer, ...] | JudgeFailure]:
        """Answer questions from reports and grade the answers.

        Args:
            reports: ``N`` reports.
            items: Questions for each report.
            share_reports: Whether several questions are about the same report, and not the same questions about several
                reports. A judge's prompt then begins with the report, which a server's prefix cache keeps.

        Returns:
            For each report its graded answers in the order of the questions, or the judge's failure.
        """
        given = await self._answers(reports, items, share_reports)
        pairs = [(asked, one.answers) for asked, one in zip(items, given, strict=True) if isinstance(one, _Given)]
        grades = iter(await self._grades(pairs))
        return [
            one if isinstance(one, JudgeFailure) else _graded(asked, one, next(grades))
            for asked, one in zip(items, given, strict=True)
        ]

    async def _answers(
        self, reports: Sequence[str], items: Sequence[tuple[QAItem, ...]], share_reports: bool
    ) -> list[_Given | JudgeFailure]:
        if self.answerer is None:
            found = [answer_items(*asked, self.schema) for asked in zip(reports, items, strict=True)]
            return [_Given(tuple(answers), (False,) * len(answers)) for answers in found]
        questions = [Questions(report, asked, share_reports) for report, asked in zip(reports, items, strict=True)]
        parts = [[replace(one, items=(item,)) for item in one.items] for one in questions]
        if self.answer_prompt is not None:
            answers = await _each_alone(self.answerer, self._answers_task, parts)
        else:
            answers = await _evaluated(self.answerer, self._answers_task, questions)
            answers = await _again(self.answerer, self._answers_task, parts, answers, Refused.NOT_VERBATIM)
        return [one if isinstance(one, JudgeFailure) else _verbatim(one) for one in answers]

    async def _grades(self, pairs: Sequence[tuple[tuple[QAItem, ...], tuple[str | None, ...]]]) -> list[Any]:
        """Return the grades or a failure for each pair of questions and answers."""
        judged = [[self._is_judged(item, answer) for item, answer in zip(*pair, strict=True)] for pair in pairs]
        # Missing answers are never judged.
        asked = [
            AnswerPairs(tuple(compress(items, chosen)), tuple(compress((answer or "" for answer in answers), chosen)))
            for (items, answers), chosen in zip(pairs, judged, strict=True)
        ]
        results = await self._judged_grades(asked)
        return [
            found if isinstance(found, JudgeFailure) else self._with_rules(*pair, chosen, found)
            for pair, chosen, found in zip(pairs, judged, results, strict=True)
        ]

    async def _judged_grades(self, requests: Sequence[AnswerPairs]) -> list[Any]:
        if self.comparer is None:
            return [() for _ in requests]
        parts = [
            [AnswerPairs((item,), (answer,)) for item, answer in zip(one.items, one.answers, strict=True)]
            for one in requests
        ]
        if self.grade_prompt is not None:
            return await _each_alone(self.comparer, self._grades_task, parts)
        grades = await _evaluated(self.comparer, self._grades_task, requests)
        grades = await _again(self.comparer, self._grades_task, parts, grades, None)
        return [_UNGRADED if not isinstance(one, JudgeFailure) and None in one else one for one in grades]

    def _is_judged(self, item: QAItem, answer: str | None) -> bool:
        """Whether the judge grades an answer. Rules grade missing answers, and without a prompt file existence."""
        is_own = self.grade_prompt is None and item.answer_type == EXISTENCE
        return self.comparer is not None and answer is not None and not is_own

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


def _without_refused(results: Sequence[Any]) -> list[Any]:
    """Return the results of :class:`ItemsTask` without what is refused in them, and warn of its number."""
    counts = [0 if isinstance(one, JudgeFailure) else sum(isinstance(item, Refused) for item in one) for one in results]
    if any(counts):
        warnings.warn(
            f"{sum(counts)} attributes of {sum(map(bool, counts))} of {len(results)} reports have no question, because "
            "the judge stated them in other words than the report's, or without a number",
            JudgeWarning,
            stacklevel=2,
        )
    return [
        one if isinstance(one, JudgeFailure) else tuple(item for item in one if not isinstance(item, Refused))
        for one in results
    ]


async def _evaluated(judge: Judge, task: JudgeTask[Any, Any], requests: Sequence[Any]) -> list[Any]:
    """Evaluate requests. Requests without questions have an empty result and are not sent."""
    pending = [request for request in requests if request.items]
    results: Iterator[Any] = iter(await judge.evaluate(task, pending) if pending else ())
    return [next(results) if request.items else () for request in requests]


async def _each_alone(judge: Judge, task: JudgeTask[Any, Any], parts: Sequence[Sequence[Any]]) -> list[Any]:
    """Evaluate the requests of each report, one for each question. A report fails if one of its requests does."""
    results = iter(await _evaluated(judge, task, [part for row in parts for part in row]))
    found = [[next(results) for _ in row] for row in parts]
    return [_first_failure(row) or tuple(one for (one,) in row) for row in found]


async def _again(
    judge: Judge, task: JudgeTask[Any, Any], parts: Sequence[Sequence[Any]], results: Sequence[Any], refused: Any
) -> list[Any]:
    """Ask once more, each in a request of its own, what has the result ``refused``.

    What was in a request of its own is not asked again: the judge would get the same request. A request that has an
    invalid answer leaves the result ``refused``; one that has no answer at all is the failure of its report.
    """
    found = [one if isinstance(one, JudgeFailure) else list(one) for one in results]
    places = [
        (row, index)
        for row, one in enumerate(found)
        if isinstance(one, list) and len(one) > 1
        for index, result in enumerate(one)
        if result is refused
    ]
    answers = await _evaluated(judge, task, [parts[row][index] for row, index in places])
    for (row, index), answer in zip(places, answers, strict=True):
        given = found[row]
        if isinstance(answer, JudgeFailure):
            found[row] = given if answer.kind in _INVALID else answer
        elif isinstance(given, list):
            # Not if another question of the report has failed.
            (given[index],) = answer
    return [one if isinstance(one, JudgeFailure) else tuple(one) for one in found]


def _first_failure(results: Sequence[Any]) -> JudgeFailure | None:
    return next((one for one in results if isinstance(one, JudgeFailure)), None)


def _verbatim(answers: Sequence[Any]) -> _Given:
    refused = tuple(answer is Refused.NOT_VERBATIM for answer in answers)
    return _Given(tuple(None if isinstance(answer, Refused) else answer for answer in answers), refused)


def _from_file(name: str, path: str | None, judge: Judge | None, task: Any) -> JudgeTask[Any, Any] | None:
    """Return the task with the prompt of a file, or ``None`` without a file."""
    if path is None:
        return None
    if judge is None:
        role = "answerer" if name == "answer" else "comparer"
        raise ValueError(f"{name}_prompt: needs a judge, which gets the prompt; set {role}")
    made: JudgeTask[Any, Any] = read_prompt_task(f"{name}_prompt", path, task)
    return made


def _judge(name: str, setting: JudgeSetting) -> Judge | None:
    if setting == ENGINE:
        return None
    judge = get_judge(setting)
    if judge.task_names is not None:
        raise ValueError(
            f"{name}: the judge {judge.short_name!r} evaluates CRIMSON only; for rules set {name}='engine'"
        )
    return judge


def _signature(judge: Judge | None, task: JudgeTask[Any, Any], engine: str) -> str:
    return engine if judge is None else f"{{{judge.signature}|prompt:{task.prompt_hash}}}"


def _graded(items: Sequence[QAItem], given: _Given, grades: Any) -> Any:
    if isinstance(grades, JudgeFailure):
        return grades
    return tuple(
        GradedAnswer(item, answer, grade, not_verbatim)
        for item, answer, not_verbatim, grade in zip(items, *given, grades, strict=True)
    )
