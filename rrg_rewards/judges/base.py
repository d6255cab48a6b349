"""What every judge has in common: an asynchronous batch of items in, checked results or failures out."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from rrg_rewards.utilities.backend import Backend

__all__ = [
    "STOPPED",
    "AnswerError",
    "FailureKind",
    "Judge",
    "JudgeFailure",
    "JudgeTask",
    "Message",
    "ReportPair",
    "run_coroutine",
]

FailureKind = Literal["deadline", "connection", "status", "malformed", "inconsistent"]
"""Why a judge gave no result: out of time, unreachable, refused by the server, no valid JSON, or an answer at odds
with itself or the reports."""

Message = dict[str, str]
"""One message of a conversation: ``role`` and ``content``."""

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")
T = TypeVar("T")


@dataclass(frozen=True)
class ReportPair:
    """A reference and a candidate report, with what is known of the patient.

    Args:
        reference: Reference report.
        candidate: Candidate report.
        context: Pairs of a name (``age``, ``sex``, ``indication``) and its text, those that are known.

    Example:
        >>> ReportPair("Cardiomegaly.", "Normal.", (("age", "82"),)).context
        (('age', '82'),)
    """

    reference: str
    candidate: str
    context: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class JudgeFailure:
    """Why an item has no result.

    Args:
        kind: What went wrong, for counts.
        reason: What went wrong, in words, without report text.
    """

    kind: FailureKind
    reason: str


STOPPED = JudgeFailure("deadline", "the judge was stopped before it asked")
"""Why an item has no result after :meth:`Judge.stop`."""


class AnswerError(ValueError):
    """An answer that must not count.

    Args:
        kind: ``malformed`` or ``inconsistent``.
        reason: What is wrong, in words, without report text.
    """

    def __init__(self, kind: FailureKind, reason: str) -> None:
        super().__init__(reason)
        self.kind: FailureKind = kind


class JudgeTask(ABC, Generic[Item, Result]):
    """What a language model is asked about an item, and how its answer becomes a result.

    A task holds no state, so that one object serves all judges.
    """

    name: str
    """What the task is called in signatures and cache keys."""

    @property
    @abstractmethod
    def prompt_hash(self) -> str:
        """Short hash of everything in the prompt that is not the item: instructions, layout and answer schema."""

    @property
    @abstractmethod
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer."""

    @abstractmethod
    def messages(self, item: Item) -> list[Message]:
        """The conversation to answer, with the item's texts delimited and escaped."""

    @abstractmethod
    def parse(self, item: Item, answer: str) -> Result:
        """Result of an answer.

        Raises:
            AnswerError: If the answer is malformed, or at odds with itself or the item.
        """


class Judge(Backend, ABC):
    """Evaluates items of a task: report pairs for CRIMSON."""

    is_immediate = False
    """Whether :meth:`evaluate` never waits, so that there is nothing to run beside it."""

    is_stopped = False
    """Whether :meth:`stop` was called."""

    @property
    @abstractmethod
    def signature(self) -> str:
        """What exactly judges: model and revision, or rules and their contents, and settings."""

    @abstractmethod
    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Evaluate items, all at once; equal ones once.

        Args:
            task: What to ask.
            items: ``N`` items.

        Returns:
            For each item, in order, its result or why there is none.
        """

    def evaluate_now(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """:meth:`evaluate` for callers that are not asynchronous, also inside a running event loop."""
        return run_coroutine(self.evaluate(task, items))

    def stop(self) -> None:
        """Ask nothing more, from any thread: what was asked already is waited for, all else fails with ``STOPPED``."""
        self.is_stopped = True


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result.

    In a thread whose event loop is running, as in a notebook, it runs in another thread.

    Example:
        >>> async def answer():
        ...     return 42
        >>> run_coroutine(answer())
        42
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(coroutine))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="rrg-rewards-judge")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
