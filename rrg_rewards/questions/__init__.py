"""Questions about single attributes of findings: schemas, questions from a reference, answers and grades."""

from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.schema import (
    AnswerType,
    AttributeSpec,
    FindingSpec,
    QAItem,
    QuestionSchema,
    get_question_schema,
    positive_findings,
)

__all__ = [
    "AnswerType",
    "AttributeSpec",
    "FindingSpec",
    "QAItem",
    "QuestionSchema",
    "compare_answers",
    "get_question_schema",
    "positive_findings",
]
