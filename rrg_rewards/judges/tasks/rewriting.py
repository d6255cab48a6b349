"""Rewrite reports with a judge: the same in other words, or with one attribute of a finding wrong."""

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from rrg_rewards.findings.editing.report_view import Replacement, apply
from rrg_rewards.findings.editing.rewrite_rules import Rewording, RewrittenReport
from rrg_rewards.judges.base import AnswerError, Judge, JudgeFailure, Message
from rrg_rewards.judges.tasks.base import PromptTask, quote_text
from rrg_rewards.judges.tasks.grounding import report_words
from rrg_rewards.questions.engine import build_items
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.schema import QAItem, QuestionSchema, get_question_schema

_SIDES = {"left": "left", "right": "right", "bilateral": "both", "bilaterally": "both", "both": "both"}
# A number with its decimals is one word.
_WORD = re.compile(r"\d+(?:\.\d+)?|\w+")
_PROBE = 'A nodule. <a> "b"\n{c}'
_PROBE_ITEM = QAItem("Lung nodule", "size", f"{_PROBE}?", f"12 mm {_PROBE}", "numeric", f"Meaning. {_PROBE}")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _findings(report: str, schema: QuestionSchema) -> set[str]:
    """Return the findings of a schema that the finding engine reads as present."""
    return {item.finding for item in build_items(report, schema)}


def _sides(report: str) -> set[str]:
    """Return the sides that a report names; both sides are the left and the right one."""
    named = {_SIDES[word] for word in _words(report) if word in _SIDES}
    return {"left", "right"} if "both" in named else named


def lost_in_paraphrase(report: str, paraphrase: str, schema: QuestionSchema) -> str | None:
    """Return what a paraphrase does not keep of a report, or ``None`` if it keeps the findings.

    A paraphrase keeps the findings if

    - the finding engine reads the same findings of the schema as present;
    - it contains the same numbers, with lengths compared in millimetres;
    - it names the same sides; "bilateral" and "both" name the left and the right one.

    The check does not compare other attributes, such as lobes, margins and degrees.

    Example:
        >>> report = "Nodule of 8 mm in the left lung."
        >>> schema = get_question_schema("ct_rate")
        >>> lost_in_paraphrase(report, "In the left lung there is a nodule measuring 0.8 cm.", schema) is None
        True
        >>> lost_in_paraphrase(report, "In the right lung there is a nodule measuring 0.8 cm.", schema)
        'sides'
    """
    if _findings(report, schema) != _findings(paraphrase, schema):
        return "findings"
    if report_words(report).quantities != report_words(paraphrase).quantities:
        return "numbers"
    return None if _sides(report) == _sides(paraphrase) else "sides"


class ParaphraseForm(TypedDict):
    """Answer of :class:`ParaphraseTask`."""

    report: str


class ParaphraseTask(PromptTask[str, str]):
    """Say a report in other words.

    An answer is valid if it is a JSON object of the form, the paraphrase has other words or another order of words than
    the report, and :func:`lost_in_paraphrase` finds nothing.

    Source: Yuan et al., "CT-FineBench", Section 5.2 and Appendix B.

    Args:
        questions: Question schema whose findings are compared, its name, or its YAML file.

    Example:
        >>> task = ParaphraseTask()
        >>> task.parse("Nodule of 8 mm in the left lung.", '{"report": "A nodule of the left lung measures 8 mm."}')
        'A nodule of the left lung measures 8 mm.'
    """

    name = "ct_finebench_paraphrase"
    template = "finebench_paraphrase"
    form = ParaphraseForm

    def __init__(self, questions: str | Path | QuestionSchema = "ct_rate") -> None:
        self.questions = get_question_schema(questions)

    def _probes(self) -> Sequence[str]:
        return ("", _PROBE)

    def messages(self, item: str) -> list[Message]:
        """Build the conversation: instructions, then the report as data."""
        return self._fill(report=quote_text(item))

    def parse(self, item: str, answer: str) -> str:
        """Return the paraphrase."""
        text: str = self._read(answer)["report"].strip()
        if _words(text) == _words(item):
            raise AnswerError("inconsistent", "the paraphrase is a copy of the report")
        if lost := lost_in_paraphrase(item, text, self.questions):
            raise AnswerError("inconsistent", f"the paraphrase does not keep the {lost} of the report")
        return text


@dataclass(frozen=True)
class WrongDetail:
    """A request to make one attribute of a finding wrong.

    Args:
        report: The report.
        item: Question about the attribute, with the answer of the report.
        others: Questions about the other attributes of the finding, which must not change.
    """

    report: str
    item: QAItem
    others: tuple[QAItem, ...] = ()


class ReplacementForm(TypedDict):
    """Answer of :class:`WrongDetailTask`."""

    before: str
    after: str


