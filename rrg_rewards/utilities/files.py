"""Files that appear whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

__all__ = ["whole_file"]


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside ``path`` for writing, which takes its place at the end, or goes if an error is raised.

    Args:
        path: Where the file is to appear; one that is there stays until then.

    Raises:
        OSError: If the file cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with whole_file(Path(folder) / "a.txt") as file:
        ...         _ = file.write(b"all of it")
        ...     [path.name for path in Path(folder).iterdir()]
        ['a.txt']
    """
    # In the same folder, since a rename is atomic only within a file system, under a name that nobody else takes.
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
