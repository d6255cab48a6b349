"""Read tables from files and from standard input, at once or in batches of rows."""

import csv
import io
import json
import pickle
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date, datetime, time
from io import SEEK_END, BytesIO
from itertools import chain, count, islice
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, BinaryIO

from rrg_rewards.data.tables.json_documents import parse_json, unique_keys
from rrg_rewards.data.tables.table import STANDARD, Table, TableError, check_header, table_format
from rrg_rewards.utilities.files import note_input
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.names import unknown_name_message

_DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab"}
# Without a limit, a quote that is not closed, or a file without line feeds, would be read into memory as one cell.
_MOST_BYTES = 2**26


def read_table(path: str | Path, table_format_name: str | None = None) -> Table:
    r"""Read and check a whole table.

    CSV is quoted with double quotes and encoded in UTF-8, with or without a byte order mark. Its cells are text, also
    ``NaN`` and ``none``; an empty cell is missing, and blank lines are skipped. It is separated by commas, or by
    semicolons or tabs if its header contains these and no comma. JSON lines have one object per line. Its keys
    are the columns. A key that an object lacks is a missing cell. Parquet needs the extra ``parquet``. A JSON document
    (``.json``) is read by :func:`~rrg_rewards.data.tables.json_documents.parse_json`. An Excel workbook (``.xlsx``,
    extra ``xlsx``) has one sheet with content, or its name follows the path (``reports.xlsx#2024``), and the names of
    the columns are in its first row. Its cells are text,
    numbers and booleans; a formula has the value that was saved with it, and dates become text as ``2024-01-31``. Empty
    rows are skipped, and lines in messages are the rows of the sheet.

    Args:
        path: Path of the table, or ``-`` for standard input.
        table_format_name: ``csv``, ``jsonl`` or ``parquet``, if the path has another ending. Default for standard
            input: ``csv``.

    Raises:
        TableError: If the file is malformed. The message names the line and the row.
        OSError: If the file cannot be read.
        ModuleNotFoundError: For Parquet without pyarrow, or Excel without openpyxl. The message gives the pip command.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "reports.csv"
        ...     _ = path.write_text('id,report\n1,"Small, clear ""nodule""."\n2,\n')
        ...     read_table(path).columns
        {'id': ['1', '2'], 'report': ['Small, clear "nodule".', None]}
    """
    kind = _format(path, table_format_name)
    with _opened(path) as file:
        # Parquet and Excel are read from their end, so that a stream must be in memory.
        whole = BytesIO(file.read()) if kind in ("parquet", "xlsx") and not file.seekable() else file
        return next(_parse(whole, kind, _source(path), None))


class BatchedTable:
    r"""A table that is read once, in batches of rows; memory does not depend on the number of rows.

    Its rows are kept in a temporary file, from which further iterations take them. All batches have the same columns;
    for JSON lines, all rows are read before the first batch, because each may add a column.

    Args:
        path: Path of the table, or ``-`` for standard input.
        table_format_name: Format as in :func:`read_table`.
        rows: Maximum number of rows of a batch; ``None`` for one batch, which is kept in memory.

    Raises:
        TableError: As :func:`read_table`, in iterations; a malformed row of CSV is found when its batch is reached.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "reports.csv"
        ...     _ = path.write_text("id\n1\n2\n3\n")
        ...     with BatchedTable(path, rows=2) as table:
        ...         [(batch.columns["id"], batch.where(0)) for batch in table]  # doctest: +ELLIPSIS
        [(['1', '2'], '...reports.csv: data row 1 (line 2)'), (['3'], '...reports.csv: data row 3 (line 4)')]
    """

    def __init__(self, path: str | Path, table_format_name: str | None = None, rows: int | None = 256) -> None:
        self._path, self._rows = path, rows
        self._format = _format(path, table_format_name)
        self._names: dict[str, None] = {}
        self._stack = ExitStack()
        self._unread: Iterator[Table] | None = None
        self._kept: IO[bytes] | None = None
        self._places: list[int] = []
        self._whole: list[Table] = []

    def __enter__(self) -> "BatchedTable":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[Table]:
        if self._rows is None:
            self._whole = self._whole or list(self._tables())
            yield from self._whole
            return
        if self._format == "jsonl" and self._unread is None:
            while (table := self._read()) is not None:
                self._names.update(dict.fromkeys(table.names))
        for number in count():
            if number < len(self._places):
                yield self._load(number)
            elif (table := self._read()) is not None:
                yield table
            else:
                return

    def _tables(self) -> Iterator[Table]:
        """Yield the batches of the file."""
        with _opened(self._path) as file:
            # Parquet and Excel are read from their end.
            if self._format in ("parquet", "xlsx") and not file.seekable():
                copy = self._stack.enter_context(TemporaryFile())  # noqa: SIM115 (closed at exit)
                shutil.copyfileobj(file, copy)
                file = copy
            yield from _parse(file, self._format, _source(self._path), self._rows)

    def _read(self) -> Table | None:
        """Read and keep the next batch of the file; ``None`` at its end."""
        if self._unread is None or self._kept is None:
            self._unread = self._tables()
            self._kept = self._stack.enter_context(TemporaryFile())  # noqa: SIM115 (closed at exit)
        table = next(self._unread, None)
        if table is not None:
            self._places.append(self._kept.seek(0, SEEK_END))
            pickle.dump(table, self._kept)
        return table

    def _load(self, number: int) -> Table:
        """Return a batch that is kept, with all columns."""
        assert self._kept is not None
        self._kept.seek(self._places[number])
        table: Table = pickle.load(self._kept)
        if not self._names:
            return table
        missing = [None] * len(table)
        return replace(table, columns={name: table.columns.get(name, missing) for name in self._names})


