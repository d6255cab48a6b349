"""Encoders that write tables to an open file as CSV, JSON lines or Parquet, batch by batch."""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO

from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.texts import REPLACEMENT, encodable_text

__all__ = ["TableEncoder", "arrow_types", "finite", "json_line", "make_encoder"]


class TableEncoder(ABC):
    """Writes tables with equal column names to a file.

    Args:
        file: The file, open for writing.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._names: tuple[str, ...] | None = None
        self.rows = 0
        """Number of rows that :meth:`write` received."""

    def write(self, table: Table) -> None:
        """Write the rows of a table, all or none of them unless the file cannot be written.

        Raises:
            TableError: If a cell cannot be represented, or the columns differ from those of the first table.
        """
        if self._names not in (None, table.names):
            raise TableError(f"{table.where_all()}: has other columns than the rows before: {', '.join(table.names)}")
        self._write(table, is_first=self._names is None)
        self._names = table.names
        self.rows += len(table)

    def close(self) -> None:
        """Write what follows the last row."""
        self._file.flush()

    @abstractmethod
    def _write(self, table: Table, is_first: bool) -> None:
        """Write the rows of a table, and before the first what precedes the rows."""


def make_encoder(kind: str, file: BinaryIO, delimiter: str, types: Mapping[str, Any]) -> TableEncoder:
    """Make the encoder of a format.

    Args:
        kind: ``csv``, ``jsonl`` or ``parquet``.
        file: The file, open for writing.
        delimiter: Delimiter of CSV.
        types: Arrow types of columns in Parquet.
    """
    if kind == "csv":
        return _CsvEncoder(file, delimiter)
    return _JsonlEncoder(file) if kind == "jsonl" else _ParquetEncoder(file, types)


class _CsvEncoder(TableEncoder):
    def __init__(self, file: BinaryIO, delimiter: str) -> None:
        super().__init__(file)
        self._delimiter = delimiter

    def _write(self, table: Table, is_first: bool) -> None:
        lines = b"".join(self._lines(table))
        self._file.write((self._line(table.names) if is_first else b"") + lines)
        self._file.flush()

    def _lines(self, table: Table) -> Iterator[bytes]:
        for row, cells in enumerate(zip(*table.columns.values(), strict=True)):
            try:
                yield self._line(cells)
            except (TypeError, ValueError) as error:
                raise _unwritable(table, row, "CSV", error) from error

    def _line(self, cells: tuple[Any, ...]) -> bytes:
        # A row with a single missing cell would be a blank line, which readers skip.
        return (self._delimiter.join(map(_csv_text, cells)) or '""').encode() + b"\n"


class _JsonlEncoder(TableEncoder):
    def _write(self, table: Table, is_first: bool) -> None:  # noqa: ARG002 (JSON lines have no header)
        self._file.write(b"".join(self._lines(table)))
        self._file.flush()

    def _lines(self, table: Table) -> Iterator[bytes]:
        for row, cells in enumerate(zip(*table.columns.values(), strict=True)):
            record = finite(dict(zip(table.names, cells, strict=True)))
            try:
                yield json_line(record, default=_plain)
            except (TypeError, ValueError) as error:
                raise _unwritable(table, row, "JSON", error) from error


# Rows are collected up to this size, because each group of rows in a Parquet file is compressed separately.
_GROUP_BYTES = 2**25


class _ParquetEncoder(TableEncoder):
    def __init__(self, file: BinaryIO, types: Mapping[str, Any]) -> None:
        super().__init__(file)
        self._arrow = require("pyarrow", extra="parquet")
        self._parquet = require("pyarrow.parquet", extra="parquet")
        self._types = types
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._writer: Any = None

    def _write(self, table: Table, is_first: bool) -> None:  # noqa: ARG002 (the schema is written with the rows)
        kinds = {**self._types, **table.types}
        arrays = {encodable_text(name): _array(table, name, kinds.get(name)) for name in table.names}
        self._waiting.append(self._arrow.table(arrays))
        self._waiting_bytes += self._waiting[-1].nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        group = self._arrow.concat_tables(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._file, group.schema)
        self._writer.write_table(group)

    def close(self) -> None:
        if self._waiting:
            self._flush()
        if self._writer is not None:
            self._writer.close()


def _array(table: Table, name: str, kind: Any) -> Any:
    arrow = require("pyarrow", extra="parquet")
    try:
        return arrow.array(_encodable(table.columns[name]), type=kind)
    except (arrow.ArrowException, OverflowError, TypeError) as error:
        raise TableError(f"{table.source}, column {name!r}: cannot be written as Parquet: {error}") from error


def arrow_types(table: Table, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Arrow types that represent the cells of several tables.

    Args:
        table: A table.
        known: Types of the tables before, by column.

    Raises:
        TableError: If a column has cells of types that Parquet cannot combine.
        ModuleNotFoundError: Without pyarrow. The message gives the pip command.

    Example:
        >>> types = arrow_types(Table({"age": [66, None], "id": ["a", "b"]}), {})
        >>> {name: str(kind) for name, kind in arrow_types(Table({"age": [66.5], "id": [None]}), types).items()}
        {'age': 'double', 'id': 'string'}
    """
    arrow = require("pyarrow", extra="parquet")
    types = dict(known)
    for name in table.names:
        found = _array(table, name, table.types.get(name)).type
        both = [arrow.schema([("cells", kind)]) for kind in (types.get(name, found), found)]
        try:
            types[name] = arrow.unify_schemas(both, promote_options="permissive").field(0).type
        except arrow.ArrowException as error:
            raise TableError(f"{table.source}, column {name!r}: cannot be written as Parquet: {error}") from error
    return types


