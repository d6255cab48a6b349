"""CT-FineBench's tasks for language models: make questions, answer questions, grade answers, and list attributes."""

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple

from typing_extensions import TypedDict

from rrg_rewards.findings.reading.measurements import NumberTooLongError, UnknownUnitError
from rrg_rewards.judges.base import AnswerError, Message
from rrg_rewards.judges.tasks.base import PromptTask, fenced_text, quote_text, read_answer
from rrg_rewards.judges.tasks.grounding import ReportWords, content_words, is_denial, report_words
from rrg_rewards.questions.grading import OverSpecified, check_grading, compare_answers, largest_measure
from rrg_rewards.questions.schema import SEVERAL_LESIONS, AnswerType, AttributeSpec, FindingSpec, QAItem, QuestionSchema

EXISTENCE = "existence"
_GRADES = {"right": 1.0, "partial": 0.5, "wrong": 0.0}
_MORE = (
    "the other answer holds the whole true answer and adds a detail that does not contradict it; or it is a more "
    "specific case of the true answer"
)
_LESS = (
    "nothing in the other answer is wrong, but something of the true answer is missing, or it is more general than the "
    "true answer"
)
# Descriptions of the grades "right" and "partial" in the prompt, by the setting over_specified.
_RULES = {
    "right": (f"both mean the same, in whatever words; or {_MORE}.", f"{_LESS}."),
    "partial": (
        "both mean the same, in whatever words, and neither says more than the other.",
        f"{_LESS}; or {_MORE}.",
    ),
}
# More words than any answer needs. Without a limit, a copy of the report would be a valid answer.
_LONGEST_ANSWER = 30
# Longest name of an attribute and longest value, in words. A copy of the report would otherwise be a valid value.
_LONGEST_ATTRIBUTE = 4
_LONGEST_VALUE = 15
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
        items: The questions; their true answers are not part of the prompt.
        shares_report: Whether other requests have the same report, and not the same questions. The report is then first
            in the prompt; otherwise the questions are, which all candidates of a reference share.
    """

    report: str
    items: tuple[QAItem, ...]
    shares_report: bool = False


@dataclass(frozen=True)
class AnswerPairs:
    """Answers to be graded.

    Args:
        items: The questions with their true answers.
        answers: The answer of another report to each question.
    """

    items: tuple[QAItem, ...]
    answers: tuple[str, ...]


class Refused(Enum):
    """Why a single answer is not used, although the judge's answer as a whole is valid."""

    NOT_VERBATIM = "not in the words of the report"
    NOT_NUMERIC = "no number with a known unit"


class StatedAttribute(TypedDict):
    """An attribute of a finding that a report states."""

    attribute: str
    answer: str


class StatedFinding(TypedDict):
    """A finding that a report states, with its attributes."""

    finding: str
    quote: str
    attributes: list[StatedAttribute]


class ItemsForm(TypedDict):
    """Answer of :class:`ItemsTask`."""

    findings: list[StatedFinding]


