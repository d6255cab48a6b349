"""Writers of CSV, JSON lines and Parquet tables. A file is written completely or not at all."""

import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from rrg_rewards.data.tables.table import STANDARD, Table, TableError, table_format
from rrg_rewards.utilities.files import whole_file
from rrg_rewards.utilities.imports import require
from rrg_rewards.utilities.texts import REPLACEMENT, encodable_text

__all__ = ["check_output", "json_line", "open_output", "write_json", "write_table"]


def check_output(path: str | Path, overwrite: bool = False) -> None:
    """Raise an error if a file cannot be written to ``path``. Call this function before a long computation.

    Args:
        path: Path of the file, or ``-`` for standard output.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: If the folder is missing or not writable, ``path`` is a folder, or the file exists.

    Example:
        >>> check_output("no/such/folder/labels.csv")
        Traceback (most recent call last):
        ...
        rrg_rewards.data.tables.table.TableError: no/such/folder/labels.csv: the folder no/such/folder does not exist
    """
    if str(path) == STANDARD:
        return
    path = Path(path)
    folder = path.resolve().parent
    if not folder.is_dir():
        raise TableError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise TableError(f"{path}: is a folder")
    if path.is_file() and not overwrite:
        raise TableError(f"{path}: exists already; pass --overwrite to replace it")
    if not os.access(folder, os.W_OK) and not _is_stream(path):
        raise TableError(f"{path}: the folder {path.parent} is not writable")


def _is_stream(path: Path) -> bool:
    """Whether a path is a pipe or a device, which cannot be replaced."""
    return path.exists() and not path.is_file()


@contextmanager
def open_output(path: str | Path, overwrite: bool = False) -> Iterator[BinaryIO]:
    """Open an output file, which is created only if the block ends without an error.

    The content is written to a temporary file in the folder of ``path``. This file replaces ``path`` at the end.

    Args:
        path: Path of the file, or ``-`` for standard output.
        overwrite: Whether an existing file may be replaced.

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
    with whole_file(Path(path).resolve()) as file:  # resolved, so that a symbolic link is not replaced
        yield file


def write_table(table: Table, path: str | Path, table_format_name: str | None = None, overwrite: bool = False) -> None:
    """Write a table. Reading it again returns the same cells. The ending ``.tsv`` gives CSV with tabs.

    CSV cannot represent all cells: numbers become text, lists and objects become JSON text, and empty text becomes a
    missing cell. NaN and infinity become missing cells in JSON. Characters that a format cannot represent become
    U+FFFD: unpaired surrogates in CSV and Parquet, and NUL in CSV. A generated report may contain them.

    Args:
        table: The table.
        path: Path of the file, or ``-`` for standard output.
        table_format_name: ``csv``, ``jsonl`` or ``parquet``, if the path has another ending. Default for standard
            output: ``csv``.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: As :func:`check_output`, and if the format cannot represent a cell.
        OSError: If the file cannot be written.
        ModuleNotFoundError: For Parquet without pyarrow. The message gives the pip command.

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
    delimiter = "\t" if Path(path).suffix.lower() == ".tsv" else ","
    encode: Mapping[str, Callable[[Table], Iterator[bytes]]]
    encode = {"csv": partial(_csv_bytes, delimiter=delimiter), "jsonl": _jsonl_bytes, "parquet": _parquet_bytes}
    chosen = encode[table_format(path, table_format_name)]
    with open_output(path, overwrite) as file:
        if str(path) == STANDARD:
            # Encode all cells first, because output to a stream cannot be undone.
            file.write(b"".join(chosen(table)))
        else:
            file.writelines(chosen(table))


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
    text = json_line(_finite(value), indent=2, allow_nan=False, default=str)
    with open_output(path, overwrite) as file:
        file.write(text)


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by ``None``, also in nested values.

    Example:
        >>> _finite([1.5, float("inf"), {"low": float("nan")}])
        [1.5, None, {'low': None}]
    """
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_finite(item) for item in value]
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


def _csv_bytes(table: Table, delimiter: str) -> Iterator[bytes]:
    for number, cells in enumerate([table.names, *zip(*table.columns.values(), strict=True)]):
        try:
            # A row with a single missing cell would be a blank line, which readers skip.
            yield (delimiter.join(map(_csv_text, cells)) or '""').encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise _unwritable(table, number - 1, "CSV", error) from error


def _jsonl_bytes(table: Table) -> Iterator[bytes]:
    for row, cells in enumerate(zip(*table.columns.values(), strict=True)):
        record = _finite(dict(zip(table.names, cells, strict=True)))
        try:
            yield json_line(record, default=_plain)
        except (TypeError, ValueError) as error:
            raise _unwritable(table, row, "JSON", error) from error


def _unwritable(table: Table, row: int, kind: str, error: Exception) -> TableError:
    return TableError(f"{table.where(row) if row >= 0 else table.source}: cannot be written as {kind}: {error}")


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


def _parquet_bytes(table: Table) -> Iterator[bytes]:
    arrow = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    arrays = {}
    for name, cells in table.columns.items():
        try:
            arrays[encodable_text(name)] = arrow.array(_encodable(cells), type=table.types.get(name))
        except (arrow.ArrowException, OverflowError, TypeError) as error:
            raise TableError(f"{table.source}, column {name!r}: cannot be written as Parquet: {error}") from error
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(arrays), buffer)
    yield buffer.getvalue()
