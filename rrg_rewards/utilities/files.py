"""Write files atomically."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


@contextmanager
def whole_file(path: Path, partial: Path | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` at the end, or is removed if an error occurs.

    Args:
        path: File to write. An existing file is kept until the end.
        partial: File to which an incomplete result is moved if an error occurs, instead of being removed.

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
    # In the same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        if partial is not None and temporary.exists() and temporary.stat().st_size:
            temporary.replace(partial)
        raise
    finally:
        temporary.unlink(missing_ok=True)
