"""Read tables from files and from standard input, at once or in batches of rows."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, BinaryIO, cast

from rrg_rewards.data.tables.json_documents import parse_json
from rrg_rewards.data.tables.parsers import parse_csv, parse_jsonl, parse_parquet
from rrg_rewards.data.tables.table import STANDARD, Table, TableError, table_format

__all__ = ["BatchedTable", "read_table"]


def read_table(path: str | Path, table_format_name: str | None = None, delimiter: str | None = None) -> Table:
    r"""Read and check a whole table.

    CSV is quoted with double quotes and encoded in UTF-8, with or without a byte order mark. Its cells are text, also
    ``NaN`` and ``none``; an empty cell is missing, and blank lines are skipped. It is separated by commas, or by
    semicolons or tabs if its header contains these and no comma. JSON lines have one object per line. Its keys
    are the columns. A key that an object lacks is a missing cell. Parquet needs the extra ``parquet``. A JSON document
    (``.json``) is read by :func:`~rrg_rewards.data.tables.json_documents.parse_json`.

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
    kind = _format(path, table_format_name)
    with _opened(path) as file:
        # Parquet is read from its end, so that a stream must be in memory.
        whole = BytesIO(file.read()) if kind == "parquet" and not file.seekable() else file
        return next(_parse(whole, kind, _source(path), None, delimiter, {}))


class BatchedTable:
    r"""A table that is read in batches of rows, as often as needed; memory does not depend on the number of rows.

    Each iteration reads the table again. Standard input and pipes can be read only once, so the first iteration copies
    them to a temporary file. All batches have the same columns; for JSON lines, the first iteration reads the keys of
    all rows before it yields.

    Args:
        path: Path of the table, or ``-`` for standard input.
        table_format_name: Format as in :func:`read_table`.
        delimiter: Delimiter as in :func:`read_table`.
        rows: Maximum number of rows of a batch.

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

    def __init__(
        self, path: str | Path, table_format_name: str | None = None, delimiter: str | None = None, rows: int = 256
    ) -> None:
        self._path = path
        self._format = _format(path, table_format_name)
        self._delimiter = delimiter
        self._rows = rows
        self._names: dict[str, None] | None = None
        self._copy: IO[bytes] | None = None

    def __enter__(self) -> "BatchedTable":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._copy is not None:
            self._copy.close()

    def __iter__(self) -> Iterator[Table]:
        with self._file() as file:
            if self._format == "jsonl" and self._names is None:
                self._names = {name: None for table in self._tables(file) for name in table.names}
                file.seek(0)
            yield from self._tables(file)

    def _tables(self, file: BinaryIO) -> Iterator[Table]:
        return _parse(file, self._format, _source(self._path), self._rows, self._delimiter, self._names or {})

    @contextmanager
    def _file(self) -> Iterator[BinaryIO]:
        if self._copy is None and (str(self._path) == STANDARD or _is_pipe(Path(self._path))):
            self._copy = TemporaryFile()  # noqa: SIM115 (closed at exit)
            with _opened(self._path) as stream:
                shutil.copyfileobj(stream, self._copy)
        if self._copy is None:
            with _opened(self._path) as file:
                yield file
        else:
            self._copy.seek(0)
            yield cast(BinaryIO, self._copy)


def _parse(
    file: BinaryIO, kind: str, source: str, rows: int | None, delimiter: str | None, names: dict[str, None]
) -> Iterator[Table]:
    if kind == "csv":
        return parse_csv(file, source, rows, delimiter)
    if kind == "jsonl":
        return parse_jsonl(file, source, rows, names)
    return parse_json(file, source, rows) if kind == "json" else parse_parquet(file, source, rows)


def _format(path: str | Path, name: str | None) -> str:
    """Return the format of a table to read; JSON documents are read, but tables are not written as one."""
    return "json" if Path(path).suffix.lower() == ".json" else table_format(path, name)


def _source(path: str | Path) -> str:
    return "standard input" if str(path) == STANDARD else str(path)


def _is_pipe(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    if str(path) == STANDARD:
        yield sys.stdin.buffer
        return
    if not Path(path).exists():
        raise TableError(f"{path}: no such file")
    if Path(path).is_dir():
        raise TableError(f"{path}: is a folder, not a table")
    with Path(path).open("rb") as file:
        yield file
