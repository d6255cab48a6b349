"""The forms of a judge's answers for CT-FineBench; whether they make sense is for the tasks to say."""

from typing import Literal

from rrg_rewards.judges.answers import StrictAnswer, read_answer

__all__ = ["AnswersForm", "GradesForm", "ItemsForm", "read_answer"]


class StatedAttribute(StrictAnswer):
    """What a report states of an attribute."""

    attribute: str
    answer: str


class StatedFinding(StrictAnswer):
    """A finding of a report, and what it states of it."""

    finding: str
    quote: str
    attributes: list[StatedAttribute]


class ItemsForm(StrictAnswer):
    """What a report states.

    Example:
        >>> ItemsForm.json_schema()["required"]
        ['findings']
    """

    findings: list[StatedFinding]


class OneAnswer(StrictAnswer):
    """The answer to a question, or that there is none."""

    question: str
    answer: str | None


class AnswersForm(StrictAnswer):
    """Answers to the questions about a report.

    Example:
        >>> AnswersForm.json_schema()["required"]
        ['answers']
    """

    answers: list[OneAnswer]


class OneGrade(StrictAnswer):
    """How right an answer is."""

    pair: str
    grade: Literal["right", "partial", "wrong"]


class GradesForm(StrictAnswer):
    """Grades of the answers about a report.

    Example:
        >>> GradesForm.json_schema()["required"]
        ['grades']
    """

    grades: list[OneGrade]