def finite(value: Any) -> Any:
    """Replace NaN and infinity by ``None``, also in nested values.

    Args:
        value: A value, or a nest of mappings, lists, tuples and sets.

    Example:
        >>> finite([1.5, float("inf"), {"low": float("nan")}])
        [1.5, None, {'low': None}]
    """
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# The csv module of Python before 3.13 does not quote a carriage return, but reads it as the end of a row. U+FEFF at the
# start of the first cell would be read as a byte order mark. Semicolons and tabs may be taken for delimiters.
_NEEDS_QUOTES = re.compile('[",;\t\r\n\ufeff]')


def _csv_text(cell: Any) -> str:
    if cell is None:
        return ""
    text = cell if isinstance(cell, str) else json_line(cell, default=_plain).decode().strip('"\n')
    text = encodable_text(text).replace("\0", REPLACEMENT)
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def _unwritable(table: Table, row: int, kind: str, error: Exception) -> TableError:
    return TableError(f"{table.where(row)}: cannot be written as {kind}: {error}")


def json_line(value: Any, **options: Any) -> bytes:
    r"""Encode a value as JSON in UTF-8 with a line feed at the end, on one line unless ``indent`` is set.

    Args:
        value: The value.
        options: Options of :func:`json.dumps`.

    Raises:
        TypeError: If the value has no JSON form.
        ValueError: If a number is not finite and ``allow_nan`` is false.

    Example:
        >>> json_line({"report": "5 \u03bcm"}).decode()
        '{"report": "5 μm"}\n'
    """
    try:
        return json.dumps(value, ensure_ascii=False, **options).encode() + b"\n"
    except UnicodeEncodeError:
        # JSON can represent an unpaired surrogate as an escape sequence, but UTF-8 cannot represent it.
        return json.dumps(value, **options).encode() + b"\n"


def _plain(value: Any) -> str:
    """Return the text form of a value that Parquet can represent and JSON cannot."""
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a cell of type {type(value).__name__} has no text form")


def _encodable(cell: Any) -> Any:
    r"""Replace what UTF-8 cannot represent in a text, also in nested ones.

    Example:
        >>> _encodable(["a\ud800", {"b": "c\udfff"}]) == ["a\ufffd", {"b": "c\ufffd"}]
        True
    """
    if isinstance(cell, str):
        return encodable_text(cell)
    if isinstance(cell, Mapping):
        return {_encodable(key): _encodable(value) for key, value in cell.items()}
    return [_encodable(item) for item in cell] if isinstance(cell, list | tuple) else cell
