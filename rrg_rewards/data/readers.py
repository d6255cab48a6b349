"""Tables from CSV, JSON lines and Parquet files."""

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables import STANDARD, Table, TableError, table_format
from rrg_rewards.utilities.imports import require

__all__ = ["parse_jsonl", "read_table"]


def read_table(path: str | Path, table_format_name: str | None = None) -> Table:
    r"""Read a table; all of it is checked before any of it is used.

    CSV (comma, double quotes, UTF-8 with or without a byte order mark): cells are text, and an empty cell is a missing
    one. Blank lines are skipped. JSON lines: one object a line; its keys are columns, and a key that a line lacks is a
    missing cell. Parquet: needs the extra ``parquet``.

    Args:
        path: Path of the table, or ``-`` for standard input.
        table_format_name: ``csv``, ``jsonl`` or ``parquet``, where the ending does not tell; standard input is CSV by
            default.

    Raises:
        TableError: If the file is malformed, naming its line and row.
        OSError: If the file cannot be read.
        ModuleNotFoundError: For Parquet without pyarrow, naming the pip command.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "reports.csv"
        ...     _ = path.write_text('id,report\n1,"Small, clear ""nodule""."\n2,\n')
        ...     read_table(path).columns
        {'id': ['1', '2'], 'report': ['Small, clear "nodule".', None]}
    """
    read = {"csv": _read_csv, "jsonl": parse_jsonl, "parquet": _read_parquet}[table_format(path, table_format_name)]
    if str(path) == STANDARD:
        return read(sys.stdin.buffer.read(), "standard input")
    if not Path(path).exists():
        raise TableError(f"{path}: no such file")
    if Path(path).is_dir():
        raise TableError(f"{path}: is a folder, not a table")
    return read(Path(path).read_bytes(), str(path))


def _decode(data: bytes, source: str, first_line: int = 1) -> str:
    """Decode UTF-8 or say where it stops being that and what to do."""
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
    """Let the csv module read cells of ``size`` characters; its limit is one of the whole process."""
    before = csv.field_size_limit()
    csv.field_size_limit(max(before, size))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _csv_records(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """Records of a CSV text with the line each starts on, blank lines left out."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
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


def _read_csv(data: bytes, source: str) -> Table:
    records = _csv_records(_decode(data, source).removeprefix("\ufeff"), source)
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
                f"{len(header)} columns; text that holds a comma or a line break needs double quotes"
            )
        rows.append(cells)
        lines.append(line)
    columns = {name: [cells[index] or None for cells in rows] for index, name in enumerate(header)}
    return Table(columns, source, tuple(lines))


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
    r"""Read a table from the content of a file of JSON lines.

    Args:
        data: The content.
        source: What messages call it.

    Raises:
        TableError: As :func:`read_table`.

    Example:
        >>> parse_jsonl(b'{"id": 1}\n{"id": 2}\n', "answers").columns
        {'id': [1, 2]}
    """
    records: list[dict[str, Any]] = []
    lines: list[int] = []
    # Split on the line feed alone: str.splitlines would also cut a report at a Unicode line separator.
    for line, raw in zip(count(1), data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), strict=False):
        if raw.strip():
            where = f"{source}: data row {len(records) + 1} (line {line})"
            records.append(_json_record(_decode(raw, source, first_line=line), where))
            lines.append(line)
    if not records:
        raise TableError(f"{source}: is empty; JSON lines hold one object a row")
    names = dict.fromkeys(name for record in records for name in record)
    return Table({name: [record.get(name) for record in records] for name in names}, source, tuple(lines))


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
