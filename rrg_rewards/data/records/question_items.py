"""Question items of reports: readers of tables and Hugging Face data sets, a writer, and a check against a schema."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from rrg_rewards.data.tables.readers import read_table
from rrg_rewards.data.tables.table import Table, TableError, is_missing, parse_json_cell
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.questions.grading import compare_answers
from rrg_rewards.questions.schema import AnswerType, QAItem, QuestionSchema
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

_FIELDS = tuple(field.name for field in fields(QAItem))
# Finding, attribute, question and answer, which each item has.
_REQUIRED_FIELDS = _FIELDS[:4]
_COLUMNS = ("report_id", "report", "items", *_FIELDS)


@dataclass(frozen=True)
class ReportItems:
    """The question items of one report.

    Args:
        report_id: Name of the report in its data set.
        items: The items. Empty for a report without findings.
        report: The report text, if the data set contains it.
        others: Cells of the other columns, by column name.

    Example:
        >>> item = QAItem("Atelectasis", "type", "What type of atelectasis is seen?", "linear", "categorical")
        >>> ReportItems("a", (item,)).items[0].answer
        'linear'
    """

    report_id: str
    items: tuple[QAItem, ...]
    report: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict)


def read_question_items(
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    answer_types: Mapping[str, str] | None = None,
    table_format_name: str | None = None,
) -> list[ReportItems]:
    r"""Read question items from JSON lines, Parquet or CSV.

    The table has one of two layouts. With one row per item, its columns are ``finding``, ``attribute``, ``question``,
    ``answer``, ``answer_type`` and ``report_id``, which groups the items of a report; ``report``, ``explanation`` and
    ``examples`` are optional. With one row per report, the column ``items`` contains a list of objects with these keys
    (JSON text in CSV); ``report_id`` and ``report`` are optional.

    Args:
        path: Path of the table, or ``-`` for standard input.
        columns: The table's names of these columns or keys, if they differ: ``{"question": "q", "answer": "gold"}``.
        answer_types: Answer types by attribute, if no column contains them. ``*`` applies to all other attributes.
        table_format_name: ``csv``, ``jsonl`` or ``parquet``, if the path has another ending.

    Returns:
        Reports in the order of their first items.

    Raises:
        TableError: If the table is malformed, columns are missing, or an item is invalid. The message lists the
            existing columns, or names the row of the item.
        ValueError: If a key of ``columns`` is not one of the names above.
        OSError: If the file cannot be read.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "items.csv"
        ...     _ = path.write_text("id,finding,attribute,q,a\n7,Lung nodule,size,How large is the nodule?,12 mm\n")
        ...     names = {"report_id": "id", "question": "q", "answer": "a"}
        ...     read_question_items(path, names, answer_types={"size": "numeric"})[0].items[0].answer
        '12 mm'
    """
    return _from_table(read_table(path, table_format_name), columns, answer_types)


def load_question_items(
    name: str,
    columns: Mapping[str, str] | None = None,
    *,
    split: str = "test",
    config: str | None = None,
    revision: str | None = None,
    answer_types: Mapping[str, str] | None = None,
) -> list[ReportItems]:
    """Read question items from a local data set or a data set on the Hugging Face Hub.

    The JSON files of CT-FineBench, ``csyrf/CT-FineBench``, are read by :func:`read_released_questions`, after their
    download. No code of the data set is executed. If its columns differ from those of :func:`read_question_items`, the
    error message lists them, so that you can pass ``columns``.

    Args:
        name: Name on the Hub, or the path of a local folder.
        columns: As for :func:`read_question_items`.
        split: Split of the data set.
        config: Configuration of the data set, if it has several.
        revision: Branch, tag or commit on the Hub.
        answer_types: As for :func:`read_question_items`.

    Returns:
        Reports in the order of their first items.

    Raises:
        TableError: As :func:`read_question_items`.
        ValueError: If the split or the configuration does not exist, or a key of ``columns`` is unknown.
        ModuleNotFoundError: Without the package ``datasets``. The message gives the pip command.
    """
    datasets = require("datasets", extra="trl")
    loaded = datasets.load_dataset(name, config, split=split, revision=revision)
    table = Table({column: list(loaded[column]) for column in loaded.column_names}, f"{name} ({split})")
    return _from_table(table, columns, answer_types)


def write_question_items(
    reports: Iterable[ReportItems],
    path: str | Path,
    table_format_name: str | None = None,
    overwrite: bool = False,
    spreadsheet_safe: bool = False,
) -> None:
    """Write question items for :func:`read_question_items`, one row per report.

    The column ``items`` can be passed to ``CTFineBench`` as its context column ``items``.

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
        ...     read_question_items(path) == [ReportItems("a", (item,), "Linear atelectasis.")]
        True
    """
    rows = list(reports)
    others = dict.fromkeys(name for row in rows for name in row.others)
    names = ["report_id", *(["report"] if any(row.report is not None for row in rows) else []), *others, "items"]
    records = (
        {
            "report_id": row.report_id,
            "report": row.report,
            **row.others,
            "items": [{**asdict(item), "examples": list(item.examples)} for item in row.items],
        }
        for row in rows
    )
    table = Table.from_records(({name: record.get(name) for name in names} for record in records), names)
    write_table(table, path, table_format_name, overwrite, spreadsheet_safe)


def _from_table(
    table: Table, columns: Mapping[str, str] | None, answer_types: Mapping[str, str] | None
) -> list[ReportItems]:
    names = {name: name for name in _COLUMNS}
    for name, column in (columns or {}).items():
        if name not in names:
            raise ValueError(unknown_name_message("part of an item in columns", name, _COLUMNS))
        names[name] = column
    types = {name.lower(): kind for name, kind in (answer_types or {}).items()}
    if names["items"] in table.columns:
        return _by_report(table, names, types)
    return _by_item(table, names, types)


def _by_report(table: Table, names: Mapping[str, str], types: Mapping[str, str]) -> list[ReportItems]:
    ids, reports = table.optional(names["report_id"]), table.optional_texts(names["report"])
    others = [name for name in table.names if name not in {names[key] for key in ("report_id", "report", "items")}]
    found = []
    for row, (cell, report_id, report) in enumerate(zip(table.column(names["items"]), ids, reports, strict=True)):
        where = f"{table.where(row)}, column {names['items']!r}"
        entries = _listed(cell, where)
        items = tuple(_item(entry, names, types, f"{where}, item {i}") for i, entry in enumerate(entries, start=1))
        more = {name: table.columns[name][row] for name in others}
        found.append(ReportItems(str(row + 1) if report_id is None else str(report_id), items, report, more))
    return found


def _by_item(table: Table, names: Mapping[str, str], types: Mapping[str, str]) -> list[ReportItems]:
    needed = ["report_id", *_REQUIRED_FIELDS, *([] if types else ["answer_type"])]
    _check_layout(table, [name for name in needed if names[name] not in table.columns])
    cells = {name: table.optional(column) for name, column in names.items() if name != "items"}
    items: dict[str, list[QAItem]] = {}
    reports: dict[str, str | None] = {}
    for row in range(len(table)):
        where, report_id = table.where(row), cells["report_id"][row]
        if report_id is None:
            raise TableError(f"{where}, column {names['report_id']!r}: is missing; it groups the items of a report")
        record = {names[name]: column[row] for name, column in cells.items()}
        items.setdefault(str(report_id), []).append(_item(record, names, types, where))
        report = cells["report"][row]
        if reports.setdefault(str(report_id), report) != report:
            raise TableError(f"{where}, column {names['report']!r}: another report of the same {names['report_id']!r}")
    return [ReportItems(report_id, tuple(found), reports[report_id]) for report_id, found in items.items()]


def _check_layout(table: Table, missing: Sequence[str]) -> None:
    if not missing:
        return
    example = ", ".join(f"{name!r}: '...'" for name in missing)
    types = "; without a column of types, answer_types={'size': 'numeric', '*': 'categorical'}"
    raise TableError(
        f"{table.source}: has no question items in a known layout: there is no column {', '.join(map(repr, missing))} "
        "(one row per item), and no column 'items' (one row per report). Columns found: "
        f"{', '.join(map(repr, table.names))}. Name the missing ones: columns={{{example}}}"
        f"{types if 'answer_type' in missing else ''}"
    )


def _listed(cell: Any, where: str) -> Sequence[Any]:
    """Return the items of a cell: a list of objects, this list as JSON text, or an object of lists (Arrow)."""
    cell = parse_json_cell(cell, where, "list of items")
    if cell is None:
        return []
    if isinstance(cell, Mapping) and cell and all(isinstance(values, list) for values in cell.values()):
        lengths = {name: len(values) for name, values in cell.items()}
        if len(set(lengths.values())) > 1:
            raise TableError(f"{where}: lists must have the same length, got {lengths}")
        return [dict(zip(cell, values, strict=True)) for values in zip(*cell.values(), strict=True)]
    if not isinstance(cell, Sequence):
        raise TableError(f"{where}: must be a list of items, got {type(cell).__name__}")
    return cell


def _item(record: Any, names: Mapping[str, str], types: Mapping[str, str], where: str) -> QAItem:
    """Return the item that an object or a row describes."""
    if not isinstance(record, Mapping):
        raise TableError(f"{where}: must be an object, got {type(record).__name__}")
    missing = [names[name] for name in _REQUIRED_FIELDS if names[name] not in record]
    if missing:
        raise TableError(
            f"{where}: lacks {', '.join(map(repr, missing))}; keys found: {', '.join(map(repr, record))}. "
            "Name them in columns, as in columns={'question': '...'}"
        )
    values = {name: record.get(names[name]) for name in (*_REQUIRED_FIELDS, "explanation")}
    attribute = str(values["attribute"]).lower()
    kind = record.get(names["answer_type"]) or types.get(attribute) or types.get("*")
    if kind is None:
        raise TableError(
            f"{where}: no type of the answer to {attribute!r}; name the column of types in columns, or pass "
            f"answer_types={{{attribute!r}: 'numeric'}}"
        )
    texts = {name: "" if value is None else str(value).strip() for name, value in values.items()}
    examples = _item_examples(record.get(names["examples"]), where)
    try:
        return QAItem(answer_type=cast(AnswerType, str(kind).lower()), examples=examples, **texts)
    except ValueError as error:
        raise TableError(f"{where}: is no question item: {error}") from None


def _item_examples(cell: Any, where: str) -> tuple[str, ...]:
    """Return examples from a list, a list as JSON text, or text separated by commas."""
    if cell is None:
        return ()
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        cell = _listed(cell, f"{where}, examples")
    if isinstance(cell, str):
        cell = cell.split(",")
    if isinstance(cell, Mapping) or not isinstance(cell, Iterable):
        raise TableError(f"{where}: examples must be a list, got {type(cell).__name__}")
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
    return QAItem(**{**values, "examples": _item_examples(values.get("examples"), "item")})


@lru_cache(maxsize=1 << 14)
def _is_comparable(answer: str, answer_type: Any) -> bool:
    """Whether an answer can be compared by its type. Cached because candidates for one reference share their items."""
    try:
        compare_answers(answer, answer, answer_type)
    except ValueError:
        return False
    return True
