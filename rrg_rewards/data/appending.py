"""JSON lines that grow while a program runs, and that a program which was ended takes up again."""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, BinaryIO

from rrg_rewards.data.readers import parse_jsonl
from rrg_rewards.data.tables import Table, TableError

__all__ = ["AppendedLines", "read_whole_lines"]


class AppendedLines:
    r"""A file of JSON lines, open for appending: a line that was added stays, whatever happens to the program then.

    Each line goes to the operating system as it is added. Half a line at the end, left by a machine or disk that gave
    out while it was written, is taken off. No two processes append to one file at a time, where the system has locks.

    Args:
        path: Path of the file; made if absent.

    Raises:
        TableError: If another process appends to it, or its folder is missing.
        OSError: If it cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "answers.jsonl"
        ...     _ = path.write_text('{"id": 1}\n{"id": 2, "te')
        ...     with AppendedLines(path) as lines:
        ...         lines.append({"id": 2})
        ...     print(path.read_text(), end="")
        {"id": 1}
        {"id": 2}
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if not self._path.resolve().parent.is_dir():
            raise TableError(f"{path}: the folder {self._path.parent} does not exist")
        # Unbuffered, so that a line is with the system when `append` returns.
        self._file: BinaryIO = self._path.open("a+b", buffering=0)
        try:
            _lock(self._file, self._path)
            self._mend()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "AppendedLines":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line.

        Args:
            record: What it holds; numbers must be finite.

        Raises:
            ValueError: If it is no JSON.
            OSError: If it cannot be written.
        """
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        try:
            line = text.encode() + b"\n"
        except UnicodeEncodeError:
            # Half a surrogate pair, which JSON can name but UTF-8 not hold.
            line = json.dumps(record, allow_nan=False).encode() + b"\n"
        written = self._file.write(line)
        # A disk that is nearly full takes a part.
        while written < len(line):
            line = line[written:]
            written = self._file.write(line)

    def _mend(self) -> None:
        """End the last line, or take off what there is of it."""
        whole, torn = _split(self._path.read_bytes())
        if torn and _is_record(torn):
            self._file.write(b"\n")
        elif torn:
            self._file.truncate(len(whole))


def read_whole_lines(path: str | Path) -> Table | None:
    """Read a file of JSON lines as :class:`AppendedLines` will leave it, without changing it.

    Args:
        path: Path of the file.

    Returns:
        Its lines without half a line at the end; ``None`` where there is no file, or no line in it.

    Raises:
        TableError: If a line before the end is malformed, naming it.
        OSError: If it cannot be read.
    """
    if not Path(path).exists():
        return None
    whole, torn = _split(Path(path).read_bytes())
    content = whole + torn if _is_record(torn) else whole
    return parse_jsonl(content, str(path)) if content.strip() else None


def _split(content: bytes) -> tuple[bytes, bytes]:
    """Lines that were ended, and what stands behind them."""
    end = content.rfind(b"\n") + 1
    return content[:end], content[end:]


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        locks: ModuleType = import_module("fcntl")
    except ModuleNotFoundError:
        return
    try:
        locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError:
        raise TableError(f"{path}: another process is writing to it") from None
