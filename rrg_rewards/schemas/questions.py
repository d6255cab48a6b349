"""Questions on single attributes of findings, as data."""

from dataclasses import dataclass
from typing import Literal, get_args

from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["AnswerType", "QAItem"]

AnswerType = Literal["numeric", "categorical", "location", "existence"]
"""How an answer is compared: as a number with a unit, as words of a closed set, as a place, or as yes."""


@dataclass(frozen=True, slots=True)
class QAItem:
    """A question on one attribute of a finding, and the reference report's answer (CT-FineBench, Section 3.2).

    Args:
        finding: The finding, as its schema names it: ``Lung nodule``.
        attribute: What is asked of it: ``size``, ``location``, ``existence``.
        question: The question; never holds the answer.
        answer: The reference report's answer, as short as it can be.
        answer_type: How an answer is compared.
        explanation: What the attribute means.
        examples: Answers that the attribute may have.

    Raises:
        ValueError: If the finding, the attribute, the question or the answer is blank, or the type is unknown.

    Example:
        >>> item = QAItem("Lung nodule", "size", "What is the diameter of the lung nodule?", "12 mm", "numeric")
        >>> item.answer
        '12 mm'
    """

    finding: str
    attribute: str
    question: str
    answer: str
    answer_type: AnswerType
    explanation: str = ""
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("finding", "attribute", "question", "answer"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{name} must be a text, got {value!r}")
        if self.answer_type not in get_args(AnswerType):
            raise ValueError(unknown_name_message("answer_type", str(self.answer_type), get_args(AnswerType)))
