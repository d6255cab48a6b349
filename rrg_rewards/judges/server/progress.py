"""Progress bar of an evaluation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(description: str, total: int, show: bool) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error if ``show`` is set and standard error is a terminal.

    Yields:
        A function to call after each item.

    Example:
        >>> with progress_bar("judging", total=2, show=False) as done:
        ...     done()
    """
    if not show:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total)
        yield lambda: bar.advance(task)
