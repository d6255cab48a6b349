"""Writers of CSV, JSON lines, Parquet and Excel tables. A file is written completely or not at all."""

import json
import math
import os
import re
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from rrg_rewards.data.tables.table import STANDARD, Table, TableError, table_format
from rrg_rewards.utilities.files import abandoned_files, longest_name, whole_file
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.texts import REPLACEMENT, encodable_text

T = TypeVar("T")

# Of the files in which commands keep incomplete results, beside the output of this name.
_LONGEST_ENDING = ".partial.jsonl"


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

    @staticmethod
    def _made(table: Table, make: Callable[[tuple[Any, ...]], T], kind: str) -> Iterator[T]:
        """Yield what ``make`` makes of the cells of each row; an error names the row."""
        for row, cells in enumerate(zip(*table.columns.values(), strict=True)):
            try:
                yield make(cells)
            except (TypeError, ValueError) as error:
                raise TableError(f"{table.where(row)}: cannot be written as {kind}: {error}") from error


def _make_encoder(
    kind: str, file: BinaryIO, delimiter: str, types: Mapping[str, Any], spreadsheet_safe: bool
) -> TableEncoder:
    """Make the encoder of a format.

    Args:
        kind: ``csv``, ``jsonl``, ``parquet`` or ``xlsx``.
        file: The file, open for writing.
        delimiter: Delimiter of CSV.
        types: Arrow types of columns in Parquet.
        spreadsheet_safe: Whether formulas in CSV are marked as text.
    """
    if kind == "csv":
        return _CsvEncoder(file, delimiter, spreadsheet_safe)
    if kind == "xlsx":
        return _XlsxEncoder(file)
    return _JsonlEncoder(file) if kind == "jsonl" else _ParquetEncoder(file, types)


class _CsvEncoder(TableEncoder):
    def __init__(self, file: BinaryIO, delimiter: str, spreadsheet_safe: bool) -> None:
        super().__init__(file)
        self._delimiter = delimiter
        self._text = _spreadsheet_text if spreadsheet_safe else _csv_text

    def _write(self, table: Table, is_first: bool) -> None:
        lines = b"".join(self._made(table, self._line, "CSV"))
        self._file.write((self._line(table.names) if is_first else b"") + lines)
        self._file.flush()

    def _line(self, cells: tuple[Any, ...]) -> bytes:
        # A row with a single missing cell would be a blank line, which readers skip.
        return (self._delimiter.join(map(self._text, cells)) or '""').encode() + b"\n"


class _JsonlEncoder(TableEncoder):
    def _write(self, table: Table, is_first: bool) -> None:  # noqa: ARG002 (JSON lines have no header)
        def line(cells: tuple[Any, ...]) -> bytes:
            return json_line(finite(dict(zip(table.names, cells, strict=True))), default=_plain)

        self._file.write(b"".join(self._made(table, line, "JSON")))
        self._file.flush()


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


def _cell_text(cell: Any) -> str:
    """Return the text of a cell in formats without nested values."""
    return cell if isinstance(cell, str) else json_line(cell, default=_plain).decode().strip('"\n')


def _csv_text(cell: Any) -> str:
    if cell is None:
        return ""
    if type(cell) is int or (type(cell) is float and math.isfinite(cell)):
        return repr(cell)  # As in JSON.
    text = encodable_text(_cell_text(cell)).replace("\0", REPLACEMENT)
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


# The limits of Excel: rows and columns of a sheet, characters of a cell, digits of a number.
_MOST_ROWS, _MOST_COLUMNS, _MOST_CHARACTERS, _MOST_DIGITS = 2**20, 2**14, 2**15 - 1, 15
# What XML cannot represent.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class _XlsxEncoder(TableEncoder):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        openpyxl = require("openpyxl", extra="xlsx")
        # Rows are kept in a temporary file of openpyxl that is open to its owner only, not in memory.
        self._book = openpyxl.Workbook(write_only=True)
        self._sheet = self._book.create_sheet("Table")
        self._cell = openpyxl.cell.WriteOnlyCell

    def _write(self, table: Table, is_first: bool) -> None:
        if self.rows + len(table) >= _MOST_ROWS or len(table.names) > _MOST_COLUMNS:
            raise TableError(
                f"{table.source}: Excel has at most {_MOST_ROWS - 1} rows and {_MOST_COLUMNS} columns; write CSV"
            )
        rows = list(self._made(table, self._row, "Excel"))
        for row in [self._row(table.names), *rows] if is_first else rows:
            self._sheet.append(row)

    def _row(self, cells: tuple[Any, ...]) -> list[Any]:
        return [self._excel_cell(cell) for cell in cells]

    def _excel_cell(self, cell: Any) -> Any:
        if cell is None or isinstance(cell, bool):
            return cell
        if isinstance(cell, float):
            return cell if math.isfinite(cell) else None
        # Excel rounds longer numbers, such as those of studies.
        if isinstance(cell, int) and abs(cell) < 10**_MOST_DIGITS:
            return cell
        text = _NOT_IN_XML.sub(REPLACEMENT, encodable_text(_cell_text(cell)))
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(f"a text has {len(text)} characters, and a cell of Excel at most {_MOST_CHARACTERS}")
        made = self._cell(self._sheet, text)
        made.data_type = "s"  # Also of a text that begins as a formula does.
        return made

    def close(self) -> None:
        if self._names is not None:
            self._book.save(self._file)


