"""Answers that were checked once, kept in a folder that processes and threads share."""

import os
import sqlite3
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rrg_rewards.utilities.imports import require

__all__ = ["AnswerCache"]

# How long a process waits for another one's write. Longer than any write takes, short beside a call to a model.
_LOCK_SECONDS = 5

T = TypeVar("T")


class _NoTextError(Exception):
    """An entry that this library did not write."""


@cache
def _text_disk() -> type[Any]:
    """How diskcache stores: texts in the table's rows.

    Nothing is unpickled and no file is opened or deleted by a name that a row holds, whoever wrote the row.
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
            """No entry has a file."""

    return TextDisk


class AnswerCache:
    """Texts by key in a folder, for any number of processes and threads.

    What is kept are texts and nothing else: an entry of another kind is dropped, never unpickled. Reading does not
    write. Beyond the size limit the oldest entries go. A cache that fails (a full disk, a lock that another process
    holds) is as good as none: it warns once, and what it would have kept is asked again.

    Args:
        folder: Where to keep the answers, on a disk of this machine; made if absent, for this user alone.
        size_limit: Bytes that the folder may take, about.

    Raises:
        ModuleNotFoundError: If diskcache is not installed, naming the pip command.
        OSError: If the folder cannot be made.
        sqlite3.Error: If it holds a damaged cache.

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

    def __init__(self, folder: str | os.PathLike[str], *, size_limit: int = 4 * 2**30) -> None:
        diskcache = require("diskcache", extra="judge")
        self._folder = Path(folder).expanduser()
        self._failures: tuple[type[Exception], ...] = (sqlite3.Error, diskcache.Timeout, OSError)
        self._warned = False
        self._lock = threading.Lock()
        # Answers repeat what reports say.
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._table = diskcache.Cache(
            str(self._folder),
            timeout=_LOCK_SECONDS,
            disk=_text_disk(),
            # By the time of storing: any other order would write at each reading.
            eviction_policy="least-recently-stored",
            size_limit=size_limit,
            statistics=0,
            tag_index=0,
        )

    def __len__(self) -> int:
        return len(self._table)

    def get(self, key: str) -> str | None:
        """The text under a key, or ``None``."""
        text: str | None = None
        try:
            text = self._guarded(lambda: self._table.get(key), None)
        except _NoTextError:
            self.drop(key)
        return text

    def put(self, key: str, text: str) -> None:
        """Keep a text, unless the key has one."""
        self._guarded(lambda: self._table.add(key, text), False)

    def drop(self, key: str) -> None:
        """Forget what is under a key."""
        self._guarded(lambda: self._table.delete(key, retry=False), False)

    def close(self) -> None:
        """Let go of this thread's file handles; the next use opens them again."""
        self._table.close()

    def _guarded(self, action: Callable[[], T], otherwise: T) -> T:
        try:
            return action()
        except self._failures as error:
            with self._lock:
                first, self._warned = not self._warned, True
            if first:
                warnings.warn(
                    f"the cache of answers in {self._folder} fails ({type(error).__name__}: {error}); what it does "
                    "not keep is asked again",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return otherwise
