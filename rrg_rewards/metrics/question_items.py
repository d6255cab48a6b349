"""A data set's column of questions, read into checked items of a question schema."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from rrg_rewards.functional.ct_finebench import compare_answers
from rrg_rewards.schemas import QAItem, QuestionSchema
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["QuestionIndex", "question_index", "read_items"]

_FIELDS = tuple(field.name for field in fields(QAItem))
_REQUIRED = _FIELDS[:5]


class QuestionIndex:
    """Where each attribute of a question schema stands in a table.

    Args:
        schema: The schema.

    Attributes:
        pairs: ``(finding, attribute)`` of each place, in the schema's order.
    """

    def __init__(self, schema: QuestionSchema) -> None:
        self.schema = schema
        self.pairs = tuple((finding.name, spec.name) for finding in schema.findings for spec in finding.attributes)
        self._places = {pair: place for place, pair in enumerate(self.pairs)}

    def __len__(self) -> int:
        return len(self.pairs)

    def place(self, item: QAItem) -> int:
        """Where an item of the schema counts."""
        return self._places[item.finding, item.attribute]

    def canonical(self, item: QAItem) -> QAItem:
        """The item with finding and attribute written as the schema has them; upper and lower case are alike.

        Raises:
            ValueError: If the schema has no such finding, or the finding no such attribute, with the nearest one.
        """
        if (item.finding, item.attribute) in self._places:
            return item
        finding = self.schema.finding(item.finding)
        return replace(item, finding=finding.name, attribute=finding.attribute(item.attribute).name)


@lru_cache(maxsize=16)
def question_index(schema: QuestionSchema) -> QuestionIndex:
    """The index of a schema: made once, and not part of a metric's pickle."""
    return QuestionIndex(schema)


def read_items(column: Sequence[Any], index: QuestionIndex, name: str = "items") -> list[tuple[QAItem, ...] | None]:
    """Read each row's questions.

    Args:
        column: For each report a list of :class:`~rrg_rewards.schemas.QAItem` or of mappings with its fields
            (``explanation`` and ``examples`` may be left out), the same as JSON text, or ``None`` where there is none.
        index: The schema that they are of.
        name: The column's name, for messages.

    Raises:
        TypeError: If a row or an item is of another type, by row.
        ValueError: If an item lacks a field or an answer, its finding or attribute is not in the schema, or its answer
            cannot be compared as its type says, by row and number.

    Example:
        >>> from rrg_rewards.schemas import get_question_schema
        >>> row = [{"finding": "lung nodule", "attribute": "size", "question": "What is the nodule's size?",
        ...         "answer": "12 mm", "answer_type": "numeric"}]
        >>> read_items([row, None], QuestionIndex(get_question_schema("ct_rate")))[0][0].finding
        'Lung nodule'
    """
    return [_read_row(f"{name}[{row}]", cell, index) for row, cell in enumerate(column)]


def _read_row(place: str, cell: Any, index: QuestionIndex) -> tuple[QAItem, ...] | None:
    if cell is None or (isinstance(cell, float) and cell != cell):  # NaN, as tables have it for an empty cell
        return None
    if isinstance(cell, str):
        cell = _read_json(place, cell)
    # Tables give lists as arrays, too.
    if isinstance(cell, Mapping) or not isinstance(cell, Iterable):
        raise TypeError(f"{place} must be a list of questions, JSON text of one, or None, got {type(cell).__name__}")
    return tuple(_read_item(f"{place}[{number}]", one, index) for number, one in enumerate(cell))


def _read_json(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # Its own message quotes nothing, but what it refers to is the text.
        raise ValueError(f"{place} is no JSON: {error.msg} at character {error.pos}") from None


def _read_item(place: str, given: Any, index: QuestionIndex) -> QAItem:
    try:
        item = index.canonical(given if isinstance(given, QAItem) else _from_mapping(given))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{place}: {error}") from None
    if not _is_comparable(item.answer, item.answer_type):
        raise ValueError(
            f"{place}: the answer of {item.finding}, {item.attribute}, cannot be compared as {item.answer_type}; a "
            "numeric answer holds a number, with a unit that is known if it has one"
        )
    return item


def _from_mapping(given: Any) -> QAItem:
    if not isinstance(given, Mapping):
        raise TypeError(f"must be a question or a mapping with its fields, got {type(given).__name__}")
    if missing := [name for name in _REQUIRED if given.get(name) is None]:
        raise ValueError(f"lacks {', '.join(missing)}; it has {', '.join(map(str, given)) or 'nothing'}")
    if unknown := [str(name) for name in given if name not in _FIELDS]:
        raise ValueError(unknown_name_message("field", unknown[0], _FIELDS))
    values = {name: value for name, value in given.items() if value is not None}
    examples = values.get("examples", ())
    if isinstance(examples, str):
        examples = [example.strip() for example in examples.split(",")]
    return QAItem(**{**values, "examples": tuple(examples)})


@lru_cache(maxsize=1 << 14)
def _is_comparable(answer: str, answer_type: Any) -> bool:
    """Whether an answer can be compared as its type says; the candidates of a group bring the same ones again."""
    try:
        compare_answers(answer, answer, answer_type)
    except ValueError:
        return False
    return True