def _parse(file: BinaryIO, kind: str, source: str, rows: int | None) -> Iterator[Table]:
    if kind == "csv":
        return _parse_csv(file, source, rows)
    if kind == "jsonl":
        return parse_jsonl(file, source, rows)
    if kind == "xlsx":
        return _parse_xlsx(file, source, rows)
    return parse_json(file, source, rows) if kind == "json" else _parse_parquet(file, source, rows)


def _format(path: str | Path, name: str | None) -> str:
    """Return the format of a table to read; JSON documents are read, but tables are not written as one."""
    file = _sheet_of(path)[0]
    return "json" if Path(file).suffix.lower() == ".json" else table_format(file, name)


def _sheet_of(path: str | Path) -> tuple[str, str | None]:
    """Return the path of a file, and the sheet that follows the path of a workbook and ``#``."""
    found = re.fullmatch(r"(.+\.xlsx)#(.+)", str(path), re.I)
    return (str(path), None) if found is None or Path(path).exists() else (found[1], found[2])


def _source(path: str | Path) -> str:
    return "standard input" if str(path) == STANDARD else str(path)


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    if str(path) == STANDARD:
        yield sys.stdin.buffer
        return
    path = _sheet_of(path)[0]
    if not Path(path).exists():
        raise TableError(f"{path}: no such file")
    if Path(path).is_dir():
        raise TableError(f"{path}: is a folder, not a table")
    with Path(path).open("rb") as file:
        note_input(file)
        yield file


def _lines(file: BinaryIO, source: str) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line. Lines end with a line feed only."""
    for number in count(1):
        line = file.readline(_MOST_BYTES + 1)
        if not line:
            return
        if len(line) > _MOST_BYTES:
            raise TableError(f"{source}: line {number}: is longer than {_MOST_BYTES >> 20} MiB; is this a table?")
        yield number, line


def _decode(data: bytes, source: str, line: int, start: int | None = None) -> str:
    """Decode a line in UTF-8 without byte order mark.

    The error names the first invalid byte in the line, or in the file if the line starts at byte ``start``.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"{error.start} of the line" if start is None else f"{start + error.start} of the file"
        raise TableError(
            f"{source}: line {line}, byte {place}: not UTF-8 (0x{data[error.start]:02x}); save it as UTF-8, for "
            "example with iconv -f WINDOWS-1252 -t UTF-8 (or -f UTF-16)"
        ) from error
    if "\0" in text:
        raise TableError(f"{source}: line {line}: holds a NUL byte; the file is damaged, binary or UTF-16")
    return text.removeprefix("\ufeff") if line == 1 else text