class WrongDetailTask(PromptTask[WrongDetail, Rewording]):
    """Replace words of a report so that one named attribute of a finding is wrong.

    The judge names the words to be replaced and the words that replace them; the rest of the report cannot change. An
    answer is valid if it is a JSON object of the form and

    - the words to be replaced occur exactly once in the report, and state the attribute: as an answer to its question
      they are right or partly right;
    - the new words give a wrong answer to the question, and contain words that the old ones do not;
    - as answers to the questions on other attributes of the finding, the new words are no worse than the old ones;
    - the finding engine reads the same findings of the schema as present before and after the change.

    Source: Yuan et al., "CT-FineBench", Section 5.2 and Appendix B.

    Args:
        questions: Question schema whose findings are compared, its name, or its YAML file.

    Example:
        >>> task = WrongDetailTask()
        >>> report = "Nodule of 8 mm in the left lung."
        >>> size = next(item for item in build_items(report) if item.attribute == "size")
        >>> task.parse(WrongDetail(report, size), '{"before": "8 mm", "after": "24 mm"}')
        Rewording(kind='size', before='8 mm', after='24 mm')
    """

    name = "ct_finebench_wrong_detail"
    template = "finebench_wrong_detail"
    form = ReplacementForm

    def __init__(self, questions: str | Path | QuestionSchema = "ct_rate") -> None:
        self.questions = get_question_schema(questions)

    def _probes(self) -> Sequence[WrongDetail]:
        return (WrongDetail(_PROBE, _PROBE_ITEM),)

    def messages(self, item: WrongDetail) -> list[Message]:
        """Build the conversation: instructions, then the report and the attribute as data."""
        asked = item.item
        detail = {
            "finding": asked.finding,
            "attribute": asked.attribute,
            "meaning": asked.explanation,
            "value": asked.answer,
        }
        lines = "\n".join(f"{name}: {quote_text(text)}" for name, text in detail.items() if text)
        return self._fill(report=quote_text(item.report), detail=lines)

    def shared_part(self, item: WrongDetail) -> Hashable:
        """Report."""
        return item.report

    def parse(self, item: WrongDetail, answer: str) -> Rewording:
        """Return the replacement, with the name of the attribute as its kind."""
        found: ReplacementForm = self._read(answer)
        before, after = found["before"].strip(), found["after"].strip()
        occurrences = item.report.count(before) if before else 0
        if occurrences != 1:
            raise AnswerError("inconsistent", f"the words to be replaced occur {occurrences} times, not once")
        if not _grade(before, item.item):
            raise AnswerError("inconsistent", "the words to be replaced do not state the attribute")
        if not set(_words(after)) - set(_words(before)):
            raise AnswerError("inconsistent", "the new words say nothing that the old ones do not say")
        if _grade(after, item.item):
            raise AnswerError("inconsistent", "the new words are no wrong answer on the attribute")
        for other in item.others:
            if _grade(after, other) < _grade(before, other):
                raise AnswerError("inconsistent", f"the new words change another attribute, {other.attribute}")
        if _findings(item.report, self.questions) != _findings(item.report.replace(before, after), self.questions):
            raise AnswerError("inconsistent", "the new words change which findings are present")
        return Rewording(item.item.attribute, before, after)


def _grade(words: str, item: QAItem) -> float:
    return compare_answers(words, item.answer, item.answer_type)


@dataclass(frozen=True)
class JudgedVersions:
    """The versions of reports that a judge wrote.

    Args:
        versions: ``paraphrased`` and ``adversarial``, each with one version for each report; ``None`` if no answer was
            accepted.
        answers: For both versions the number of answers asked for, the number accepted, and the numbers of failures by
            reason.
    """

    versions: Mapping[str, Sequence[RewrittenReport | None]]
    answers: Mapping[str, Mapping[str, Any]]


async def rewrite_reports(
    judge: Judge, reports: Sequence[str], schema: str | Path | QuestionSchema = "ct_rate"
) -> JudgedVersions:
    """Let a judge write a paraphrase of each report, and a version with wrong details.

    The judge is asked for one paraphrase of each report (:class:`ParaphraseTask`), and for one replacement for each
    attribute that the finding engine reads in it (:class:`WrongDetailTask`). The adversarial version contains the
    accepted replacements that do not overlap, in the order of the questions.

    Args:
        judge: The judge.
        reports: ``N`` reports.
        schema: Question schema, its name, or its YAML file.

    Returns:
        Both versions of each report, and an account of the answers.
    """
    questions = get_question_schema(schema)
    paraphrases = await judge.evaluate(ParaphraseTask(questions), reports)
    requests = [_wrong_details(report, questions) for report in reports]
    flat = [request for row in requests for request in row]
    edits = await judge.evaluate(WrongDetailTask(questions), flat) if flat else []
    remaining = iter(edits)
    return JudgedVersions(
        {
            "paraphrased": [
                None if isinstance(text, JudgeFailure) else _paraphrased(report, text)
                for report, text in zip(reports, paraphrases, strict=True)
            ],
            "adversarial": [
                _adversarial(report, [next(remaining) for _ in row])
                for report, row in zip(reports, requests, strict=True)
            ],
        },
        {"paraphrased": _account(paraphrases), "adversarial": _account(edits)},
    )


def _wrong_details(report: str, schema: QuestionSchema) -> list[WrongDetail]:
    """Return a request for each attribute that the finding engine reads in a report."""
    items = [item for item in build_items(report, schema) if item.answer_type != "existence"]
    return [
        WrongDetail(
            report, item, tuple(other for other in items if other.finding == item.finding and other is not item)
        )
        for item in items
    ]


def _paraphrased(report: str, text: str) -> RewrittenReport:
    return RewrittenReport(report, text, (Rewording("paraphrase", report, text),))


def _adversarial(report: str, edits: Sequence[Rewording | JudgeFailure]) -> RewrittenReport | None:
    """Return a report with its accepted replacements, or ``None`` without any."""
    placed: list[tuple[Replacement, Rewording]] = []
    for edit in edits:
        if isinstance(edit, JudgeFailure):
            continue
        start = report.index(edit.before)
        end = start + len(edit.before)
        if all(end <= other.start or other.end <= start for other, _ in placed):
            placed.append((Replacement(start, end, edit.after), edit))
    if not placed:
        return None
    placed.sort(key=lambda pair: pair[0])
    replacements, rewordings = zip(*placed, strict=True)
    return RewrittenReport(report, apply(report, replacements), rewordings)


def _account(results: Sequence[Any]) -> dict[str, Any]:
    failed = Counter(f"{result.kind}: {result.reason}" for result in results if isinstance(result, JudgeFailure))
    return {"asked": len(results), "accepted": len(results) - failed.total(), "failures": dict(failed.most_common())}
