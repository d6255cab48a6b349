"""Tables to CSV, JSON lines and Parquet files, whole or not at all."""

import io
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from rrg_rewards.data.tables import STANDARD, Table, TableError, table_format
from rrg_rewards.utilities.files import whole_file
from rrg_rewards.utilities.imports import require

__all__ = ["check_output", "open_output", "write_json", "write_table"]


def check_output(path: str | Path, overwrite: bool = False) -> None:
    """Raise unless a file can be written to ``path``: worth asking before hours of work.

    Args:
        path: Where to write, or ``-`` for standard output.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: If the folder is missing or not writable, ``path`` is a folder, or a file is there already.

    Example:
        >>> check_output("no/such/folder/labels.csv")
        Traceback (most recent call last):
        ...
        rrg_rewards.data.tables.TableError: no/such/folder/labels.csv: the folder no/such/folder does not exist
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
    """Whether a path is a pipe or a device, which is written to and never replaced."""
    return path.exists() and not path.is_file()


@contextmanager
def open_output(path: str | Path, overwrite: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing that appears whole, or not at all if an error is raised meanwhile.

    The bytes go to a file beside ``path``, which takes its place at the end; until then what was there stays.

    Args:
        path: Where to write, or ``-`` for standard output.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: As :func:`check_output`.
        OSError: If the file cannot be written.

    Example:
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
    with whole_file(Path(path).resolve()) as file:  # a link keeps pointing where it does
        yield file


def write_table(table: Table, path: str | Path, table_format_name: str | None = None, overwrite: bool = False) -> None:
    """Write a table, whole or not at all. Reading it again gives the same cells.

    CSV knows text and missing cells only: other cells become text (JSON where they are lists or objects), and empty
    text becomes a missing cell. JSON knows no NaN and no infinity: they become missing.

    Args:
        table: What to write.
        path: Where to, or ``-`` for standard output.
        table_format_name: ``csv``, ``jsonl`` or ``parquet``, where the ending does not tell; standard output is CSV by
            default.
        overwrite: Whether an existing file may be replaced.

    Raises:
        TableError: As :func:`check_output`; if the format cannot hold a cell.
        OSError: If the file cannot be written.
        ModuleNotFoundError: For Parquet without pyarrow, naming the pip command.

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
    encode = {"csv": _csv_bytes, "jsonl": _jsonl_bytes, "parquet": _parquet_bytes}
    chosen = encode[table_format(path, table_format_name)]
    with open_output(path, overwrite) as file:
        if str(path) == STANDARD:
            # What is sent cannot be taken back, so a cell that cannot be written must show first.
            file.write(b"".join(chosen(table)))
        else:
            file.writelines(chosen(table))


def write_json(value: Any, path: str | Path, overwrite: bool = False) -> None:
    """Write a value as JSON, whole or not at all; NaN and infinity, which JSON lacks, become ``null``.

    Args:
        value: What to write; what JSON does not know becomes text.
        path: Where to, or ``-`` for standard output.
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
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)
    with open_output(path, overwrite) as file:
        file.write(text.encode() + b"\n")


def _finite(value: Any) -> Any:
    """A value for JSON: ``None`` in place of NaN and infinity, however deep.

    Example:
        >>> _finite([1.5, float("inf"), {"low": float("nan")}])
        [1.5, None, {'low': None}]
    """
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# The csv module of Python before 3.13 leaves a lone carriage return bare, which ends a row when read again. A first
# cell that starts with U+FEFF would be taken for a byte order mark.
_NEEDS_QUOTES = re.compile('[",\r\n\ufeff]')


def _csv_text(cell: Any) -> str:
    if cell is None:
        return ""
    text = cell if isinstance(cell, str) else _json_text(cell).strip('"')
    if "\0" in text:
        raise ValueError("a cell holds a NUL byte")
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def _csv_bytes(table: Table) -> Iterator[bytes]:
    for number, cells in enumerate([table.names, *zip(*table.columns.values(), strict=True)]):
        try:
            # A row of one missing cell would be a blank line, which readers skip.
            yield (",".join(map(_csv_text, cells)) or '""').encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise _unwritable(table, number - 1, "CSV", error) from error


def _jsonl_bytes(table: Table) -> Iterator[bytes]:
    for row, cells in enumerate(zip(*table.columns.values(), strict=True)):
        record = _finite(dict(zip(table.names, cells, strict=True)))
        try:
            yield _json_text(record).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise _unwritable(table, row, "JSON", error) from error


def _unwritable(table: Table, row: int, kind: str, error: Exception) -> TableError:
    return TableError(f"{table.where(row) if row >= 0 else table.source}: cannot be written as {kind}: {error}")


def _json_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    # A lone surrogate, which JSON can hold and UTF-8 cannot, is written as an escape.
    with suppress(UnicodeEncodeError):
        text.encode()
        return text
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> str:
    """Give text for what Parquet can hold and JSON cannot."""
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a cell of type {type(value).__name__} has no text form")


def _parquet_bytes(table: Table) -> Iterator[bytes]:
    arrow = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    arrays = {}
    for name, cells in table.columns.items():
        try:
            arrays[name] = arrow.array(cells, type=table.types.get(name))
        except (arrow.ArrowException, OverflowError, TypeError) as error:
            raise TableError(f"{table.source}, column {name!r}: cannot be written as Parquet: {error}") from error
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(arrays), buffer)
    yield buffer.getvalue()
