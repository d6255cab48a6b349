"""Tasks of rewriting a report: the same in other words, or with one attribute of a finding wrong."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rrg_rewards.findings.editing.rewrite_rules import Rewording
from rrg_rewards.judges.base import AnswerError, Message
from rrg_rewards.judges.tasks.base import PromptTask
from rrg_rewards.judges.tasks.escaping import quote_text
from rrg_rewards.judges.tasks.grounding import report_words
from rrg_rewards.questions.engine import build_items
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.schema import QAItem, QuestionSchema, get_question_schema

__all__ = ["ParaphraseTask", "WrongDetail", "WrongDetailTask", "lost_in_paraphrase"]

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
    form = "ParaphraseForm"

    def __init__(self, questions: str | Path | QuestionSchema = "ct_rate") -> None:
        self.questions = questions if isinstance(questions, QuestionSchema) else get_question_schema(questions)

    def _probes(self) -> Sequence[str]:
        return ("", _PROBE)

    def messages(self, item: str) -> list[Message]:
        """Build the conversation: instructions, then the report as data."""
        return self._fill(report=quote_text(item))

    def parse(self, item: str, answer: str) -> str:
        """Return the paraphrase."""
        text: str = self._read(answer).report.strip()
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
    form = "ReplacementForm"

    def __init__(self, questions: str | Path | QuestionSchema = "ct_rate") -> None:
        self.questions = questions if isinstance(questions, QuestionSchema) else get_question_schema(questions)

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

    def parse(self, item: WrongDetail, answer: str) -> Rewording:
        """Return the replacement, with the name of the attribute as its kind."""
        found = self._read(answer)
        before, after = found.before.strip(), found.after.strip()
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
