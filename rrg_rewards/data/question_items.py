"""Question items by report: read from tables and Hub data sets whose columns can be named, and written."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from rrg_rewards.data.readers import read_table
from rrg_rewards.data.tables import Table, TableError
from rrg_rewards.data.writers import write_table
from rrg_rewards.schemas import AnswerType, QAItem
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["ReportItems", "load_question_items", "read_question_items", "write_question_items"]

_NEEDED = ("finding", "attribute", "question", "answer")
_OPTIONAL = ("explanation", "examples")
_COLUMNS = ("report_id", "report", "items", *_NEEDED, "answer_type", *_OPTIONAL)
_EVERY = "*"


@dataclass(frozen=True)
class ReportItems:
    """The questions on one report.

    Args:
        report_id: What its data set calls the report.
        items: The questions; none for a report without a finding.
        report: The report, where the data hold it.
        others: Further columns of its row, as they were read.

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

    Two layouts are known. One row an item: columns ``finding``, ``attribute``, ``question``, ``answer`` and
    ``answer_type``, and ``report_id`` that tells the items of a report, wherever they stand; ``report``,
    ``explanation`` and ``examples`` if there are any. One row a report: a column ``items`` with a list of objects of
    these keys, which CSV holds as JSON, and ``report_id`` and ``report`` if there are any.

    Args:
        path: Path of the table, or ``-`` for standard input.
        columns: What the table calls these columns, or the keys of its objects, where it calls them otherwise:
            ``{"question": "q", "answer": "gold"}``.
        answer_types: Type of the answers by attribute, where there is no column of them; ``*`` stands for all others.
        table_format_name: ``csv``, ``jsonl`` or ``parquet``, where the ending does not tell.

    Returns:
        Reports in the order of their first items.

    Raises:
        TableError: If the table is malformed; if columns are missing, with those it has and how to name them; if an
            item is none, by row.
        ValueError: If ``columns`` names what is no part of an item.
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
    """Read question items from a data set of the Hugging Face Hub, such as ``csyrf/CT-FineBench``, or a local one.

    Nothing of a data set's own code is run. Its layout and column names are the authors': where they are not those of
    :func:`read_question_items`, the error says which there are, and ``columns`` names them.

    Args:
        name: Name on the Hub, or path of a folder.
        columns: As for :func:`read_question_items`.
        split: Split of the data set.
        config: Configuration of the data set, if it has several.
        revision: Branch, tag or commit on the Hub.
        answer_types: As for :func:`read_question_items`.

    Returns:
        Reports in the order of their first items.

    Raises:
        TableError: As :func:`read_question_items`.
        ValueError: If there is no such split or configuration; if ``columns`` names what is no part of an item.
        ModuleNotFoundError: Without the package ``datasets``, naming the pip command.
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
) -> None:
    """Write question items, one row a report, whole or not at all; :func:`read_question_items` reads them again.

    The column ``items`` is what ``CTFineBench`` takes as its context of that name.

    Args:
        reports: The questions by report.
        path: Where to, or ``-`` for standard output; JSON lines keep lists as lists, CSV as JSON text.
        table_format_name: ``csv``, ``jsonl`` or ``parquet``, where the ending does not tell.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: If the file exists and may not be replaced, or the format cannot hold it.

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
    columns: dict[str, list[Any]] = {"report_id": [row.report_id for row in rows]}
    if any(row.report is not None for row in rows):
        columns["report"] = [row.report for row in rows]
    for name in dict.fromkeys(name for row in rows for name in row.others):
        columns[name] = [row.others.get(name) for row in rows]
    columns["items"] = [[{**asdict(item), "examples": list(item.examples)} for item in row.items] for row in rows]
    write_table(Table(columns), path, table_format_name, overwrite)


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
    ids = _cells(table, names["report_id"])
    reports = table.texts(names["report"]) if names["report"] in table.columns else [None] * len(table)
    used = {names["report_id"], names["report"], names["items"]}
    others = [name for name in table.names if name not in used]
    found = []
    for row, (cell, report_id, report) in enumerate(zip(table.column(names["items"]), ids, reports, strict=True)):
        where = f"{table.where(row)}, column {names['items']!r}"
        entries = _listed(cell, where)
        items = tuple(_item(entry, names, types, f"{where}, item {place + 1}") for place, entry in enumerate(entries))
        more = {name: table.columns[name][row] for name in others}
        found.append(ReportItems(str(row + 1) if report_id is None else str(report_id), items, report, more))
    return found


