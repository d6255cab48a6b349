"""Cache of accepted answers in a folder."""

import os
import sqlite3
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

# Maximum wait for a write of another process: longer than a write takes, much shorter than a call to a model.
LOCK_SECONDS = 5.0
# Approximate maximum size of the database in bytes.
_SIZE_LIMIT = 4 * 2**30
# Name of the database. SQLite's further files begin with it.
_FILE = "answers.db"
_SETUP = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",
    # Without a type, so that SQLite converts no value that another program wrote into a text.
    "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer)",
)
_TRIM = """
DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers ORDER BY rowid LIMIT 10)
AND (SELECT (page_count - freelist_count) * page_size
     FROM pragma_page_count, pragma_freelist_count, pragma_page_size) > ?
"""


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

    Reading does not write. The oldest entries are deleted if the file exceeds 4 GiB.

    If the cache cannot be opened, read or written, for example because the disk is full, the file is damaged or another
    process holds the lock, it warns once. It then behaves as if it were empty until :meth:`close`, so that a lock is
    waited for only once.

    Args:
        folder: Folder on a local disk. If it does not exist, it is created. Only this user can read its files, nor
            enter the folder unless other files are in it.
        lock_seconds: Maximum seconds to wait for another process.

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

    def __init__(self, folder: str | os.PathLike[str], *, lock_seconds: float = LOCK_SECONDS) -> None:
        self._folder = Path(folder).expanduser()
        self._lock_seconds = lock_seconds
        self._connection: sqlite3.Connection | None = None
        self._is_failed = self._is_warned = False
        self._lock = threading.Lock()
        self._run("SELECT 1")

    def __len__(self) -> int:
        return sum(count for (count,) in self._run("SELECT COUNT(*) FROM answers"))

    def get(self, key: str) -> str | None:
        """Return the text of a key, or ``None``. An entry of another program that is no text is deleted."""
        for (answer,) in self._run("SELECT answer FROM answers WHERE key = ?", key):
            if isinstance(answer, str):
                return answer
            self.drop(key)
        return None

    def put(self, key: str, text: str) -> None:
        """Store a text, unless the key already has one."""
        self._run("INSERT OR IGNORE INTO answers VALUES (?, ?)", key, text)
        self._run(_TRIM, _SIZE_LIMIT)

    def drop(self, key: str) -> None:
        """Delete the entry of a key."""
        self._run("DELETE FROM answers WHERE key = ?", key)

    def close(self) -> None:
        """Close the files; the next use opens them again, also after a failure."""
        with self._lock:
            self._disconnect()
            self._is_failed = False

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; none if the cache fails."""
        with self._lock:
            if self._is_failed:
                return []
            try:
                connection = self._connection or self._open()
                return connection.execute(statement, values).fetchall()
            except (sqlite3.Error, OSError) as error:
                self._disconnect()
                self._is_failed = True
                if not self._is_warned:
                    self._is_warned = True
                    warnings.warn(
                        f"the cache of answers in {self._folder} fails ({type(error).__name__}: {error}); answers "
                        "that it does not store are requested again",
                        RuntimeWarning,
                        stacklevel=3,
                    )
                return []

    def _open(self) -> sqlite3.Connection:
        make_private(self._folder)
        # The lock of this object lets only one thread use the connection at a time.
        self._connection = sqlite3.connect(
            self._folder / _FILE, timeout=self._lock_seconds, isolation_level=None, check_same_thread=False
        )
        for statement in _SETUP:
            self._connection.execute(statement).fetchall()
        return self._connection
