"""Where a long run sends its notes, warnings and progress."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
"""A function of the number of finished items and the number of items to add to the total."""


class RunWarning(UserWarning):
    """A warning about the data or the settings of a run, such as missing predictions."""


class RunLog:
    """Receives the notes, warnings and progress of a run.

    This class turns warnings into Python warnings of the category :class:`RunWarning`, and ignores notes and progress.
    Subclasses show them, such as the terminal of the command line.

    Example:
        >>> with RunLog().progress("scoring") as progress:
        ...     progress(0, 2)
        ...     progress(1, 0)
    """

    def note(self, text: str) -> None:
        """Receive a message that needs no action."""

    def warn(self, text: str) -> None:
        """Receive a warning."""
        warnings.warn(text, RunWarning, stacklevel=3)

    @contextmanager
    def progress(self, description: str) -> Iterator[Progress]:  # noqa: ARG002 (of subclasses)
        """Begin a part of the run, and yield the function that receives its progress."""
        yield lambda finished, added: None  # noqa: ARG005 (as the others)
