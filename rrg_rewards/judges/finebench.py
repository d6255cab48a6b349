"""CT-FineBench as tasks for language models: note what a report states, answer questions on one, grade answers."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from rrg_rewards.functional.ct_finebench import compare_answers
from rrg_rewards.judges.base import AnswerError, Item, JudgeTask, Message, Result
from rrg_rewards.judges.escaping import fill, quote_text
from rrg_rewards.judges.grounding import ReportWords, content_words
from rrg_rewards.judges.templates import load_template, prompt_digest
from rrg_rewards.schemas import AttributeSpec, FindingSpec, QAItem, QuestionSchema
from rrg_rewards.utilities.imports import require

__all__ = ["AnswerPairs", "AnswersTask", "GradesTask", "ItemsTask", "Questions"]

EXISTENCE = "existence"
_GRADES = {"right": 1.0, "partial": 0.5, "wrong": 0.0}
# Longer than any answer is: a judge that copies the report says everything.
_LONGEST_ANSWER = 30
_DENIAL = re.compile(r"\W*(?:no|not|none|without|absent|absence|negative|never|neither|free)\b", re.IGNORECASE)
# Everything that a prompt may do with a text shows in what it makes of this one.
_PROBE = 'A nodule. <a> "b"\n{c}'
_PROBES = (
    QAItem("Lung nodule", "size", f"{_PROBE}?", f"12 mm {_PROBE}", "numeric", f"Meaning. {_PROBE}", (f"8 {_PROBE}",)),
    QAItem("Lung nodule", EXISTENCE, "Is there a nodule?", "yes", "existence"),
)


@dataclass(frozen=True)
class Questions:
    """Questions to be answered from a report.

    Args:
        report: The report.
        items: The questions; a judge is not told their answers.
    """

    report: str
    items: tuple[QAItem, ...]


@dataclass(frozen=True)
class AnswerPairs:
    """Answers to be graded.

    Args:
        items: The questions with their true answers.
        answers: Another report's answer to each.
    """

    items: tuple[QAItem, ...]
    answers: tuple[str, ...]


class _FineBenchTask(JudgeTask[Item, Result]):
    """A task whose prompt is this package's."""

    template: str
    """File of the prompt."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    @property
    def prompt_hash(self) -> str:
        """First digits of the SHA-256 of messages and schema."""
        return prompt_digest([self.messages(item) for item in self._probes()], self.schema)

    @abstractmethod
    def _probes(self) -> Sequence[Item]:
        """Items by which the prompt shows what it makes of any."""

    def _filled(self, **values: str) -> list[Message]:
        system, user = load_template(self.template)
        contents = (("system", fill(system, **values)), ("user", fill(user, **values)))
        return [{"role": role, "content": content} for role, content in contents]


class ItemsTask(_FineBenchTask[str, tuple[QAItem, ...]]):
    """Ask what a report states of the findings and attributes of a question schema, and make questions of it.

    The judge names findings and attributes of the schema and quotes the report; the questions are the schema's own. An
    answer counts if it is a JSON object of the form and

    - findings are of the schema, each named once, and attributes of their finding, each named once;
    - what is quoted of a finding is in the report in its words, and does not deny it; so are the answers;
    - the answer of a numeric attribute holds a number of a known unit.

    An attribute whose question holds the answer's words already is left out.

    Source: Yuan et al., "CT-FineBench", Section 3.2.

    Args:
        questions: The schema.
    """

    name = "ct_finebench_items"
    template = "finebench_items"

    def __init__(self, questions: QuestionSchema) -> None:
        self.questions = questions

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer, with the names of findings and attributes."""
        schema: Any = deepcopy(_forms().ItemsForm.json_schema())
        finding = schema["properties"]["findings"]["items"]["properties"]
        attribute = finding["attributes"]["items"]["properties"]
        finding["finding"]["enum"] = [finding.name for finding in self.questions.findings]
        attribute["attribute"]["enum"] = list(
            dict.fromkeys(spec.name for finding in self.questions.findings for spec in _asked(finding))
        )
        return dict(schema)

    def _probes(self) -> Sequence[str]:
        return ("", _PROBE)

    def messages(self, item: str) -> list[Message]:
        """The conversation to answer: instructions with the schema, then the report as data."""
        described = "\n".join(map(_described, self.questions.findings))
        return self._filled(findings=described, report=quote_text(item))

    def parse(self, item: str, answer: str) -> tuple[QAItem, ...]:
        """The questions that an answer gives, in the schema's order, if it stands all checks.

        Raises:
            AnswerError: ``malformed`` or ``inconsistent``, saying what is wrong without report text.
        """
        stated = _by_name("findings", _read(answer, "ItemsForm").findings, "finding")
        _check_known("findings", stated, [finding.name for finding in self.questions.findings])
        words = _report_words(item)
        return tuple(
            made
            for finding in self.questions.findings
            if finding.name in stated
            for made in _items_of(finding, stated[finding.name], words)
        )


