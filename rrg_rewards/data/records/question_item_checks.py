"""Check of a column of question items against a question schema."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from rrg_rewards.data.records.question_items import REQUIRED_FIELDS, item_examples
from rrg_rewards.data.tables.table import is_missing
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.schema import QAItem, QuestionSchema
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["check_question_items"]

_FIELDS = tuple(field.name for field in fields(QAItem))


def check_question_items(
    column: Sequence[Any], schema: QuestionSchema, name: str = "items"
) -> list[tuple[QAItem, ...] | None]:
    """Parse a column of question items and check them against a schema.

    Args:
        column: For each report a list of :class:`~rrg_rewards.questions.schema.QAItem` or of mappings with its fields
            (``explanation`` and ``examples`` are optional), this list as JSON text, or ``None`` if the report has none.
        schema: Question schema of the items.
        name: Name of the column in messages.

    Returns:
        The items of each report. Finding and attribute are spelled as in the schema.

    Raises:
        TypeError: If a row or an item has another type. The message names the row.
        ValueError: If an item lacks a field or an answer, its finding or attribute is not in the schema, or its answer
            cannot be compared by its answer type. The message names the row and the item.

    Example:
        >>> from rrg_rewards.questions import get_question_schema
        >>> row = [{"finding": "lung nodule", "attribute": "size", "question": "What is the nodule's size?",
        ...         "answer": "12 mm", "answer_type": "numeric"}]
        >>> check_question_items([row, None], get_question_schema("ct_rate"))[0][0].finding
        'Lung nodule'
    """
    return [None if is_missing(cell) else _check_row(cell, schema, f"{name}[{row}]") for row, cell in enumerate(column)]


def _check_row(cell: Any, schema: QuestionSchema, where: str) -> tuple[QAItem, ...]:
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except json.JSONDecodeError as error:
            # Do not chain the JSON error, because it contains the text of the cell.
            raise ValueError(f"{where} is not JSON: {error.msg} at character {error.pos}") from None
    # Some readers return lists as arrays.
    if isinstance(cell, Mapping) or not isinstance(cell, Iterable):
        raise TypeError(f"{where} must be a list of questions, JSON text of one, or None, got {type(cell).__name__}")
    return tuple(_check_item(given, schema, f"{where}[{number}]") for number, given in enumerate(cell))


def _check_item(given: Any, schema: QuestionSchema, where: str) -> QAItem:
    try:
        item = given if isinstance(given, QAItem) else _from_mapping(given)
        finding = schema.finding(item.finding)
        names = finding.name, finding.attribute(item.attribute).name
        if names != (item.finding, item.attribute):
            item = replace(item, finding=names[0], attribute=names[1])
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from None
    if not _is_comparable(item.answer, item.answer_type):
        raise ValueError(
            f"{where}: the answer of {item.finding}, {item.attribute}, cannot be compared as {item.answer_type}; a "
            "numeric answer needs a number, and its unit must be known if it has one"
        )
    return item


def _from_mapping(given: Any) -> QAItem:
    if not isinstance(given, Mapping):
        raise TypeError(f"must be a question or a mapping with its fields, got {type(given).__name__}")
    if missing := [name for name in (*REQUIRED_FIELDS, "answer_type") if given.get(name) is None]:
        raise ValueError(f"lacks {', '.join(missing)}; it has {', '.join(map(str, given)) or 'nothing'}")
    if unknown := [str(name) for name in given if name not in _FIELDS]:
        raise ValueError(unknown_name_message("field", unknown[0], _FIELDS))
    values = {name: value for name, value in given.items() if value is not None}
    return QAItem(**{**values, "examples": item_examples(values.get("examples"), "item")})


@lru_cache(maxsize=1 << 14)
def _is_comparable(answer: str, answer_type: Any) -> bool:
    """Whether an answer can be compared by its type. Cached because candidates for one reference share their items."""
    try:
        compare_answers(answer, answer, answer_type)
    except ValueError:
        return False
    return True
