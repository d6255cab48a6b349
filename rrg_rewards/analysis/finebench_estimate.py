"""Cost of CT-FineBench with language models as judges, estimated without a request."""

import asyncio
import json
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rrg_rewards.analysis.answers import Estimate, estimate_requests
from rrg_rewards.judges.base import Item, Judge, JudgeFailure, JudgeTask, JudgeWarning, Result, in_request_order
from rrg_rewards.judges.tasks.finebench import EXISTENCE, AnswerPairs, AnswersTask, GradesTask, Questions, Refused
from rrg_rewards.metrics.base import Column
from rrg_rewards.metrics.ct_finebench import CTFineBench
from rrg_rewards.questions.descriptions import check_readable
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.schema import QAItem, QuestionSchema
from rrg_rewards.utilities.settings import SettingError

Batch = tuple[Sequence[str | None], Sequence[str | None], Mapping[str, Column]]
"""Candidates, references and context columns of a batch of report pairs."""

# Arguments of the metric by what the judge does.
_ROLES = {"questions": "builder", "answers": "answerer", "grades": "comparer"}
_GRADES = {1.0: "right", 0.5: "partial", 0.0: "wrong"}


@dataclass(frozen=True)
class RoleEstimate:
    """Estimated cost of one of the judges of CT-FineBench.

    Args:
        estimate: The cost if all judges answer like the finding engine.
        most_requests: Upper bound of the number of requests, whatever valid answers the judges give; equal requests
            count each. ``None`` if the number does not depend on answers.
    """

    estimate: Estimate
    most_requests: int | None = None

    @property
    def requests(self) -> str:
        """The number of requests in words.

        Example:
            >>> RoleEstimate(Estimate(4, 900, 80, None, None), most_requests=20).requests
            'about 4 requests, if judges answer like the finding engine; at most 20, without repeated requests'
        """
        if self.most_requests is None:
            return f"{self.estimate.requests:,} requests"
        return (
            f"about {self.estimate.requests:,} requests, if judges answer like the finding engine; at most "
            f"{self.most_requests:,}, without repeated requests"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the estimate, and ``most_requests``."""
        return {**asdict(self.estimate), "most_requests": self.most_requests}


def finebench_judges(metric: CTFineBench) -> dict[str, Judge]:
    """Return the language models of a metric by what they do: ``questions``, ``answers``, ``grades``.

    Example:
        >>> list(finebench_judges(CTFineBench(answerer={"name": "openai", "model": "m"})))
        ['answers']
    """
    return {role: judge for role, judge in metric.judges().items() if not judge.is_immediate}


def estimate_finebench(metric: CTFineBench, batches: Iterable[Batch]) -> dict[str, RoleEstimate]:
    """Estimate the cost of CT-FineBench with language models as judges; nothing is sent.

    The requests of a judge depend on the answers of those before it: the questions are answered, and the answers are
    graded. The metric therefore scores the pairs with the finding engine in place of the judges, which gives the
    requests that it would send if the judges answered like the engine.

    The upper bound of the number of requests is that of judges that make a question from each attribute of the schema,
    answer every question, and give each single answer and grade first in an invalid form, so that it is requested again
    alone. Repeated requests, after an error or an invalid answer as a whole, are not counted.

    Args:
        metric: The metric with its judges. Answers in their caches are not subtracted.
        batches: The report pairs, in batches as they will be scored; equal requests of a batch count once.

    Returns:
        The estimate of each language model, by what it does: ``questions``, ``answers``, ``grades``.

    Raises:
        SettingError: If the finding engine cannot read the question schema.

    Example:
        >>> metric = CTFineBench(answerer={"name": "openai", "model": "m", "price": (1.0, 4.0)})
        >>> found = estimate_finebench(metric, [(["Nodule of 8 mm."], ["Solid nodule of 9 mm."], {})])
        >>> found["answers"].estimate.requests, found["answers"].most_requests
        (1, 4)
    """
    judges, schema = finebench_judges(metric), metric.examiner.schema
    if not judges:
        return {}
    try:
        check_readable(schema)
    except ValueError as error:
        reason = (
            f"no estimate of ct_finebench: the finding engine, which answers in place of the judges, fails: {error}"
        )
        raise SettingError(None, reason) from error
    expected = {role: _EngineAnswers(schema) for role in judges}
    most = {role: _MostRequests(schema) for role in judges}
    examined, bounded = _with_judges(metric, expected), _with_judges(metric, most)
    for preds, target, context in batches:
        with warnings.catch_warnings():
            # Reports that no judge may be asked about fail; the run itself counts them.
            warnings.simplefilter("ignore", JudgeWarning)
            examined.score(preds, target, **context)
            bounded.score(preds, target, **context)
    return {
        role: RoleEstimate(
            expected[role].estimate(judge.arguments()), None if role == "questions" else most[role].requests
        )
        for role, judge in judges.items()
    }


def _with_judges(metric: CTFineBench, judges: Mapping[str, Judge]) -> CTFineBench:
    """Return a metric like ``metric`` with other judges."""
    arguments = metric.examiner.arguments()
    del arguments["remembered"]
    return CTFineBench(**{**arguments, **{_ROLES[role]: judge for role, judge in judges.items()}}, mode=metric.mode)


class _StandIn(Judge):
    """Answers without a language model, in place of one.

    Args:
        schema: Question schema.
    """

    def __init__(self, schema: QuestionSchema) -> None:
        self._schema = schema

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this judge."""
        return {"schema": self._schema}

    @property
    def signature(self) -> str:
        """Name of the class."""
        return type(self).__name__

    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Answer the items that a judge would be asked about; the others fail as they would with the judge."""
        # As with a judge, the requests about references and candidates begin before either is answered.
        await asyncio.sleep(0)
        refusals = [task.refusal(item) for item in items]
        self._record(task, [item for item, refusal in zip(items, refusals, strict=True) if refusal is None])
        return [refusal or self._result(item) for item, refusal in zip(items, refusals, strict=True)]

    @abstractmethod
    def _record(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> None:
        """Record the items that are requested together."""

    @abstractmethod
    def _result(self, item: Any) -> Any:
        """Return the result of an item."""


class _EngineAnswers(_StandIn):
    """Gives the answers of the finding engine, and keeps the requests."""

    def __init__(self, schema: QuestionSchema) -> None:
        super().__init__(schema)
        self._requests: list[tuple[JudgeTask[Any, Any], Any]] = []

    def _record(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> None:
        self._requests += [(task, item) for item in in_request_order(task, dict.fromkeys(items))]

    def _result(self, item: Any) -> tuple[Any, ...]:
        if isinstance(item, Questions):
            return tuple(answer_items(item.report, item.items, self._schema))
        if isinstance(item, AnswerPairs):
            pairs = zip(item.items, item.answers, strict=True)
            return tuple(compare_answers(answer, asked.answer, asked.answer_type) for asked, answer in pairs)
        return build_items(item, self._schema)

    def estimate(self, known: Mapping[str, Any]) -> Estimate:
        """Return the cost of the requests for a judge with the arguments ``known``."""
        prompts = (task.messages(item) for task, item in self._requests)
        answers = (_expected_answer(task, item, self._result(item)) for task, item in self._requests)
        return estimate_requests(prompts, answers, known)


class _MostRequests(_StandIn):
    """Gives the answers that lead to the most requests, and counts them."""

    def __init__(self, schema: QuestionSchema) -> None:
        super().__init__(schema)
        self.requests = 0
        self._items = tuple(
            QAItem(finding.name, spec.name, spec.question, _any_answer(spec.answer_type), spec.answer_type)
            for finding in schema.findings
            for spec in finding.attributes
        )

    def _record(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> None:  # noqa: ARG002 (of any task)
        # Equal ones as well: the questions and answers of a judge can differ where these do not.
        self.requests += len(items)

    def _result(self, item: Any) -> tuple[Any, ...]:
        if isinstance(item, Questions):
            is_alone = len(item.items) == 1
            return tuple(_any_answer(one.answer_type) if is_alone else Refused.NOT_VERBATIM for one in item.items)
        if isinstance(item, AnswerPairs):
            return (1.0,) if len(item.items) == 1 else (None,) * len(item.items)
        return self._items


def _any_answer(answer_type: str) -> str:
    # A number is also a true answer to a numeric question.
    return "yes" if answer_type == EXISTENCE else "1 mm"


def _expected_answer(task: JudgeTask[Any, Any], item: Any, result: Sequence[Any]) -> str:
    """Return a text about as long as a judge's answer with this result."""
    if isinstance(task, AnswersTask):
        # The answer about existence is a quote.
        said = [
            asked.finding if answer is not None and asked.answer_type == EXISTENCE else answer
            for asked, answer in zip(item.items, result, strict=True)
        ]
        return json.dumps({"answers": [{"question": f"Q{n}", "answer": one} for n, one in enumerate(said, start=1)]})
    if isinstance(task, GradesTask):
        return json.dumps({"grades": [{"pair": f"A{n}", "grade": _GRADES[g]} for n, g in enumerate(result, start=1)]})
    if isinstance(item, Questions):
        return result[0] or "no answer"
    if isinstance(item, AnswerPairs):
        return f"{result[0]:g}"
    return _listed(result)


def _listed(items: Sequence[QAItem]) -> str:
    """Return the findings and attributes in the form of :class:`ItemsTask`."""
    findings: dict[str, list[dict[str, str]]] = {}
    for item in items:
        stated = findings.setdefault(item.finding, [])
        if item.answer_type != EXISTENCE:
            stated.append({"attribute": item.attribute, "answer": item.answer})
    return json.dumps(
        {
            "findings": [
                {"finding": name, "quote": " ".join((name, *(one["answer"] for one in stated))), "attributes": stated}
                for name, stated in findings.items()
            ]
        }
    )