def _asked(finding: FindingSpec) -> list[AttributeSpec]:
    """The attributes that are asked of a finding besides its existence."""
    return [spec for spec in finding.attributes if spec.answer_type != EXISTENCE]


def _described(finding: FindingSpec) -> str:
    told = "".join(
        f"\n  - {spec.name}: {spec.explanation} Examples: {'; '.join(spec.examples)}" for spec in _asked(finding)
    )
    return f"- {finding.name}{told}"


def _items_of(finding: FindingSpec, stated: Any, words: ReportWords) -> list[QAItem]:
    """Questions on a finding that a report states."""
    place = f"findings of {finding.name}"
    if _DENIAL.match(stated.quote) or not words.holds(stated.quote):
        raise AnswerError("inconsistent", f"{place}: quote is not in the report in about these words, or denies it")
    attributes = _by_name(place, stated.attributes, "attribute")
    _check_known(place, attributes, [spec.name for spec in _asked(finding)])
    items = [_item(finding, spec, "yes") for spec in finding.attributes if spec.answer_type == EXISTENCE]
    for spec in _asked(finding):
        if spec.name not in attributes:
            continue
        answer = _grounded(f"{place}, {spec.name}", attributes[spec.name].answer, words)
        item = _item(finding, spec, answer)
        try:
            compare_answers(answer, answer, spec.answer_type)
        except ValueError:
            raise AnswerError(
                "inconsistent", f"{place}, {spec.name}: the answer is no {spec.answer_type} one"
            ) from None
        if not content_words(answer) or not content_words(answer) <= content_words(spec.question):
            items.append(item)
    return items


def _item(finding: FindingSpec, spec: AttributeSpec, answer: str) -> QAItem:
    return QAItem(
        finding.name, spec.name, spec.question, answer, spec.answer_type, spec.explanation, tuple(spec.examples)
    )


