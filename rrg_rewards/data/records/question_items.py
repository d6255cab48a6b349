"""Question items of reports: a writer, and a check of a column of items against a schema."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.table import Table, TableError, is_missing, parse_json_cell
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.schema import QAItem, QuestionSchema
from rrg_rewards.utilities.names import unknown_name_message

_FIELDS = tuple(one.name for one in fields(QAItem))
# Finding, attribute, question and answer, which each item has.
_REQUIRED_FIELDS = _FIELDS[:4]


@dataclass(frozen=True)
class ReportItems:
    """The question items of one report.

    Args:
        report_id: Name of the report in its data set.
        items: The items. Empty for a report without findings.
        report: The report text, if the data set contains it.

    Example:
        >>> item = QAItem("Atelectasis", "type", "What type of atelectasis is seen?", "linear", "categorical")
        >>> ReportItems("a", (item,)).items[0].answer
        'linear'
    """

    report_id: str
    items: tuple[QAItem, ...]
    report: str | None = None


def write_question_items(
    reports: Iterable[ReportItems],
    path: str | Path,
    table_format_name: str | None = None,
    overwrite: bool = False,
    spreadsheet_safe: bool = False,
) -> None:
    """Write question items, one row per report, with the columns ``report_id``, ``report`` and ``items``.

    The column ``items`` is the context column of ``CTFineBench``; :func:`check_question_items` reads it.

    Args:
        reports: The items of each report.
        path: Path of the file, or ``-`` for standard output. CSV stores lists as JSON text.
        table_format_name: ``csv``, ``jsonl`` or ``parquet``, if the path has another ending.
        overwrite: Whether an existing file may be replaced.
        spreadsheet_safe: As for :func:`~rrg_rewards.data.write_table`.

    Raises:
        TableError: If the file exists and may not be replaced, or the format cannot represent a cell.

    Example:
        >>> item = QAItem("Atelectasis", "type", "What type of atelectasis is seen?", "linear", "categorical")
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "items.jsonl"
        ...     write_question_items([ReportItems("a", (item,), "Linear atelectasis.")], path)
        ...     json.loads(path.read_text())["items"][0]["answer"]
        'linear'
    """
    rows = list(reports)
    columns: dict[str, list[Any]] = {
        "report_id": [row.report_id for row in rows],
        "report": [row.report for row in rows],
        "items": [[{**asdict(item), "examples": list(item.examples)} for item in row.items] for row in rows],
    }
    if all(row.report is None for row in rows):
        del columns["report"]
    write_table(Table(columns), path, table_format_name, overwrite, spreadsheet_safe)


def _examples(cell: Any) -> tuple[str, ...]:
    """Return examples from a list, a list as JSON text, or text separated by commas."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        cell = parse_json_cell(cell, "examples", "list")
    if isinstance(cell, str):
        cell = cell.split(",")
    if isinstance(cell, Mapping) or not isinstance(cell, Iterable):
        raise TableError(f"examples must be a list, got {type(cell).__name__}")
    return tuple(str(example).strip() for example in cell)


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
    if missing := [name for name in (*_REQUIRED_FIELDS, "answer_type") if given.get(name) is None]:
        raise ValueError(f"lacks {', '.join(missing)}; it has {', '.join(map(str, given)) or 'nothing'}")
    if unknown := [str(name) for name in given if name not in _FIELDS]:
        raise ValueError(unknown_name_message("field", unknown[0], _FIELDS))
    values = {name: value for name, value in given.items() if value is not None}
    return QAItem(**{**values, "examples": _examples(values.get("examples", ()))})


@lru_cache(maxsize=1 << 14)
def _is_comparable(answer: str, answer_type: Any) -> bool:
    """Whether an answer can be compared by its type. Cached because candidates for one reference share their items."""
    try:
        compare_answers(answer, answer, answer_type)
    except ValueError:
        return False
    return True
