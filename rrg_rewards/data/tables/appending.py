"""JSON lines files that a program appends to while it runs, so that it can be resumed."""

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from rrg_rewards.data.tables.readers import parse_jsonl
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.data.tables.writers import json_line
from rrg_rewards.utilities.files import lock_file


class AppendedLines:
    r"""A JSON lines file that is open for appending. Appended lines are not lost if the program crashes.

    Each line is passed to the operating system immediately. An incomplete last line, which a crash of the machine or a
    full disk can leave, is removed. If the system has file locks, only one process can append to a file at a time.

    Args:
        path: Path of the file. It is created if it does not exist.

    Raises:
        TableError: If another process appends to the file, or its folder is missing.
        OSError: If the file cannot be written.

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
        # Unbuffered, so that the operating system has each line when `append` returns.
        self._file: BinaryIO = self._path.open("a+b", buffering=0)
        try:
            if lock_file(self._file) is False:
                raise TableError(f"{path}: another process is writing to it")
            self._mend()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "AppendedLines":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line.

        Args:
            record: Content of the line; numbers must be finite.

        Raises:
            ValueError: If a number is not finite.
            OSError: If the line cannot be written.
        """
        line = json_line(record, allow_nan=False)
        written = self._file.write(line)
        # If the disk is nearly full, only a part of the line may be written.
        while written < len(line):
            line = line[written:]
            written = self._file.write(line)

    def _mend(self) -> None:
        """Add the missing line feed if the last line is a whole record. Remove an incomplete last line."""
        whole, torn = _split(self._path.read_bytes())
        if torn and _is_record(torn):
            self._file.write(b"\n")
        elif torn:
            self._file.truncate(len(whole))


def read_whole_lines(path: str | Path) -> Table | None:
    """Read the complete lines of a file that :class:`AppendedLines` writes, without changing the file.

    Args:
        path: Path of the file.

    Returns:
        The lines, except an incomplete last one. ``None`` if the file does not exist or has no complete line.

    Raises:
        TableError: If a line before the last is malformed. The message names the line.
        OSError: If the file cannot be read.
    """
    if not Path(path).exists():
        return None
    whole, torn = _split(Path(path).read_bytes())
    content = whole + torn if _is_record(torn) else whole
    return next(parse_jsonl(BytesIO(content), str(path))) if content.strip() else None


def _split(content: bytes) -> tuple[bytes, bytes]:
    """Split content into its complete lines and the bytes after the last line feed."""
    end = content.rfind(b"\n") + 1
    return content[:end], content[end:]


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
