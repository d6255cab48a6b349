"""Cache of accepted answers in a folder."""

import os
import sqlite3
import threading
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rrg_rewards.utilities.imports import require

# Maximum wait for a write of another process: longer than a write takes, much shorter than a call to a model.
LOCK_SECONDS = 5.0
# Name of the database that diskcache creates in its folder. SQLite's further files begin with it.
_FILE = "cache.db"
# States of the cache in a thread.
_CLOSED, _OPEN, _FAILED = range(3)

T = TypeVar("T")


class _NoTextError(Exception):
    """The entry was not written by this library."""


@cache
def _text_disk() -> type[Any]:
    """Return a storage class for diskcache that stores texts in the database only.

    It never unpickles data, and never opens or deletes a file that an entry names, even if another program wrote it.
    """
    core = require("diskcache", extra="judge").core

    class TextDisk(core.Disk):  # type: ignore[misc, name-defined]
        def put(self, key: str) -> tuple[str, bool]:
            return key, True

        def store(self, value: str, read: bool, key: object = None) -> tuple[int, int, None, str]:  # noqa: ARG002
            return 0, core.MODE_RAW, None, value

        def fetch(self, mode: int, filename: str | None, value: object, read: bool) -> str:  # noqa: ARG002
            if mode != core.MODE_RAW or not isinstance(value, str):
                raise _NoTextError
            return value

        def get(self, key: object, raw: bool) -> str:
            if not raw or not isinstance(key, str):
                raise _NoTextError
            return key

        def remove(self, file_path: str) -> None:
            """Do nothing, because no entry has a file."""

    return TextDisk


def make_private(folder: Path) -> None:
    """Create the folder of a cache, and let only this user read the cache, because answers quote reports.

    A folder that exists is closed to other users if it is empty or contains nothing but the cache. Otherwise only the
    files of the cache are.

    Raises:
        OSError: If the folder cannot be created.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (folder / _FILE).touch(mode=0o600, exist_ok=False)
    entries = list(folder.iterdir())
    cache_files = [entry for entry in entries if entry.name.startswith(_FILE)]
    for path in (*cache_files, *([folder] if len(cache_files) == len(entries) else [])):
        # SQLite deletes its journal when another thread or process closes the cache. Other users decide who reads their
        # own files.
        with suppress(FileNotFoundError, PermissionError):
            if path.stat().st_mode & 0o077:
                path.chmod(0o700 if path == folder else 0o600)


class AnswerCache:
    """Stores texts by key in a folder that several processes and threads can share.

    An entry that is not a text is deleted and never unpickled. Reading does not write. The oldest entries are deleted
    if the folder exceeds the size limit.

    If the cache cannot be opened, read or written, for example because the disk is full, the file is damaged or another
    process holds the lock, it warns once. In this thread it then behaves as if it were empty until :meth:`close`, so
    that a lock is waited for only once.

    Args:
        folder: Folder on a local disk. If it does not exist, it is created. Only this user can read its files, nor
            enter the folder unless other files are in it.
        size_limit: Approximate maximum size in bytes.
        lock_seconds: Maximum seconds to wait for another process.

    Raises:
        ModuleNotFoundError: If diskcache is not installed, naming the pip command.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     answers = AnswerCache(folder)
        ...     answers.put("key", "answer")
        ...     found = answers.get("key"), answers.get("other"), len(answers)
        ...     answers.close()
        >>> found
        ('answer', None, 1)
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, size_limit: int = 4 * 2**30, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        diskcache = require("diskcache", extra="judge")
        self._folder = Path(folder).expanduser()
        self._size_limit = size_limit
        self._lock_seconds = lock_seconds
        self._failures: tuple[type[Exception], ...] = (sqlite3.Error, diskcache.Timeout, OSError)
        self._warned = False
        self._lock = threading.Lock()
        self._table: Any = None
        # diskcache has one connection per thread.
        self._thread = threading.local()
        self._guarded(lambda: None, None)

    def __len__(self) -> int:
        return self._guarded(lambda: len(self._table), 0)

    def get(self, key: str) -> str | None:
        """Return the text of a key, or ``None``."""
        text: str | None = None
        try:
            text = self._guarded(lambda: self._table.get(key), None)
        except _NoTextError:
            self.drop(key)
        return text

    def put(self, key: str, text: str) -> None:
        """Store a text, unless the key already has one."""
        self._guarded(lambda: self._table.add(key, text), False)

    def drop(self, key: str) -> None:
        """Delete the entry of a key."""
        self._guarded(lambda: self._table.delete(key, retry=False), False)

    def close(self) -> None:
        """Close this thread's file handles; the next use opens them again, also after a failure."""
        if self._table is not None:
            self._table.close()
        self._thread.state = _CLOSED

    def _open(self) -> None:
        """Open the cache in this thread.

        Raises:
            OSError: If the folder cannot be created.
            sqlite3.Error: If the file is damaged, or another process holds the lock.
        """
        make_private(self._folder)
        with self._lock:
            self._check(writable=self._table is None)
            if self._table is None:
                self._table = require("diskcache", extra="judge").Cache(
                    str(self._folder),
                    timeout=self._lock_seconds,
                    disk=_text_disk(),
                    # Other policies write when an entry is read.
                    eviction_policy="least-recently-stored",
                    size_limit=self._size_limit,
                    statistics=0,
                    tag_index=0,
                )

    def _check(self, writable: bool) -> None:
        """Raise :class:`sqlite3.Error` if the file cannot be read or written. diskcache would wait for 60 s."""
        connection = sqlite3.connect(self._folder / _FILE, timeout=self._lock_seconds, isolation_level=None)
        with closing(connection):
            connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
            if writable:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")

    def _guarded(self, action: Callable[[], T], otherwise: T) -> T:
        state = getattr(self._thread, "state", _CLOSED)
        if state == _FAILED:
            return otherwise
        try:
            if state == _CLOSED:
                self._open()
                self._thread.state = _OPEN
            return action()
        except self._failures as error:
            self._thread.state = _FAILED
            with self._lock:
                first, self._warned = not self._warned, True
            if first:
                warnings.warn(
                    f"the cache of answers in {self._folder} fails ({type(error).__name__}: {error}); answers "
                    "that it does not store are requested again",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return otherwise
