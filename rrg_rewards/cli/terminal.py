"""Output of commands: results on standard output, all messages on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rrg_rewards.utilities.run_log import Progress, RunLog
from rrg_rewards.utilities.texts import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Width of tables in files and pipes, in characters.
_PIPE_WIDTH = 120


def _raise_broken_pipe() -> None:
    raise BrokenPipeError


class Terminal(RunLog):
    """Writes messages, tables and progress bars, without the control characters of names and reports.

    Args:
        quiet: Write results and errors only.
        translate: Function that puts the options of the command into a text of the library.

    Example:
        >>> Terminal().show("crg 0.41")
        crg 0.41
    """

    def __init__(self, quiet: bool = False, translate: Callable[[str], str] = str) -> None:
        self.quiet = quiet
        self._translate = translate

    @staticmethod
    def _console(stderr: bool) -> Console:
        from rich.console import Console

        console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
        # All text goes through this function: messages, and the cells, headings and titles of tables.
        render = console.render_str
        console.render_str = lambda text, **options: render(printable(text), **options)  # type: ignore[method-assign]
        if not console.is_terminal:
            console.width = _PIPE_WIDTH
        # Otherwise rich would end the program with exit code 1, as if the command had failed.
        console.on_broken_pipe = _raise_broken_pipe  # type: ignore[method-assign]
        return console

    @property
    def is_interactive(self) -> bool:
        """Whether standard error is a terminal, in which progress bars are visible."""
        return self._console(stderr=True).is_terminal

    def _print(self, text: str) -> None:
        self._console(stderr=True).print(f"rrg-rewards: {self._translate(text)}", soft_wrap=True)

    def error(self, text: str) -> None:
        """Print an error message."""
        self._print(f"error: {text}")

    def exit_code(self, errors: Iterable[str]) -> int:
        """Print errors of a run whose outputs are written, and return the exit code: 1 if there are any."""
        code = 0
        for text in errors:
            self.error(text)
            code = 1
        return code

    def warn(self, text: str) -> None:
        """Print a warning, unless quiet."""
        if not self.quiet:
            self._print(f"warning: {text}")

    def note(self, text: str) -> None:
        """Print a message, unless quiet."""
        if not self.quiet:
            self._print(text)

    def show(self, *results: RenderableType, stderr: bool = False) -> None:
        """Print results.

        Args:
            results: Text, or tables of rich.
            stderr: Print to standard error, because standard output contains data; prints nothing if quiet.
        """
        if stderr and self.quiet:
            return
        console = self._console(stderr)
        for result in results:
            shown = self._translate(result) if isinstance(result, str) else result
            console.print(shown, soft_wrap=isinstance(result, str))

    @contextmanager
    def progress(self, description: str) -> Iterator[Progress]:
        """Show a progress bar on standard error if that is a terminal.

        Yields:
            A function of the number of finished items and the number of items to add to the total.
        """
        from rich import progress

        console = self._console(stderr=True)
        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
        )
        with progress.Progress(
            *columns, console=console, transient=True, disable=self.quiet or not console.is_terminal
        ) as bar:
            task = bar.add_task(description, total=None)
            done = expected = 0

            def report(finished: int, added: int) -> None:
                nonlocal done, expected
                done, expected = done + finished, expected + added
                bar.update(task, completed=done, total=expected)

            yield report