# A cell that begins so is a formula to spreadsheets, unless it is a number. The last four are the wide forms.
_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _spreadsheet_text(cell: Any) -> str:
    """Return a cell of CSV, with an apostrophe before a text that a spreadsheet would compute."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return _csv_text(f"'{cell}")
    return _csv_text(cell)


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


def check_output(path: str | Path, overwrite: bool = False) -> None:
    """Raise an error if a file cannot be written to ``path``. Call this function before a long computation.

    Args:
        path: Path of the file, or ``-`` for standard output.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: If the folder is missing or not writable, ``path`` is a folder, the file exists, or its name is too
            long for the files of incomplete results beside it.

    A warning (:class:`~rrg_rewards.utilities.run_log.RunWarning`) names unfinished files of killed processes in the
    folder.

    Example:
        >>> check_output("no/such/folder/labels.csv")
        Traceback (most recent call last):
        ...
        rrg_rewards.data.tables.table.TableError: no/such/folder/labels.csv: the folder no/such/folder does not exist
    """
    if str(path) == STANDARD:
        return
    path = Path(path)
    target = path.resolve()
    folder = target.parent
    limit = longest_name(folder) - len(_LONGEST_ENDING)
    if len(os.fsencode(target.name)) > limit:
        raise TableError(f"{path}: its name is too long; it may have {limit} bytes, with its ending")
    if not folder.is_dir():
        raise TableError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise TableError(f"{path}: is a folder")
    if path.is_file() and not overwrite:
        raise TableError(f"{path}: exists already; pass `overwrite` to replace it")
    if not os.access(folder, os.W_OK) and not _is_stream(path):
        raise TableError(f"{path}: the folder {path.parent} is not writable")
    for abandoned in abandoned_files(folder):
        warnings.warn(
            f"{abandoned} is an unfinished output of a process that was killed, and may contain reports; delete it "
            "when you need nothing of it",
            RunWarning,
            stacklevel=2,
        )


def _is_stream(path: Path) -> bool:
    """Whether a path is a pipe or a device, which cannot be replaced."""
    return path.exists() and not path.is_file()


@contextmanager
def open_output(path: str | Path, overwrite: bool = False, keep_partial: bool = False) -> Iterator[BinaryIO]:
    """Open an output file, which is created only if the block ends without an error.

    The content is written to a temporary file in the folder of ``path``. This file replaces ``path`` at the end.

    Args:
        path: Path of the file, or ``-`` for standard output.
        overwrite: Whether an existing file may be replaced.
        keep_partial: Whether the content that was written before an error is kept, in :func:`partial_path`.

    Raises:
        TableError: As :func:`check_output`.
        OSError: If the file cannot be written.

    Example:
        >>> from contextlib import suppress
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with suppress(RuntimeError), open_output(Path(folder) / "labels.csv") as file:
        ...         _ = file.write(b"half a ta")
        ...         raise RuntimeError
        ...     list(Path(folder).iterdir())
        []
    """
    check_output(path, overwrite)
    if str(path) == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if _is_stream(Path(path)):
        with Path(path).open("wb") as stream:
            yield stream
        return
    target = Path(path).resolve()  # so that a symbolic link is not replaced
    with whole_file(target, partial_path(target) if keep_partial else None) as file:
        yield file


def partial_path(path: str | Path) -> Path:
    """Return the path under which an incomplete output is kept.

    Example:
        >>> partial_path("runs/scores.csv").name
        'scores.partial.csv'
    """
    return Path(path).with_suffix(f".partial{Path(path).suffix}")


def write_table(
    table: Table,
    path: str | Path,
    table_format_name: str | None = None,
    overwrite: bool = False,
    spreadsheet_safe: bool = False,
) -> None:
    """Write a table. Reading it again returns the same cells. The ending ``.tsv`` gives CSV with tabs.

    CSV cannot represent all cells: numbers become text, lists and objects become JSON text, and empty text becomes a
    missing cell. NaN and infinity become missing cells in JSON. Characters that a format cannot represent become
    U+FFFD: unpaired surrogates in CSV, Parquet and Excel, NUL in CSV, and control characters in Excel. A generated
    report may contain them. In Excel, lists and objects become JSON text, and empty text, NaN and infinity missing
    cells; texts are never formulas, integers of more than 15 digits are texts, and a row of missing cells is not read
    again.

    Args:
        table: The table.
        path: Path of the file, or ``-`` for standard output.
        table_format_name: ``csv``, ``jsonl`` or ``parquet``, if the path has another ending. Default for standard
            output: ``csv``. Excel (extra ``xlsx``) is written to paths with the ending ``.xlsx``.
        overwrite: Whether an existing file may be replaced.
        spreadsheet_safe: Whether texts in CSV that a spreadsheet would compute, those that begin with ``=``, ``+``,
            ``-`` or ``@`` and are no numbers, get an apostrophe before them. It stays when the table is read again.

    Raises:
        TableError: As :func:`check_output`, and if the format cannot represent a cell.
        OSError: If the file cannot be written.
        ModuleNotFoundError: For Parquet without pyarrow, or Excel without openpyxl. The message gives the pip command.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "labels.csv"
        ...     write_table(Table({"report": ['A "small" nodule, benign.', None], "Lung nodule": [1, 0]}), path)
        ...     print(path.read_text())
        report,Lung nodule
        "A ""small"" nodule, benign.",1
        ,0
    """
    with open_table(path, table_format_name, overwrite, spreadsheet_safe=spreadsheet_safe) as writer:
        writer.write(table)


@contextmanager
def open_table(
    path: str | Path,
    table_format_name: str | None = None,
    overwrite: bool = False,
    types: Mapping[str, Any] | None = None,
    report_partial: Callable[[str, int], None] | None = None,
    spreadsheet_safe: bool = False,
) -> Iterator[TableEncoder]:
    r"""Open a table that is written in batches of rows. It is created only if the block ends without an error.

    Args:
        path: Path of the file, or ``-`` for standard output, which receives each batch at once.
        table_format_name: Format as in :func:`write_table`.
        overwrite: Whether an existing file may be replaced.
        types: Arrow types of the columns of Parquet whose tables have none. Default: by the cells of each batch.
        report_partial: With it, the rows that were written before an error are kept, in :func:`partial_path`. It is
            called with the name of this file, or ``standard output``, and the number of rows.
        spreadsheet_safe: As for :func:`write_table`.

    Yields:
        An object whose method ``write`` takes tables with equal column names.

    Raises:
        TableError: As :func:`write_table`, and if a batch has other columns than the first.
        OSError: If the file cannot be written.
        ModuleNotFoundError: For Parquet without pyarrow, or Excel without openpyxl. The message gives the pip command.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "scores.csv"
        ...     with open_table(path) as writer:
        ...         writer.write(Table({"crg": [0.5, None]}))
        ...         writer.write(Table({"crg": [1.0]}))
        ...     path.read_bytes()
        b'crg\n0.5\n""\n1.0\n'
    """
    kind = table_format(path, table_format_name)
    delimiter = "\t" if Path(path).suffix.lower() == ".tsv" else ","
    encoder: TableEncoder | None = None
    try:
        with open_output(path, overwrite, keep_partial=report_partial is not None) as file:
            encoder = _make_encoder(kind, file, delimiter, types or {}, spreadsheet_safe)
            try:
                yield encoder
            finally:
                # Also after an error, because a Parquet file is readable only if it is complete.
                encoder.close()
    except BrokenPipeError:
        raise
    except BaseException:
        kept = None if str(path) == STANDARD else partial_path(path)
        if report_partial is not None and encoder is not None and encoder.rows and (kept is None or kept.exists()):
            report_partial("standard output" if kept is None else str(kept), encoder.rows)
        raise


def write_json(value: Any, path: str | Path, overwrite: bool = False) -> None:
    """Write a value as JSON. NaN and infinity become ``null``.

    Args:
        value: The value. Objects that JSON cannot represent become text.
        path: Path of the file, or ``-`` for standard output.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: As :func:`check_output`.
        OSError: If the file cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_json({"crg": float("nan")}, Path(folder) / "summary.json")
        ...     print((Path(folder) / "summary.json").read_text())
        {
          "crg": null
        }
    """
    text = json_line(finite(value), indent=2, allow_nan=False, default=str)
    with open_output(path, overwrite) as file:
        file.write(text)