class AnswersTask(_FineBenchTask[Questions, tuple[str | None, ...]]):
    """Ask all questions about a report at once.

    An answer counts if it is a JSON object of the form, answers each question once, and gives only words that are in
    the report (:meth:`rrg_rewards.judges.grounding.ReportWords.says`), with its numbers. Whether a finding is present
    is answered by quoting the report: a quote is ``"yes"``, one that denies is ``"no"``.

    Source: Yuan et al., "CT-FineBench", Section 3.3.

    Example:
        >>> task = AnswersTask()
        >>> size = QAItem("Lung nodule", "size", "What is the size of the nodule?", "12 mm", "numeric")
        >>> task.parse(Questions("Nodule of 8 mm.", (size,)), '{"answers": [{"question": "Q1", "answer": "8 mm"}]}')
        ('8 mm',)
    """

    name = "ct_finebench_answers"
    template = "finebench_answers"

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer."""
        schema: Mapping[str, Any] = _forms().AnswersForm.json_schema()
        return schema

    def _probes(self) -> Sequence[Questions]:
        return (Questions("", ()), Questions(_PROBE, _PROBES))

    def messages(self, item: Questions) -> list[Message]:
        """The conversation to answer: instructions, then the report and the questions as data."""
        asked = [_asked_in_words(number, question) for number, question in enumerate(item.items, start=1)]
        return self._filled(report=quote_text(item.report), questions="\n".join(asked))

    def parse(self, item: Questions, answer: str) -> tuple[str | None, ...]:
        """Answer to each question; ``None`` where the report does not state it.

        Raises:
            AnswerError: ``malformed`` or ``inconsistent``, saying what is wrong without report text.
        """
        given = _in_order("Q", _read(answer, "AnswersForm").answers, "question", len(item.items))
        words = _report_words(item.report)
        return tuple(
            None
            if said.answer is None or not said.answer.strip()
            else _answered(said.question, said.answer, asked, words)
            for said, asked in zip(given, item.items, strict=True)
        )


def _asked_in_words(number: int, item: QAItem) -> str:
    parts = [f"Q{number}: {quote_text(item.question)}"]
    if item.explanation:
        parts.append(f"meaning: {quote_text(item.explanation)}")
    if item.examples:
        parts.append(f"examples: {', '.join(map(quote_text, item.examples))}")
    return "; ".join(parts)


def _answered(place: str, answer: str, item: QAItem, words: ReportWords) -> str:
    grounded = _grounded(place, answer, words)
    if item.answer_type != EXISTENCE:
        return grounded
    return "no" if _DENIAL.match(grounded) else "yes"


class GradesTask(_FineBenchTask[AnswerPairs, tuple[float, ...]]):
    """Ask how right the answers about a report are, all at once: 1, 0.5 or 0 each.

    An answer counts if it is a JSON object of the form and grades each pair once. Whether a grade is deserved is the
    judge's word and is not checked.

    Source: Yuan et al., "CT-FineBench", Section 3.3.

    Example:
        >>> task = GradesTask()
        >>> place = QAItem("Atelectasis", "location", "Where is the atelectasis?", "left lung", "location")
        >>> task.parse(AnswerPairs((place,), ("lung",)), '{"grades": [{"pair": "A1", "grade": "partial"}]}')
        (0.5,)
    """

    name = "ct_finebench_grades"
    template = "finebench_grades"

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer."""
        schema: Mapping[str, Any] = _forms().GradesForm.json_schema()
        return schema

    def _probes(self) -> Sequence[AnswerPairs]:
        return (AnswerPairs((), ()), AnswerPairs(_PROBES, (_PROBE,) * len(_PROBES)))

    def messages(self, item: AnswerPairs) -> list[Message]:
        """The conversation to answer: instructions, then questions and both answers to each as data."""
        pairs = [
            f"A{number}: question: {quote_text(asked.question)}; true answer: {quote_text(asked.answer)}; "
            f"other answer: {quote_text(answer)}"
            for number, (asked, answer) in enumerate(zip(item.items, item.answers, strict=True), start=1)
        ]
        return self._filled(answers="\n".join(pairs))

    def parse(self, item: AnswerPairs, answer: str) -> tuple[float, ...]:
        """Grade of each answer.

        Raises:
            AnswerError: ``malformed`` or ``inconsistent``, saying what is wrong without report text.
        """
        given = _in_order("A", _read(answer, "GradesForm").grades, "pair", len(item.items))
        return tuple(_GRADES[said.grade] for said in given)


def _forms() -> ModuleType:
    require("pydantic", extra="judge")
    return require("rrg_rewards.judges.finebench_answers", extra="judge")


def _read(answer: str, form: str) -> Any:
    """Read an answer of a form."""
    forms = _forms()
    return forms.read_answer(answer, getattr(forms, form))


# A reference comes with each of its candidates, and a cached answer with its report again.
_report_words = lru_cache(maxsize=1 << 10)(ReportWords)


def _grounded(place: str, answer: str, words: ReportWords) -> str:
    """An answer without white space around it, if a report says it."""
    answer = answer.strip()
    if not answer or not words.says(answer):
        raise AnswerError("inconsistent", f"{place}: the answer is not in the report's words")
    if len(answer.split()) > _LONGEST_ANSWER:
        raise AnswerError("inconsistent", f"{place}: the answer has more than {_LONGEST_ANSWER} words")
    return answer


def _by_name(place: str, entries: Sequence[Any], key: str) -> dict[str, Any]:
    named = {getattr(entry, key): entry for entry in entries}
    if len(named) < len(entries):
        raise AnswerError("inconsistent", f"{place}: the same {key} stands there twice")
    return named


def _check_known(place: str, named: Mapping[str, Any], known: Sequence[str]) -> None:
    # Not told by name: what a judge makes up may be report text.
    if unknown := named.keys() - set(known):
        raise AnswerError("inconsistent", f"{place}: {len(unknown)} names that the question schema does not have")


def _in_order(letter: str, entries: Sequence[Any], key: str, count: int) -> list[Any]:
    """Entries in the order of what they are about, if there is one for each of ``count``."""
    named = _by_name(f"{key}s", entries, key)
    wanted = [f"{letter}{number}" for number in range(1, count + 1)]
    if named.keys() != set(wanted):
        missing = len(set(wanted) - named.keys())
        raise AnswerError(
            "inconsistent", f"{key}s must be {letter}1 to {letter}{count}, once each; {missing} are missing"
        )
    return [named[name] for name in wanted]
