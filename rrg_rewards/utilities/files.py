"""Write files atomically, with the permissions of the files that they replace."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import BinaryIO
from uuid import uuid4

from rrg_rewards.utilities.settings import SettingError

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp", re.DOTALL)
# Characters of a file's name in the name of its temporary file, which must not become too long for the file system.
_NAME_CHARACTERS = 50


@contextmanager
def whole_file(path: Path, partial: Path | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` at the end, or is removed if an error occurs.

    The file gets the mode and, if the system allows it, the owner and group of the file that it replaces. Until the
    end, only its owner can read it.

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
    temporary = path.with_name(f".{path.name[:_NAME_CHARACTERS]}.{uuid4().hex}.tmp")
    try:
        temporary.touch(0o600, exist_ok=False)
        with temporary.open("wb") as file:
            # For abandoned_files; some network file systems have no locks.
            with suppress(OSError):
                lock_file(file)
            yield file
        _set_permissions(temporary, path)
        temporary.replace(path)
    except BaseException:
        if partial is not None and temporary.exists() and temporary.stat().st_size:
            _set_permissions(temporary, path)
            temporary.replace(partial)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _set_permissions(temporary: Path, path: Path) -> None:
    """Give a file the mode, owner and group of another; if there is none, the mode of a new file."""
    if not path.exists():
        temporary.chmod(0o666 & ~_umask())
        return
    old = path.stat()
    mode = stat.S_IMODE(old.st_mode)
    if hasattr(os, "chown"):
        try:
            os.chown(temporary, -1, old.st_gid)
        except OSError:
            mode &= ~stat.S_IRWXG  # Of another group.
        # Only the administrator can give files away.
        with suppress(OSError):
            os.chown(temporary, old.st_uid, -1)
    temporary.chmod(mode)


def _umask() -> int:
    # The system tells the mask only when it is set. Another thread must not create an open file meanwhile.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def lock_file(file: BinaryIO | int) -> bool | None:
    """Lock an open file until it is closed.

    Returns:
        Whether this process has the lock, or ``None`` if the system has no file locks.

    Raises:
        OSError: If the file system has no locks.
    """
    try:
        locks: ModuleType = import_module("fcntl")
    except ModuleNotFoundError:
        return None
    try:
        locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked_folder(folder: str | Path, is_main: bool = True) -> Iterator[None]:
    """Keep other runs out of a folder inside the block; a killed process keeps nothing.

    Args:
        folder: The folder, which is made if it does not exist.
        is_main: Whether this is the main process of its run; the others lock nothing.

    Raises:
        SettingError: If another process has the folder.
    """
    if not is_main:
        yield
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    is_mine: bool | None = None
    with ExitStack() as stack:
        # Some file systems have no locks, and Windows opens no folders.
        with suppress(OSError):
            opened = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, opened)
            is_mine = lock_file(opened)
        if is_mine is False:
            raise SettingError("output_dir", f"another process writes to {folder}; wait for it, or use another folder")
        yield


def abandoned_files(folder: Path) -> list[Path]:
    """Return the temporary files of :func:`whole_file` in a folder that no process writes.

    A process that is killed leaves its file. Without file locks, none can be told from those that are written.
    """
    found: list[Path] = []
    try:
        paths = sorted(entry for entry in folder.iterdir() if _TEMPORARY.fullmatch(entry.name))
    except OSError:  # A folder may be writable and not readable.
        return found
    for path in paths:
        # Those of other users cannot be opened.
        with suppress(OSError), path.open("r+b") as file:
            if lock_file(file):
                found.append(path)
    return found


def longest_name(folder: Path) -> int:
    """Return the number of bytes that the name of a file in a folder may have."""
    with suppress(AttributeError, OSError, ValueError):
        return os.pathconf(folder, "PC_NAME_MAX")
    return 255


def is_same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to one file, also by symbolic or hard links. The files need not exist.

    Example:
        >>> is_same_file("scores.csv", "./scores.csv"), is_same_file("scores.csv", "scores.json")
        (True, False)
    """
    one, other = Path(one).resolve(), Path(other).resolve()
    return one == other or (one.exists() and other.exists() and one.samefile(other))


_follows_inputs: ContextVar[bool] = ContextVar("_follows_inputs", default=False)


@contextmanager
def outputs_as_private_as_inputs() -> Iterator[None]:
    """Inside the block, let new files be no more readable than the files that :func:`note_input` was told of.

    This changes the umask of the process, so that it also applies to what other libraries write.
    """
    before = _umask()
    token = _follows_inputs.set(True)
    try:
        yield
    finally:
        _follows_inputs.reset(token)
        os.umask(before)


def note_input(file: BinaryIO) -> None:
    """Tell :func:`outputs_as_private_as_inputs` that a file with reports is read."""
    if not _follows_inputs.get():
        return
    mode = os.fstat(file.fileno()).st_mode
    if stat.S_ISREG(mode):
        hidden = (0 if mode & stat.S_IRGRP else stat.S_IRWXG) | (0 if mode & stat.S_IROTH else stat.S_IRWXO)
        os.umask(_umask() | hidden)
