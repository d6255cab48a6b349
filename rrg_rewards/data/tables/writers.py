"""Writers of CSV, JSON lines and Parquet tables. A file is written completely or not at all."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rrg_rewards.data.tables.encoders import TableEncoder, finite, json_line, make_encoder
from rrg_rewards.data.tables.table import STANDARD, Table, TableError, table_format
from rrg_rewards.utilities.files import whole_file

__all__ = ["check_output", "open_output", "open_table", "partial_path", "write_json", "write_table"]


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
    with open_table(path, table_format_name, overwrite) as writer:
        writer.write(table)


@contextmanager
def open_table(
    path: str | Path,
    table_format_name: str | None = None,
    overwrite: bool = False,
    types: Mapping[str, Any] | None = None,
    keep_partial: bool = False,
) -> Iterator[TableEncoder]:
    r"""Open a table that is written in batches of rows. It is created only if the block ends without an error.

    Args:
        path: Path of the file, or ``-`` for standard output, which receives each batch at once.
        table_format_name: Format as in :func:`write_table`.
        overwrite: Whether an existing file may be replaced.
        types: Arrow types of the columns of Parquet whose tables have none. Default: by the cells of each batch.
        keep_partial: Whether the rows that were written before an error are kept, in :func:`partial_path`.

    Yields:
        An object whose method ``write`` takes tables with equal column names.

    Raises:
        TableError: As :func:`write_table`, and if a batch has other columns than the first.
        OSError: If the file cannot be written.
        ModuleNotFoundError: For Parquet without pyarrow. The message gives the pip command.

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
    with open_output(path, overwrite, keep_partial) as file:
        encoder = make_encoder(kind, file, delimiter, types or {})
        try:
            yield encoder
        finally:
            # Also after an error, because a Parquet file is readable only if it is complete.
            encoder.close()


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
