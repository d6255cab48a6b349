"""Tables of reports in memory. Error messages name the file, the row and the column."""

import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.texts import PlaceholderWarning, find_placeholders, placeholder_message

STANDARD = "-"
"""Path of standard input and output."""

EMPTY_CELL = "leave a cell empty (CSV) or null (JSON) if its report is missing"
"""What to do about a text such as ``NaN`` in a table."""

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
}
"""Table formats by file ending."""

_PART = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<column>[^{}]+)\}|(?P<text>[^{}]+)")


class TableError(ValueError):
    """Error in a table. The message names the file, the row and the column."""


def table_format(path: str | Path, fallback: str | None = None) -> str:
    """Return the format of a table from the ending of its path.

    Args:
        path: Path of a table, or ``-`` for standard input or output.
        fallback: Format for an unknown ending: ``csv``, ``jsonl`` or ``parquet``. Standard input and output are CSV by
            default.

    Raises:
        TableError: For a folder, or an unknown ending without a fallback.

    Example:
        >>> table_format("reports.JSONL"), table_format("-"), table_format("reports.txt", fallback="csv")
        ('jsonl', 'csv', 'csv')
    """
    if str(path) == STANDARD:
        return fallback or "csv"
    if Path(path).is_dir():
        raise TableError(f"{path}: is a folder; give a table ({', '.join(FORMATS)})")
    ending = Path(path).suffix.lower()
    known = FORMATS.get(ending, fallback)
    if known is None:
        kind = f"the ending {ending!r}" if ending else "no ending"
        raise TableError(
            f"{path}: {kind} does not tell the table's format; use one of {', '.join(FORMATS)} (.json is read, "
            "not written)"
        )
    return known


def check_header(names: Sequence[str], source: str) -> None:
    """Check that no two columns of a file have the same name.

    Raises:
        TableError: With the repeated names.
    """
    if len(set(names)) < len(names):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        raise TableError(f"{source}: the header holds {', '.join(map(repr, twice))} more than once")


@dataclass(frozen=True)
class ColumnTemplate:
    """A template of column names in braces.

    Args:
        sections: For each column, the text before it and its name.
        end: Text after the last column.

    Example:
        >>> template = ColumnTemplate.parse("Findings: {findings} Impression: {impression}")
        >>> template.columns
        ('findings', 'impression')
        >>> template.fill({"findings": "Clear lungs.", "impression": None})
        'Findings: Clear lungs.'
    """

    sections: tuple[tuple[str, str], ...]
    end: str = ""

    @classmethod
    def parse(cls, text: str) -> "ColumnTemplate | None":
        """Parse a template; ``None`` for a text without braces, which is the name of a column.

        Args:
            text: The template. ``{{`` and ``}}`` stand for braces in the text.

        Raises:
            ValueError: If a brace is not closed or not opened, or no column is named.
        """
        if not set("{}") & set(text):
            return None
        sections: list[tuple[str, str]] = []
        before = ""
        place = 0
        while place < len(text):
            part = _PART.match(text, place)
            if part is None:
                raise ValueError(f"has a brace without its counterpart, at {text[place : place + 20]!r}")
            if part["column"] is None:
                before += part["text"] or part["brace"][0]
            else:
                sections.append((before, part["column"]))
                before = ""
            place = part.end()
        if not sections:
            raise ValueError("names no column in braces")
        return cls(tuple(sections), before)

    @property
    def columns(self) -> tuple[str, ...]:
        """The named columns, in order."""
        return tuple(dict.fromkeys(column for _, column in self.sections))

    def __str__(self) -> str:
        def escaped(text: str) -> str:
            return text.replace("{", "{{").replace("}", "}}")

        return "".join(f"{escaped(before)}{{{column}}}" for before, column in self.sections) + escaped(self.end)

    def with_columns(self, names: Mapping[str, str]) -> "ColumnTemplate":
        """Return the template with other names of columns, by the present ones."""
        return ColumnTemplate(tuple((before, names[column]) for before, column in self.sections), self.end)

    def fill(self, texts: Mapping[str, str | None], missing: str | None = None) -> str | None:
        """Return the text of a row.

        Args:
            texts: Text by column; ``None`` for a missing one.
            missing: Text in place of a missing section. Default: a section that is missing or blank is left out
                together with the text before it, and spaces at the ends are removed.

        Returns:
            The text; ``None`` if all sections are left out.
        """
        if missing is not None:
            filled = [before + (missing if (own := texts[column]) is None else own) for before, column in self.sections]
            return "".join(filled) + self.end
        kept = [before + own for before, column in self.sections if (own := texts[column]) is not None and own.strip()]
        if len(kept) == len(self.sections):
            return "".join(kept) + self.end
        return ("".join(kept) + self.end).strip() if kept else None