def _by_item(table: Table, names: Mapping[str, str], types: Mapping[str, str]) -> list[ReportItems]:
    needed = ["report_id", *_NEEDED, *([] if types else ["answer_type"])]
    _check_layout(table, [name for name in needed if names[name] not in table.columns])
    cells = {name: _cells(table, column) for name, column in names.items() if name != "items"}
    items: dict[str, list[QAItem]] = {}
    reports: dict[str, str | None] = {}
    for row in range(len(table)):
        where, report_id = table.where(row), cells["report_id"][row]
        if report_id is None:
            raise TableError(f"{where}, column {names['report_id']!r}: is missing; it tells the items of a report")
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
    types = "; for types that no column holds, answer_types={'size': 'numeric', '*': 'categorical'}"
    raise TableError(
        f"{table.source}: holds no question items in a layout that is known: there is no column "
        f"{', '.join(map(repr, missing))} (one row an item), and no column 'items' (one row a report). Columns found: "
        f"{', '.join(map(repr, table.names))}. Say which of them these are: columns={{{example}}}"
        f"{types if 'answer_type' in missing else ''}"
    )


def _cells(table: Table, name: str) -> Sequence[Any]:
    return table.columns.get(name, [None] * len(table))


def _listed(cell: Any, where: str) -> Sequence[Any]:
    """Items of a cell: a list of objects, its JSON, or Arrow's object of lists."""
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except ValueError as error:
            raise TableError(f"{where}: is no JSON list of items: {error}") from None
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
    """One item of an object or row."""
    if not isinstance(record, Mapping):
        raise TableError(f"{where}: must be an object, got {type(record).__name__}")
    missing = [names[name] for name in _NEEDED if names[name] not in record]
    if missing:
        raise TableError(
            f"{where}: lacks {', '.join(map(repr, missing))}; keys found: {', '.join(map(repr, record))}. "
            "Name them in columns, as in columns={'question': '...'}"
        )
    values = {name: record.get(names[name]) for name in (*_NEEDED, "explanation")}
    attribute = str(values["attribute"]).lower()
    kind = record.get(names["answer_type"]) or types.get(attribute) or types.get(_EVERY)
    if kind is None:
        raise TableError(
            f"{where}: no type of the answer to {attribute!r}; name the column of types in columns, or give "
            f"answer_types={{{attribute!r}: 'numeric'}}"
        )
    texts = {name: str(value).strip() for name, value in values.items() if value is not None}
    examples = _examples(record.get(names["examples"]), where)
    try:
        return QAItem(
            finding=texts.get("finding", ""),
            attribute=texts.get("attribute", ""),
            question=texts.get("question", ""),
            answer=texts.get("answer", ""),
            answer_type=cast(AnswerType, str(kind).lower()),
            explanation=texts.get("explanation", ""),
            examples=examples,
        )
    except ValueError as error:
        raise TableError(f"{where}: is no question item: {error}") from None


def _examples(cell: Any, where: str) -> tuple[str, ...]:
    """Examples as a list, as its JSON, or as text that commas part."""
    if cell is None:
        return ()
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        cell = _listed(cell, f"{where}, examples")
    if isinstance(cell, str):
        cell = cell.split(",")
    if not isinstance(cell, Sequence):
        raise TableError(f"{where}: examples must be a list, got {type(cell).__name__}")
    return tuple(str(example).strip() for example in cell)
