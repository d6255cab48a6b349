"""Readers of CSV, JSON lines and Parquet tables."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.table import STANDARD, Table, TableError, table_format
from rrg_rewards.utilities.imports import require

__all__ = ["parse_jsonl", "read_table"]

_DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab"}


def read_table(path: str | Path, table_format_name: str | None = None, delimiter: str | None = None) -> Table:
    r"""Read and check a whole table.

    CSV is quoted with double quotes and encoded in UTF-8, with or without a byte order mark. Its cells are text, also
    ``NaN`` and ``none``; an empty cell is missing, and blank lines are skipped. It is separated by commas, or by
    semicolons or tabs if its header contains these and no comma. JSON lines have one object per line. Its keys
    are the columns. A key that an object lacks is a missing cell. Parquet needs the extra ``parquet``.

    Args:
        path: Path of the table, or ``-`` for standard input.
        table_format_name: ``csv``, ``jsonl`` or ``parquet``, if the path has another ending. Default for standard
            input: ``csv``.
        delimiter: Character that separates the cells of a CSV table, instead of the detected one.

    Raises:
        TableError: If the file is malformed. The message names the line and the row.
        OSError: If the file cannot be read.
        ModuleNotFoundError: For Parquet without pyarrow. The message gives the pip command.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "reports.csv"
        ...     _ = path.write_text('id,report\n1,"Small, clear ""nodule""."\n2,\n')
        ...     read_table(path).columns
        {'id': ['1', '2'], 'report': ['Small, clear "nodule".', None]}
    """
    readers: Mapping[str, Callable[[bytes, str], Table]]
    readers = {"csv": partial(_read_csv, delimiter=delimiter), "jsonl": parse_jsonl, "parquet": _read_parquet}
    read = readers[table_format(path, table_format_name)]
    if str(path) == STANDARD:
        return read(sys.stdin.buffer.read(), "standard input")
    if not Path(path).exists():
        raise TableError(f"{path}: no such file")
    if Path(path).is_dir():
        raise TableError(f"{path}: is a folder, not a table")
    return read(Path(path).read_bytes(), str(path))


def _decode(data: bytes, source: str, first_line: int = 1) -> str:
    """Decode UTF-8. The error message names the position of the first invalid byte."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise TableError(
            f"{source}: line {line}, byte {error.start} of the {'file' if first_line == 1 else 'line'}: not UTF-8 "
            f"(0x{data[error.start]:02x}); save it as UTF-8, for example with iconv -f WINDOWS-1252 -t UTF-8 "
            "(or -f UTF-16)"
        ) from error
    if "\0" in text:
        line = first_line + text.count("\n", 0, text.index("\0"))
        raise TableError(f"{source}: line {line}: holds a NUL byte; the file is damaged, binary or UTF-16")
    return text


@contextmanager
def _cells_up_to(size: int) -> Iterator[None]:
    """Raise the limit of the csv module for the characters of a cell. The limit applies to the whole process."""
    before = csv.field_size_limit()
    csv.field_size_limit(max(before, size))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _detected_delimiter(text: str) -> str:
    """Return the delimiter of a CSV text by its header: a comma, unless there is none but semicolons or tabs."""
    header = text.lstrip("\r\n").partition("\n")[0]
    outside = "".join(header.split('"')[::2])
    found = [mark for mark in (",", ";", "\t") if mark in outside]
    return found[0] if found else ","


def _csv_records(text: str, source: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each record of a CSV text starts, and its cells. Blank lines are skipped."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    with _cells_up_to(len(text)):
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise TableError(
                    f"{source}: line {reader.line_num}: {error}, in the row that starts on line {line}; is a quote "
                    "opened and not closed, or not doubled?"
                ) from error
            if cells:
                yield line, cells


def _check_header(header: Sequence[str], source: str) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise TableError(f"{source}: the header holds {', '.join(map(repr, twice))} more than once")


def _read_csv(data: bytes, source: str, delimiter: str | None = None) -> Table:
    text = _decode(data, source).removeprefix("\ufeff")
    delimiter = delimiter or _detected_delimiter(text)
    records = _csv_records(text, source, delimiter)
    header = next(records, (0, None))[1]
    if header is None:
        raise TableError(f"{source}: is empty; a table has a header line at least")
    _check_header(header, source)
    rows: list[list[str]] = []
    lines: list[int] = []
    for line, cells in records:
        if len(cells) != len(header):
            raise TableError(
                f"{source}: data row {len(rows) + 1} (line {line}): has {len(cells)} cells where the header has "
                f"{len(header)} columns; text that holds {_DELIMITERS.get(delimiter, repr(delimiter))} or a line break "
                "needs double quotes"
            )
        rows.append(cells)
        lines.append(line)
    columns = {name: [cells[index] or None for cells in rows] for index, name in enumerate(header)}
    return Table(columns, source, tuple(lines), delimiter=delimiter)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands more than once")
    return record


def _json_record(text: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(text, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{where}: not a line of JSON: {error}") from error
    if not isinstance(record, dict):
        raise TableError(f"{where}: must be a JSON object, as in {{'report': '...'}}, got {type(record).__name__}")
    return record


def parse_jsonl(data: bytes, source: str) -> Table:
    r"""Parse the content of a JSON lines file as a table.

    Args:
        data: The content.
        source: Name of the file in messages.

    Raises:
        TableError: As :func:`read_table`.

    Example:
        >>> parse_jsonl(b'{"id": 1}\n{"id": 2}\n', "answers").columns
        {'id': [1, 2]}
    """
    records: list[dict[str, Any]] = []
    lines: list[int] = []
    # Split at line feeds only: str.splitlines would also split a report at a Unicode line separator.
    for line, raw in zip(count(1), data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), strict=False):
        if raw.strip():
            where = f"{source}: data row {len(records) + 1} (line {line})"
            records.append(_json_record(_decode(raw, source, first_line=line), where))
            lines.append(line)
    if not records:
        raise TableError(f"{source}: is empty; JSON lines hold one object a row")
    return Table.from_records(records, source=source, lines=tuple(lines))


def _read_parquet(data: bytes, source: str) -> Table:
    arrow = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    try:
        table = parquet.read_table(arrow.BufferReader(data))
        _check_header(table.column_names, source)
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
    except TableError:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise TableError(f"{source}: not a readable Parquet file: {error}") from error
    return Table(columns, source, types={name: table.schema.field(name).type for name in columns})
