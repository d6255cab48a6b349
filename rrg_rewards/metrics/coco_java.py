"""The programs in Java of pycocoevalcap: tokens of the Penn Treebank, and METEOR 1.5."""

import os
import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.imports import require

_PACKAGE = "pycocoevalcap"
_EXTRA = "coco"
# What separates the parts of a line that the program reads.
_SEPARATOR = "|||"


def package_version() -> str:
    """Return the name and version of the package with the programs; without a version if it is not installed."""
    try:
        return f"{_PACKAGE}=={version(_PACKAGE)}"
    except PackageNotFoundError:
        return _PACKAGE


def ptb_tokenize(texts: Sequence[str]) -> list[str]:
    """Return texts as pycocoevalcap's tokenizer separates them: lower-case words, without punctuation marks.

    Raises:
        ModuleNotFoundError: If pycocoevalcap is not installed, naming the pip command.
        FileNotFoundError: If there is no Java.
    """
    if not texts:
        return []
    tokenizer = require("pycocoevalcap.tokenizer.ptbtokenizer", extra=_EXTRA).PTBTokenizer()
    try:
        # Each text is on a line of its own.
        found = tokenizer.tokenize({row: [{"caption": _in_a_line(text)}] for row, text in enumerate(texts)})
    except FileNotFoundError as error:
        raise _no_java() from error
    return [found[row][0] for row in range(len(texts))]


class MeteorJar(Backend):
    """METEOR 1.5 as a program that runs beside this process and answers line by line.

    Copies share the program. Another process, such as a worker of a data loader, starts its own.
    """

    num_statistics = 23
    """Number of statistics of a pair."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._meteor: Any = None

    def statistics(self, preds: Sequence[str], target: Sequence[Sequence[str]]) -> list[list[float]]:
        """Return the statistics of each pair of a candidate and its references.

        They are lengths, function words and matches, and at the end the number of chunks and of matched words of both
        texts. :func:`summable` changes them for sums.
        """
        lines = [
            f" {_SEPARATOR} ".join(("SCORE", *map(_in_a_line, texts), _in_a_line(pred).replace("  ", " ")))
            for pred, texts in zip(preds, target, strict=True)
        ]
        with self._lock:
            return [[float(number) for number in self._ask(line).split()] for line in lines]

    def evaluate(self, rows: Sequence[Sequence[float]]) -> list[float]:
        """Return METEOR of each row of statistics, or of their sums."""
        values = []
        with self._lock:
            for row in rows:
                values.append(float(self._ask(f"EVAL {_SEPARATOR} {' '.join(map(str, row))}")))
                # The program also answers with the value of all rows of the request.
                self._read()
        return values

    def _ask(self, line: str) -> str:
        if self._owner != os.getpid():
            self._meteor, self._owner = _start(), os.getpid()
        try:
            self._meteor.meteor_p.stdin.write(f"{line}\n".encode())
            self._meteor.meteor_p.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error
        return self._read()

    def _read(self) -> str:
        answer = self._meteor.meteor_p.stdout.readline().decode().strip()
        if not answer:
            raise self._ended()
        return str(answer)

    def _ended(self) -> RuntimeError:
        """Return the error for a program that has ended; the next request starts another one."""
        self._owner = 0
        return RuntimeError("METEOR's program ended; does it have 2 GB of memory?")


def summable(statistics: Sequence[float]) -> list[float]:
    """Return the statistics of a pair as the program adds them up: a pair of equal texts has no chunk.

    Example:
        >>> summable([3.0, 3.0, *[0.0] * 18, 1.0, 3.0, 3.0])[-3:]
        [0.0, 3.0, 3.0]
    """
    length, reference_length, *_, chunks, matched, reference_matched = statistics
    is_equal = chunks == 1 and (matched, reference_matched) == (length, reference_length)
    return [*statistics[:-3], 0.0 if is_equal else chunks, matched, reference_matched]


def _start() -> Any:
    meteor = require("pycocoevalcap.meteor.meteor", extra=_EXTRA).Meteor
    try:
        return meteor()
    except FileNotFoundError as error:
        raise _no_java() from error


def _no_java() -> FileNotFoundError:
    return FileNotFoundError("there is no Java, which METEOR and the tokens of the Penn Treebank need; install a JRE")


def _in_a_line(text: str) -> str:
    """Return a text without line breaks and separators, which the programs would read as the end of a text."""
    return " ".join(text.replace(_SEPARATOR, "").splitlines())