@dataclass(frozen=True)
class Table:
    """A table in memory: named columns of equal length.

    Args:
        columns: Cells by column name; ``None`` for a missing cell.
        source: Name of the table in messages, usually its path.
        lines: For each row, the line of the file on which it starts, if the format has lines.
        types: Arrow types of columns, or their names. Parquet is written with them; its reader sets them.
        first: Index of the first row in the file, if the table is a batch of its rows.

    Raises:
        TableError: If columns differ in length.

    Example:
        >>> table = Table({"id": ["a", "b"], "report": ["Normal.", None]}, source="reports.csv", lines=(2, 3))
        >>> len(table), table.names, table.where(1)
        (2, ('id', 'report'), 'reports.csv: data row 2 (line 3)')
    """

    columns: Mapping[str, Sequence[Any]]
    source: str = "table"
    lines: Sequence[int] | None = None
    types: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0

    def __post_init__(self) -> None:
        lengths = {name: len(cells) for name, cells in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise TableError(f"{self.source}: columns must have the same length, got {lengths}")

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]], names: Iterable[str] = (), **fields: Any) -> "Table":
        """Make a table from records, one per row. A key that a record lacks is a missing cell.

        Args:
            records: Cells by column name.
            names: Names of the first columns. A column that no record contains has only missing cells. The other
                columns follow in the order of the records.
            fields: Other fields of the table, such as ``source`` and ``lines``.

        Example:
            >>> Table.from_records([{"id": 1}, {"id": 2, "report": "Normal."}]).columns
            {'id': [1, 2], 'report': [None, 'Normal.']}
        """
        rows = list(records)
        names = dict.fromkeys((*names, *(name for row in rows for name in row)))
        return cls({name: [row.get(name) for row in rows] for name in names}, **fields)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(self.columns)

    def where(self, row: int) -> str:
        """Return the location of a row for messages: its number from 1 and its line. ``row`` is an index from 0."""
        line = "" if self.lines is None else f" (line {self.lines[row]})"
        return f"{self.source}: data row {self.first + row + 1}{line}"

    def where_all(self) -> str:
        """Return the location of all rows for messages.

        Example:
            >>> Table({"id": ["a", "b"]}, source="reports.csv", first=256).where_all()
            'reports.csv: data rows 257 to 258'
        """
        return f"{self.source}: data rows {self.first + 1} to {self.first + len(self)}"

    def batches(self, rows: int) -> "Iterator[Table]":
        """Yield the rows in tables of at most ``rows``; at least one table, which may have no rows.

        Example:
            >>> [(part.columns["id"], part.first) for part in Table({"id": ["a", "b", "c"]}).batches(2)]
            [(['a', 'b'], 0), (['c'], 2)]
        """
        for start in range(0, max(1, len(self)), rows):
            part = slice(start, start + rows)
            lines = None if self.lines is None else self.lines[part]
            columns = {name: cells[part] for name, cells in self.columns.items()}
            yield replace(self, columns=columns, lines=lines, first=self.first + start)

    def column(self, name: str) -> Sequence[Any]:
        """Return the cells of one column.

        Raises:
            TableError: If the column does not exist. The message suggests the nearest name and lists all names.

        Example:
            >>> Table({"report": ["Normal."]}, source="reports.csv").column("reports")
            Traceback (most recent call last):
            ...
            rrg_rewards.data.tables.table.TableError: reports.csv: unknown column 'reports'; did you mean 'report'?
            Known: report
        """
        if name not in self.columns:
            raise TableError(f"{self.source}: {unknown_name_message('column', name, self.columns)}")
        return self.columns[name]

    def values(self, name: str) -> list[Any]:
        """Return the cells of one column, ``None`` for a missing cell.

        Raises:
            TableError: If the column does not exist.

        Example:
            >>> Table({"age": [66.0, float("nan")]}).values("age")
            [66.0, None]
        """
        return [None if is_missing(cell) else cell for cell in self.column(name)]

    def optional(self, name: str) -> Sequence[Any]:
        """Return the cells of one column, all missing if the column does not exist."""
        return self.columns.get(name, [None] * len(self))

    def optional_texts(self, name: str) -> list[str | None]:
        """Return the :meth:`texts` of one column, all missing if the column does not exist."""
        return self.texts(name) if name in self.columns else [None] * len(self)

    def text_columns(self, name: str) -> tuple[str, ...]:
        """Return the columns of a name or template of :meth:`texts`: the column itself, or those in braces.

        Raises:
            TableError: If a column does not exist, or the template is malformed.

        Example:
            >>> Table({"findings": [], "impression": []}).text_columns("{findings} Impression: {impression}")
            ('findings', 'impression')
        """
        template = self._template(name)
        return (name,) if template is None else template.columns

    def check_named(self, setting: str, *names: str) -> None:
        """Check that the table has the columns, or those of the templates, that a setting names.

        Raises:
            TableError: If one does not exist. The message names the setting, because the name may be its default.
        """
        try:
            for name in names:
                self.text_columns(name)
        except TableError as error:
            raise TableError(f"{error}. `{setting}` names the column") from error

    def has_texts(self, name: str) -> bool:
        """Whether the table has the column of a name of :meth:`texts`, or all columns of a template."""
        try:
            return bool(self.text_columns(name))
        except TableError:
            return False

    def renamed_texts(self, name: str, renamed: Callable[[str], str]) -> str:
        """Return a name or template of :meth:`texts` for a table that has the columns under other names.

        Raises:
            TableError: If a column does not exist, or the template is malformed.

        Example:
            >>> Table({"findings": [], "impression": []}).renamed_texts("{findings} {impression}", str.upper)
            '{FINDINGS} {IMPRESSION}'
        """
        template = self._template(name)
        if template is None:
            return renamed(name)
        return str(template.with_columns({column: renamed(column) for column in template.columns}))

    def _template(self, name: str) -> ColumnTemplate | None:
        """Return the template of a name; ``None`` for the name of a column. All its columns exist."""
        if name in self.columns:
            return None
        try:
            template = ColumnTemplate.parse(name)
        except ValueError as error:
            raise TableError(
                f"{self.source}: no column has the name {name!r}, and as a template of columns it {error}; a template "
                "is written as in 'Findings: {findings} Impression: {impression}', with {{ and }} for braces"
            ) from error
        for column in (name,) if template is None else template.columns:
            self.column(column)
        return template

    def texts(self, name: str, missing_section: str | None = None) -> list[str | None]:
        """Return the report texts of one column, or of several that a template joins; ``None`` for a missing report.

        In JSONL and Parquet, null and NaN (written by pandas) are missing reports, and empty text is a text. In CSV an
        empty cell is a missing report. The texts ``NaN``, ``None``, ``null``, ``N/A`` and ``<NA>`` are texts, with a
        :class:`~rrg_rewards.utilities.texts.PlaceholderWarning`.

        Args:
            name: Name of a column, or a template such as ``Findings: {findings} Impression: {impression}``. A column
                with exactly this name is preferred. ``{{`` and ``}}`` stand for braces.
            missing_section: Text in place of a missing cell of a template. Default: a section that is missing or blank
                is left out with the text before it, and a report without any section is missing.

        Raises:
            TableError: If a column does not exist, the template is malformed, or a cell is not a text. The message
                names the row.

        Example:
            >>> Table({"report": ["Normal.", "", None, float("nan")]}).texts("report")
            ['Normal.', '', None, None]
            >>> sections = Table({"findings": ["Clear.", None], "impression": ["Normal.", "Nodule."]})
            >>> sections.texts("Findings: {findings} Impression: {impression}")
            ['Findings: Clear. Impression: Normal.', 'Impression: Nodule.']
        """
        template = self._template(name)
        if template is None:
            return self._column_texts(name)
        columns = {column: self._column_texts(column) for column in template.columns}
        rows = zip(*columns.values(), strict=True)
        return [template.fill(dict(zip(columns, row, strict=True)), missing_section) for row in rows]

    def _column_texts(self, name: str) -> list[str | None]:
        texts: list[str | None] = []
        for row, cell in enumerate(self.column(name)):
            if is_missing(cell):
                texts.append(None)
            elif isinstance(cell, str):
                texts.append(cell)
            else:
                raise TableError(
                    f"{self.where(row)}, column {name!r}: must be a report text, got {type(cell).__name__} {cell!r}"
                )
        self.warn_of_placeholders(name)
        return texts

    def warn_of_placeholders(self, name: str) -> None:
        """Warn if a column has texts such as ``NaN``, which stand for a missing report.

        Raises:
            TableError: If the column does not exist.
        """
        texts = [cell for cell in self.column(name) if isinstance(cell, str)]
        if words := find_placeholders(texts):
            where = f"column {name!r} of {self.source}"
            message = placeholder_message(where, len(words), len(self), words[0], EMPTY_CELL)
            warnings.warn(message, PlaceholderWarning, stacklevel=4)

    def required_texts(self, name: str, missing_section: str | None = None) -> list[str]:
        """Return the report texts of a column or template without missing reports.

        Raises:
            TableError: As :meth:`texts`, and if a report is missing. The message names the row.

        Example:
            >>> Table({"report": ["Normal.", None]}, source="reports.jsonl").required_texts("report")
            Traceback (most recent call last):
            ...
            rrg_rewards...TableError: reports.jsonl: data row 2, column 'report': is missing; leave the row
            out
        """
        texts: list[str] = []
        for row, text in enumerate(self.texts(name, missing_section)):
            if text is None:
                raise TableError(f"{self.where(row)}, column {name!r}: is missing; leave the row out")
            texts.append(text)
        return texts

    def numbers(self, name: str) -> list[float]:
        """Return the numbers of one column, NaN for a missing cell. Cells may be numbers or their text.

        Raises:
            TableError: If the column does not exist, or a cell is not a finite number. The message names the row.

        Example:
            >>> Table({"rating": ["3", 4, None]}).numbers("rating")
            [3.0, 4.0, nan]
        """
        return [self._number(row, name, cell) for row, cell in enumerate(self.column(name))]

    def _number(self, row: int, name: str, cell: Any) -> float:
        if is_missing(cell):
            return math.nan
        try:
            value = float(cell)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise TableError(
                f"{self.where(row)}, column {name!r}: must be a finite number, got {cell!r}; leave it empty if there "
                "is no value"
            )
        return value

    def row_by_name(self, name: str) -> dict[str, int]:
        """Return the row of each name in a column of names, such as those of studies.

        Raises:
            TableError: If the column does not exist, or a name is missing or repeated. The message names the rows.

        Example:
            >>> Table({"study": ["a", 2]}).row_by_name("study")
            {'a': 0, '2': 1}
        """
        rows: dict[str, int] = {}
        for row, cell in enumerate(self.column(name)):
            if is_missing(cell):
                raise TableError(f"{self.where(row)}, column {name!r}: is empty; each row needs a name")
            if str(cell) in rows:
                raise TableError(
                    f"{self.where(row)}, column {name!r}: {cell!r} is also in {self.where(rows[str(cell)])}; each name "
                    "must have one row"
                )
            rows[str(cell)] = row
        return rows

    def labels(self, names: Sequence[str]) -> list[tuple[int, ...] | None]:
        """Return rows of 0/1 labels from several columns, ``None`` for a row without any label.

        Args:
            names: Names of the columns, one for each label. Cells may be 0, 1, false or true, as values or text.

        Raises:
            TableError: If a column does not exist, or a cell is not a label. The message names row and column.

        Example:
            >>> Table({"Edema": ["1", None], "Fracture": ["0", None]}).labels(["Edema", "Fracture"])
            [(1, 0), None]
        """
        columns = [self.column(name) for name in names]
        rows: list[tuple[int, ...] | None] = []
        for row, cells in enumerate(zip(*columns, strict=True)):
            if all(map(is_missing, cells)):
                rows.append(None)
            else:
                rows.append(tuple(self._label(row, name, cell) for name, cell in zip(names, cells, strict=True)))
        return rows

    def _label(self, row: int, name: str, cell: Any) -> int:
        label = _LABELS.get(cell.strip().lower() if isinstance(cell, str) else str(cell).lower())
        if label is None:
            raise TableError(
                f"{self.where(row)}, column {name!r}: must be a label of 0 or 1, got {cell!r}; map uncertain and "
                "missing labels first"
            )
        return label

    def with_columns(self, columns: Mapping[str, Sequence[Any]]) -> "Table":
        """Add columns at the end. An existing column is replaced and keeps its position.

        Example:
            >>> Table({"id": ["a"], "crg": ["0"]}).with_columns({"crg": [0.5], "recall": [1.0]}).columns
            {'id': ['a'], 'crg': [0.5], 'recall': [1.0]}
        """
        types = {name: kind for name, kind in self.types.items() if name not in columns}
        return replace(self, columns={**self.columns, **columns}, types=types)


def is_missing(cell: Any) -> bool:
    """Whether a cell is missing: ``None`` or NaN."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


_LABELS = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}


def parse_json_cell(cell: Any, where: str, kind: str) -> Any:
    """Parse a text cell as JSON, which CSV uses for lists and objects. Return any other cell unchanged.

    Args:
        cell: The cell.
        where: Location of the cell, for messages.
        kind: Description of the expected value for messages, such as ``list of items``.

    Raises:
        TableError: If the text is not JSON.

    Example:
        >>> parse_json_cell("[1, 2]", "items.csv: data row 1", "list"), parse_json_cell([3], "", "list")
        ([1, 2], [3])
    """
    if not isinstance(cell, str):
        return cell
    try:
        return json.loads(cell)
    except ValueError as error:
        raise TableError(f"{where}: is no JSON {kind}: {error}") from None