class ItemsTask(PromptTask[str, tuple[QAItem | Refused, ...]]):
    """List the findings and attributes that a report states, and make questions from them.

    The judge names findings and attributes of the schema and quotes the report. The schema contains the wording of
    the questions. An answer is valid if it is a JSON object of the form and

    - findings are in the schema, each named once, and attributes belong to their finding, each named once;
    - quotes are in the words of the report, and do not deny the finding.

    An attribute has no question, and ``Refused`` in its place, if its answer is not in the words of the report, has
    more than 30 words, or is numeric and contains no number with a known unit. An attribute is left out if its question
    already contains the words of the answer. Several lesions of a finding are treated by the rule of the finding engine
    (:data:`rrg_rewards.questions.schema.SEVERAL_LESIONS`), which is part of the prompt; of several numbers in an answer
    the greatest is kept.

    Source: Yuan et al., "CT-FineBench", Section 3.2.

    Args:
        questions: The schema.
    """

    name = "ct_finebench_items"
    template = "finebench_items"
    form = ItemsForm

    def __init__(self, questions: QuestionSchema) -> None:
        self.questions = questions

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer, with the names of findings and attributes."""
        schema: Any = deepcopy(super().schema)
        finding = schema["properties"]["findings"]["items"]["properties"]
        attribute = finding["attributes"]["items"]["properties"]
        finding["finding"]["enum"] = [finding.name for finding in self.questions.findings]
        attribute["attribute"]["enum"] = list(
            dict.fromkeys(spec.name for finding in self.questions.findings for spec in _attributes(finding))
        )
        return dict(schema)

    def _probes(self) -> Sequence[str]:
        return ("", _PROBE)

    def messages(self, item: str) -> list[Message]:
        """Build the conversation: instructions with the schema, then the report as data."""
        described = "\n".join(map(_described, self.questions.findings))
        return self._fill(findings=described, several=SEVERAL_LESIONS, report=fenced_text(item))

    def parse(self, item: str, answer: str) -> tuple[QAItem | Refused, ...]:
        """Return the questions that follow from an answer, in the order of the schema, and what is refused."""
        stated = _by_name("findings", self._read(answer)["findings"], "finding")
        _check_known("findings", stated, [finding.name for finding in self.questions.findings])
        words = report_words(item)
        return tuple(
            made
            for finding in self.questions.findings
            if finding.name in stated
            for made in _items_of(finding, stated[finding.name], words)
        )


def _attributes(finding: FindingSpec) -> list[AttributeSpec]:
    """Return the attributes of a finding without its existence."""
    return [spec for spec in finding.attributes if spec.answer_type != EXISTENCE]


def _described(finding: FindingSpec) -> str:
    lines = "".join(
        f"\n  - {spec.name}: {spec.explanation} Examples: {'; '.join(spec.examples)}" for spec in _attributes(finding)
    )
    return f"- {finding.name}{lines}"


def _items_of(finding: FindingSpec, stated: StatedFinding, words: ReportWords) -> list[QAItem | Refused]:
    """Make the questions on a finding that a report states."""
    where = f"findings of {finding.name}"
    if is_denial(stated["quote"]) or not words.contains_finding(stated["quote"]):
        raise AnswerError(
            "inconsistent", f"{where}: the quote is not in the report in similar words, or denies the finding"
        )
    attributes = _by_name(where, stated["attributes"], "attribute")
    _check_known(where, attributes, [spec.name for spec in _attributes(finding)])
    items: list[QAItem | Refused] = [
        question_item(finding.name, spec, "yes") for spec in finding.attributes if spec.answer_type == EXISTENCE
    ]
    for spec in _attributes(finding):
        if spec.name not in attributes:
            continue
        answer = _stated_answer(attributes[spec.name]["answer"].strip(), spec, words)
        if isinstance(answer, Refused):
            items.append(answer)
        elif not content_words(answer) or not content_words(answer) <= content_words(spec.question):
            items.append(question_item(finding.name, spec, answer))
    return items


def _stated_answer(answer: str, spec: AttributeSpec, words: ReportWords) -> str | Refused:
    return readable_answer(answer, spec.answer_type) if _is_grounded(answer, words) else Refused.NOT_VERBATIM


def readable_answer(answer: str, answer_type: AnswerType) -> str | Refused:
    """Return an answer to which others can be compared: of several numbers the greatest."""
    try:
        compare_answers(answer, answer, answer_type)
    except ValueError:
        # Only a number can be compared with itself in vain.
        return Refused.NOT_NUMERIC
    return largest_measure(answer) if answer_type == "numeric" else answer


def question_item(finding: str, spec: AttributeSpec, answer: str, question: str | None = None) -> QAItem:
    """Return a question on an attribute; by default in the words of the schema."""
    asked = question or spec.question
    return QAItem(finding, spec.name, asked, answer, spec.answer_type, spec.explanation, tuple(spec.examples))


class QuestionAnswer(TypedDict):
    """The answer to one question; ``None`` if the report does not state it."""

    question: str
    answer: str | None


class AnswersForm(TypedDict):
    """Answer of :class:`AnswersTask`."""

    answers: list[QuestionAnswer]


Answer = str | None | Refused
"""The answer to a question; ``None`` if the report does not state it."""


class AnswersTask(PromptTask[Questions, tuple[Answer, ...]]):
    """Answer all questions about a report in one answer.

    The answer is valid if it is a JSON object of the form and answers each question once. The answer to a question is
    used if it contains only words and numbers of the report
    (:meth:`rrg_rewards.judges.tasks.grounding.ReportWords.contains_answer`), at most 30; otherwise it is
    ``Refused.NOT_VERBATIM``, and the answers to the other questions are kept. A question about the existence of a
    finding is answered by quoting the report: a quote that denies the finding is ``"no"``, any other ``"yes"``. Several
    lesions of a finding are treated as in :class:`ItemsTask`.

    Source: Yuan et al., "CT-FineBench", Section 3.3.

    Example:
        >>> task = AnswersTask()
        >>> size = QAItem("Lung nodule", "size", "What is the size of the nodule?", "12 mm", "numeric")
        >>> task.parse(Questions("Nodule of 8 mm.", (size,)), '{"answers": [{"question": "Q1", "answer": "8 mm"}]}')
        ('8 mm',)
    """

    name = "ct_finebench_answers"
    template = "finebench_answers"
    form = AnswersForm

    def _probes(self) -> Sequence[Questions]:
        return (Questions("", ()), Questions(_PROBE, _PROBES), Questions(_PROBE, _PROBES, shares_report=True))

    def messages(self, item: Questions) -> list[Message]:
        """Build the conversation: instructions, then the questions and the report as data, what is shared first."""
        questions = [_question_in_words(number, question) for number, question in enumerate(item.items, start=1)]
        parts = ["<questions>", *questions, "</questions>"], ["<report>", fenced_text(item.report), "</report>"]
        data = "\n\n".join("\n".join(part) for part in (parts[::-1] if item.shares_report else parts))
        return self._fill(several=SEVERAL_LESIONS, data=data)

    def shared_part(self, item: Questions) -> Hashable:
        """The part that is first: questions or report."""
        return item.report if item.shares_report else item.items

    def parse(self, item: Questions, answer: str) -> tuple[Answer, ...]:
        """Return the answer to each question; ``None`` if the report does not state it."""
        given = _in_order("Q", self._read(answer)["answers"], "question", len(item.items))
        words = report_words(item.report)
        return tuple(
            _answered(entry["answer"] or "", question, words) for entry, question in zip(given, item.items, strict=True)
        )


def _question_in_words(number: int, item: QAItem) -> str:
    parts = [f"Q{number}: {quote_text(item.question)}"]
    if item.explanation:
        parts.append(f"meaning: {quote_text(item.explanation)}")
    if item.examples:
        parts.append(f"examples: {', '.join(map(quote_text, item.examples))}")
    return "; ".join(parts)


def _answered(answer: str, item: QAItem, words: ReportWords) -> Answer:
    answer = answer.strip()
    if not answer:
        return None
    if not _is_grounded(answer, words):
        return Refused.NOT_VERBATIM
    if item.answer_type == EXISTENCE:
        return "no" if is_denial(answer) else "yes"
    return _greatest(answer) if item.answer_type == "numeric" else answer


def _greatest(answer: str) -> str:
    """Return the greatest number of an answer, or the answer itself if its numbers cannot be compared."""
    try:
        return largest_measure(answer)
    except (UnknownUnitError, NumberTooLongError):
        return answer


class PairGrade(TypedDict):
    """The grade of one pair of answers."""

    pair: str
    grade: Literal["right", "partial", "wrong"]


class GradesForm(TypedDict):
    """Answer of :class:`GradesTask`."""

    grades: list[PairGrade]


class _AnyPairGrade(TypedDict):
    """A pair with any grade."""

    pair: str
    grade: Any


class _AnyGradesForm(TypedDict):
    """Answer of :class:`GradesTask` of which single grades may be invalid."""

    grades: list[_AnyPairGrade]


class GradesTask(PromptTask[AnswerPairs, tuple[float | None, ...]]):
    """Grade all answers about a report in one answer: 1 (right), 0.5 (partial) or 0 (wrong) each.

    The answer is valid if it is a JSON object of the form and grades each pair once. A grade that is none of the three
    is ``None``, and the other grades are kept. Whether a grade is correct is not checked.

    Source: Yuan et al., "CT-FineBench", Section 3.3 and Appendix B, which grade over-specified answers differently.

    Args:
        over_specified: Grade of a correct answer that says more than the true one: ``"right"``, as in Appendix B, or
            ``"partial"``, as in Section 3.3.

    Raises:
        ValueError: If ``over_specified`` is unknown.

    Example:
        >>> task = GradesTask()
        >>> place = QAItem("Atelectasis", "location", "Where is the atelectasis?", "left lung", "location")
        >>> task.parse(AnswerPairs((place,), ("lung",)), '{"grades": [{"pair": "A1", "grade": "partial"}]}')
        (0.5,)
    """

    name = "ct_finebench_grades"
    template = "finebench_grades"
    form = GradesForm

    def __init__(self, over_specified: OverSpecified = "right") -> None:
        check_grading("levels", over_specified)
        self.over_specified: OverSpecified = over_specified

    def _probes(self) -> Sequence[AnswerPairs]:
        return (AnswerPairs((), ()), AnswerPairs(_PROBES, (_PROBE,) * len(_PROBES)))

    def messages(self, item: AnswerPairs) -> list[Message]:
        """Build the conversation: instructions, then the questions and both answers to each as data."""
        pairs = [
            f"A{number}: question: {quote_text(question.question)}; true answer: {quote_text(question.answer)}; "
            f"other answer: {quote_text(answer)}"
            for number, (question, answer) in enumerate(zip(item.items, item.answers, strict=True), start=1)
        ]
        right, partial = _RULES[self.over_specified]
        return self._fill(right=right, partial=partial, answers="\n".join(pairs))

    def shared_part(self, item: AnswerPairs) -> Hashable:
        """Questions with their true answers."""
        return item.items

    def parse(self, item: AnswerPairs, answer: str) -> tuple[float | None, ...]:
        """Return the grade of each answer; ``None`` for an invalid one."""
        given = _in_order("A", read_answer(answer, _AnyGradesForm)["grades"], "pair", len(item.items))
        return tuple(_GRADES.get(entry["grade"]) if isinstance(entry["grade"], str) else None for entry in given)


def _is_grounded(answer: str, words: ReportWords) -> bool:
    """Whether an answer is in the words of the report, and no longer than any answer needs to be."""
    return bool(answer) and words.contains_answer(answer) and len(answer.split()) <= _LONGEST_ANSWER


def _by_name(where: str, entries: Sequence[Any], key: str) -> dict[str, Any]:
    named = {entry[key]: entry for entry in entries}
    if len(named) < len(entries):
        raise AnswerError("inconsistent", f"{where}: the same {key} occurs twice")
    return named


def _check_known(where: str, named: Mapping[str, Any], known: Sequence[str]) -> None:
    # Do not quote the names, which may contain report text.
    if unknown := named.keys() - set(known):
        raise AnswerError("inconsistent", f"{where}: {len(unknown)} names that the question schema does not have")


def _in_order(letter: str, entries: Sequence[Any], key: str, count: int) -> list[Any]:
    """Return the entries in the order of their numbers; raise if they are not 1 to ``count``."""
    named = _by_name(f"{key}s", entries, key)
    wanted = [f"{letter}{number}" for number in range(1, count + 1)]
    if named.keys() != set(wanted):
        missing = len(set(wanted) - named.keys())
        raise AnswerError(
            "inconsistent", f"{key}s must be {letter}1 to {letter}{count}, once each; {missing} are missing"
        )
    return [named[name] for name in wanted]


@dataclass(frozen=True)
class ReportFindings:
    """A report, and the findings whose attributes are to be listed.

    Args:
        report: The report.
        findings: Names of findings of the question schema, such as those that labels call positive.
    """

    report: str
    findings: tuple[str, ...]


class FindingTriple(NamedTuple):
    """An attribute of a finding that a report states.

    Args:
        finding: Name of the finding in the question schema.
        attribute: Name of the attribute in the judge's words, in lower case.
        value: Value in the words of the report, in lower case.
        quote: The words of the report that state it.
    """

    finding: str
    attribute: str
    value: str
    quote: str


FindingTriples = tuple[FindingTriple, ...]
"""The triples of one report, each once."""


class StatedTriple(TypedDict):
    """An attribute of a finding with its value, and the words of the report that state it."""

    quote: str
    finding: str
    attribute: str
    value: str


class TriplesForm(TypedDict):
    """Answer of :class:`TriplesTask`."""

    triples: list[StatedTriple]


class TriplesTask(PromptTask[ReportFindings, FindingTriples]):
    """List triples of finding, attribute and value that a report states, with a quote for each.

    The triples of a corpus, counted, are the material from which a question schema is written. An answer is valid if it
    is a JSON object of the form and

    - each finding is one of those asked for;
    - each quote is a passage of the report, word for word, apart from case and white space;
    - each value is in the words of its quote, and has at most 15 words;
    - the name of each attribute has one to four words.

    Source: Yuan et al., "CT-FineBench", Section 3.2 and Appendix A.

    Args:
        questions: Question schema whose findings may be asked for.

    Example:
        >>> from rrg_rewards.questions import get_question_schema
        >>> task = TriplesTask(get_question_schema("ct_rate"))
        >>> item = ReportFindings("Solid nodule of 8 mm.", ("Lung nodule",))
        >>> entry = {"quote": "nodule of 8 mm", "finding": "Lung nodule", "attribute": "Size", "value": "8 mm"}
        >>> import json
        >>> task.parse(item, json.dumps({"triples": [entry]}))[0][:3]
        ('Lung nodule', 'size', '8 mm')
    """

    name = "ct_finebench_triples"
    template = "finebench_triples"
    form = TriplesForm

    def __init__(self, questions: QuestionSchema) -> None:
        self.questions = questions

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer, with the names of the findings."""
        schema: Any = deepcopy(super().schema)
        entry = schema["properties"]["triples"]["items"]["properties"]
        entry["finding"]["enum"] = [finding.name for finding in self.questions.findings]
        return dict(schema)

    def _probes(self) -> Sequence[ReportFindings]:
        return (ReportFindings("", ()), ReportFindings(_PROBE, (_PROBE,)))

    def messages(self, item: ReportFindings) -> list[Message]:
        """Build the conversation: instructions, then the report and the names of the findings as data."""
        return self._fill(report=fenced_text(item.report), findings="\n".join(map(quote_text, item.findings)))

    def parse(self, item: ReportFindings, answer: str) -> FindingTriples:
        """Return the triples of an answer."""
        words = report_words(item.report)
        listed = self._read(answer)["triples"]
        return tuple(dict.fromkeys(_triple(number, entry, item, words) for number, entry in enumerate(listed, start=1)))


def _triple(number: int, entry: StatedTriple, item: ReportFindings, words: ReportWords) -> FindingTriple:
    if entry["finding"] not in item.findings:
        raise AnswerError("inconsistent", f"triple {number}: the finding is not one of those asked for")
    if not words.contains_passage(entry["quote"]):
        raise AnswerError("inconsistent", f"triple {number}: the quote is not a passage of the report")
    value, attribute = (" ".join(text.lower().split()) for text in (entry["value"], entry["attribute"]))
    if not value or not ReportWords(entry["quote"]).contains_answer(value):
        raise AnswerError("inconsistent", f"triple {number}: the value is not in the words of its quote")
    if len(value.split()) > _LONGEST_VALUE:
        raise AnswerError("inconsistent", f"triple {number}: the value has more than {_LONGEST_VALUE} words")
    if not 1 <= len(attribute.split()) <= _LONGEST_ATTRIBUTE:
        raise AnswerError(
            "inconsistent", f"triple {number}: the attribute must be named in 1 to {_LONGEST_ATTRIBUTE} words"
        )
    return FindingTriple(entry["finding"], attribute, value, entry["quote"])