def _csv_lines(file: BinaryIO, source: str) -> Iterator[str]:
    """Yield the lines of a CSV text with their ends: line feed, carriage return or both."""
    start = 0
    for number, line in _lines(file, source):
        yield from io.StringIO(_decode(line, source, number, start), newline="")
        start += len(line)


@contextmanager
def _large_cells() -> Iterator[None]:
    """Raise the limit of the csv module for the characters of a cell. The limit applies to the whole process."""
    before = csv.field_size_limit()
    csv.field_size_limit(max(before, _MOST_BYTES))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _detected_delimiter(header: str) -> str:
    """Return the delimiter of a CSV text by its header: a comma, unless there is none but semicolons or tabs."""
    outside = "".join(header.split('"')[::2])
    found = [mark for mark in _DELIMITERS if mark in outside]
    return found[0] if found else ","


def _csv_records(lines: Iterator[str], source: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each record of a CSV text starts, and its cells. Blank lines are skipped."""
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    while True:
        line = reader.line_num + 1
        try:
            with _large_cells():
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


def _row_tables(
    rows: Iterator[tuple[int, Sequence[Any]]], names: Sequence[str], source: str, most: int | None, *, is_csv: bool
) -> Iterator[Table]:
    """Yield numbered rows in tables of at most ``most``; at least one. Empty texts of CSV are missing."""
    first = 0
    while (batch := list(islice(rows, most))) or not first:
        columns = {
            name: [cells[place] or None for _, cells in batch] if is_csv else [cells[place] for _, cells in batch]
            for place, name in enumerate(names)
        }
        yield Table(columns, source, tuple(line for line, _ in batch), first=first)
        first += len(batch)
        if not batch:
            return


def _parse_csv(file: BinaryIO, source: str, rows: int | None = None) -> Iterator[Table]:
    r"""Yield the rows of a CSV file in tables with the same columns; at least one, which may have no rows.

    Example:
        >>> [table.columns for table in _parse_csv(io.BytesIO(b"id\n1\n2\n3\n"), "reports", rows=2)]
        [{'id': ['1', '2']}, {'id': ['3']}]
    """
    lines = _csv_lines(file, source)
    # Blank lines before the header are kept, because lines are counted.
    before = []
    for line in lines:
        before.append(line)
        if line.strip("\r\n"):
            break
    delimiter = _detected_delimiter(before[-1] if before else "")
    records = _csv_records(chain(before, lines), source, delimiter)
    header = next(records, (0, None))[1]
    if header is None:
        raise TableError(f"{source}: is empty; a table has a header line at least")
    check_header(header, source)
    return _row_tables(_whole_records(records, header, source, delimiter), header, source, rows, is_csv=True)


def _whole_records(
    records: Iterator[tuple[int, list[str]]], header: Sequence[str], source: str, delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield records, and raise at one that has another number of cells than the header."""
    for row, (line, cells) in enumerate(records, start=1):
        if len(cells) != len(header):
            raise TableError(
                f"{source}: data row {row} (line {line}): has {len(cells)} cells where the header has "
                f"{len(header)} columns; text that holds {_DELIMITERS[delimiter]} or a line break "
                "needs double quotes"
            )
        yield line, cells


def _parse_xlsx(file: BinaryIO, source: str, rows: int | None = None) -> Iterator[Table]:
    """Yield the rows of an Excel workbook in tables with the same columns; at least one, which may have no rows."""
    numbered = _sheet_rows(_sheet(file, source))
    header_row, header = next(numbered, (0, ()))
    if not header_row:
        raise TableError(f"{source}: is empty; a table has a row of names at least")
    names = _sheet_names(header, source)
    return _row_tables(_sheet_records(numbered, names, source), names, source, rows, is_csv=False)


def _sheet_records(
    numbered: Iterator[tuple[int, Sequence[Any]]], names: Sequence[str], source: str
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows of a sheet with a cell for each name; raise at one with a cell beyond them."""
    for row, (number, cells) in enumerate(numbered, start=1):
        if any(cell is not None for cell in cells[len(names) :]):
            raise TableError(
                f"{source}: data row {row} (line {number}): has a cell beyond the last column, {names[-1]!r}; give "
                "each column a name"
            )
        yield number, [_sheet_value(cells[place]) if place < len(cells) else None for place in range(len(names))]


def _sheet(file: BinaryIO, source: str) -> Any:
    """Return the sheet that the source names, or else the only one with content."""
    openpyxl = require("openpyxl", extra="xlsx")
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        sheets = [sheet for sheet in book.worksheets if next(_sheet_rows(sheet), None) is not None]
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, openpyxl.utils.exceptions.InvalidFileException) as error:
        raise TableError(f"{source}: not a readable Excel workbook: {error}") from error
    titles, (path, wanted) = [sheet.title for sheet in sheets], _sheet_of(source)
    if wanted is not None:
        if wanted not in titles:
            raise TableError(f"{path}: {unknown_name_message('sheet with content', wanted, titles)}")
        return sheets[titles.index(wanted)]
    if len(sheets) > 1:
        names = ", ".join(map(repr, titles))
        raise TableError(f"{source}: {len(sheets)} sheets have content, {names}; name one: {source}#{titles[0]}")
    return sheets[0] if sheets else book.worksheets[0]


def _sheet_rows(sheet: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the number and the cells of each row with content."""
    for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
        if any(cell is not None for cell in cells):
            yield number, cells


def _sheet_names(header: Sequence[Any], source: str) -> list[str]:
    last = max(place for place, cell in enumerate(header) if cell is not None)
    # The first column of a table that pandas wrote with its index has no name, as in CSV.
    names = ["" if cell is None else str(cell) for cell in header[: last + 1]]
    if "" in names[1:]:
        raise TableError(f"{source}: column {names.index('', 1) + 1} has no name")
    check_header(names, source)
    return names


def _sheet_value(cell: Any) -> Any:
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    return cell.isoformat() if isinstance(cell, date | time) else cell


def _json_record(text: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{where}: not a line of JSON: {error}") from error
    if not isinstance(record, dict):
        raise TableError(f"{where}: must be a JSON object, as in {{'report': '...'}}, got {type(record).__name__}")
    return record


def _json_records(file: BinaryIO, source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and the content of each record. Blank lines are skipped."""
    row = 0
    for line, raw in _lines(file, source):
        if raw.strip():
            row += 1
            text = _decode(raw.removesuffix(b"\n"), source, line)
            yield line, _json_record(text, f"{source}: data row {row} (line {line})")


def parse_jsonl(file: BinaryIO, source: str, rows: int | None = None) -> Iterator[Table]:
    r"""Yield the rows of a JSON lines file in tables.

    Args:
        file: The file.
        source: Name of the file in messages.
        rows: Maximum number of rows in a table; ``None`` for one table.

    Yields:
        Tables with the columns of their rows; at least one.

    Raises:
        TableError: If the file is empty or malformed. The message names the line and the row.

    Example:
        >>> next(parse_jsonl(io.BytesIO(b'{"id": 1}\n{"id": 2}\n'), "answers")).columns
        {'id': [1, 2]}
    """
    records = _json_records(file, source)
    first = 0
    while batch := list(islice(records, rows)):
        numbers = tuple(line for line, _ in batch)
        yield Table.from_records([record for _, record in batch], source=source, lines=numbers, first=first)
        first += len(batch)
    if not first:
        raise TableError(f"{source}: is empty; JSON lines hold one object a row")


def _parse_parquet(file: BinaryIO, source: str, rows: int | None = None) -> Iterator[Table]:
    """Yield the rows of a seekable Parquet file in tables with the same columns; at least one."""
    arrow = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    types: dict[str, Any] = {}
    first = 0
    try:
        # Read through a small buffer: a row group may be as large as the file.
        opened = parquet.ParquetFile(file, buffer_size=2**20, pre_buffer=False)
        schema = opened.schema_arrow
        check_header(schema.names, source)
        types = {name: schema.field(name).type for name in schema.names}
        for batch in [opened.read()] if rows is None else opened.iter_batches(rows):
            columns = {name: batch.column(name).to_pylist() for name in schema.names}
            yield Table(columns, source, types=types, first=first)
            first += batch.num_rows
    except TableError:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise TableError(f"{source}: not a readable Parquet file: {error}") from error
    if rows is not None and not first:  # such a file has no batch
        yield Table({name: [] for name in types}, source, types=types)
