"""A log of a run that keeps what it receives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rrg_rewards.utilities.run_log import Progress, RunLog


class RunNotes(RunLog):
    """Keeps notes, warnings and steps of the progress.

    Args:
        on_step: Function that is called before each step, and may raise an error.
    """

    def __init__(self, on_step: Callable[[], None] = lambda: None) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.steps: list[tuple[str, int, int]] = []
        self.on_step = on_step

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    @contextmanager
    def progress(self, description: str) -> Iterator[Progress]:
        def step(finished: int, added: int) -> None:
            self.on_step()
            self.steps.append((description, finished, added))

        yield step
