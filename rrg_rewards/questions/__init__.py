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
from rrg_rewards.questions.schema_files import (
    ReleasedAttribute,
    ReleasedSchema,
    convert_released_attributes,
    question_schema_yaml,
)

__all__ = [
    "AnswerType",
    "AttributeSpec",
    "FindingSpec",
    "QAItem",
    "QuestionSchema",
    "ReleasedAttribute",
    "ReleasedSchema",
    "compare_answers",
    "convert_released_attributes",
    "get_question_schema",
    "positive_findings",
    "question_schema_yaml",
]
