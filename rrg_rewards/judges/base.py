"""Base classes: a judge evaluates the items of a task and returns checked results or failures."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from rrg_rewards.functional.crimson import Route
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.processes import run_coroutine

if TYPE_CHECKING:
    from rrg_rewards.findings.reading.coverage import PairCoverage

FailureKind = Literal["deadline", "connection", "status", "malformed", "inconsistent", "unread"]
"""Kind of failure: out of time, server unreachable, request refused, answer not valid JSON, answer that contradicts
itself or the reports, or reference that the rules cannot read."""

Message = dict[str, str]
"""One message of a conversation: ``role`` and ``content``."""

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


@dataclass(frozen=True)
class ReportPair:
    """A reference and a candidate report, with the known context of the patient.

    Args:
        reference: Reference report.
        candidate: Candidate report.
        context: Name (``age``, ``sex``, ``indication``) and text of each known fact.

    Example:
        >>> ReportPair("Cardiomegaly.", "Normal.", (("age", "82"),)).context
        (('age', '82'),)
    """

    reference: str
    candidate: str
    context: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class JudgeFailure:
    """The reason why an item has no result.

    Args:
        kind: Kind of failure, for counts.
        reason: Description of the failure, without report text.
        coverage: How much of the reference and of the candidate of a pair the rules have read; ``None`` if not known.
        route: Judge of the pair in a cascade; empty without one.
    """

    kind: FailureKind
    reason: str
    coverage: "PairCoverage | None" = field(default=None, repr=False)
    route: Route = ""


class JudgeWarning(UserWarning):
    """A judge failed on some items, which have no result."""


def remember_results(known: dict[Item, Any], results: Mapping[Item, Any], most: int) -> None:
    """Add results that are no failures to those that are known, and remove the least recently used ones.

    Args:
        known: Known results by item; changed by this function.
        results: Results by item, also of items that were known.
        most: Maximum number of results to keep.

    Example:
        >>> known = {"a": 1, "b": 2}
        >>> remember_results(known, {"a": 1, "c": 3, "d": JudgeFailure("deadline", "late")}, most=2)
        >>> known
        {'a': 1, 'c': 3}
    """
    for item, result in results.items():
        if not isinstance(result, JudgeFailure):
            # Move the item to the end, because the first items are removed first.
            known.pop(item, None)
            known[item] = result
    for item in list(known)[: max(0, len(known) - most)]:
        known.pop(item, None)


class AnswerError(ValueError):
    """A rejected answer.

    Args:
        kind: ``malformed`` or ``inconsistent``.
        reason: Description of the error, without report text.
    """

    def __init__(self, kind: FailureKind, reason: str) -> None:
        super().__init__(reason)
        self.kind: FailureKind = kind


class JudgeTask(ABC, Generic[Item, Result]):
    """Builds the prompt about an item and checks the answer of a language model.

    A task has no state, so that several judges can share it.
    """

    name: str
    """Name of the task in signatures and cache keys."""

    @property
    @abstractmethod
    def prompt_hash(self) -> str:
        """Short hash of the prompt without the item: instructions, layout and schema of the answer."""

    @property
    @abstractmethod
    def schema(self) -> Mapping[str, Any]:
        """JSON schema of the answer; empty if the answer is free text, which is not constrained."""

    @abstractmethod
    def messages(self, item: Item) -> list[Message]:
        """Build the conversation, with the item's texts delimited and escaped."""

    def shared_part(self, item: Item) -> Hashable:  # noqa: ARG002 (for subclasses)
        """Return what follows the instructions in an item's prompt and other items share; ``None`` if there is nothing.

        This is for example the reference of a pair. Requests with an equal part are sent one after the other, so that a
        server computes the part once and then takes it from its prefix cache.
        """
        return None

    def refusal(self, item: Item) -> JudgeFailure | None:  # noqa: ARG002 (for subclasses)
        """Return why a language model must not be asked about an item; ``None`` if it may be."""
        return None

    @abstractmethod
    def parse(self, item: Item, answer: str) -> Result:
        """Return the result of an answer.

        Raises:
            AnswerError: If the answer is malformed, or contradicts itself or the item. The reason contains no report
                text.
        """


def in_request_order(task: JudgeTask[Item, Any], items: Iterable[Item]) -> list[Item]:
    """Return items in the order of their requests: those with an equal :meth:`JudgeTask.shared_part` together.

    Args:
        task: The task.
        items: The items. Parts, and the items of a part, keep the order in which they first occur.
    """
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(task.shared_part(item), []).append(item)
    return [item for group in groups.values() for item in group]


class Judge(Backend, ABC):
    """Evaluates the items of a task, such as the report pairs of CRIMSON."""

    is_immediate = False
    """Whether :meth:`evaluate` never waits, so that asynchronous calls have no benefit."""

    gives_coverage = False
    """Whether results say how much of both reports the judge has read, in the attribute ``coverage``."""

    has_independent_rows = False
    """Whether an item is evaluated in the same way whatever other items are evaluated with it."""

    task_names: tuple[str, ...] | None = None
    """Names of the tasks that the judge has rules for; ``None`` if it can evaluate any task."""

    judge_names: Mapping[Route, str] = {}
    """Names of the judges of a cascade by route; empty for other judges."""

    @property
    def short_name(self) -> str:
        """First word of the signature, with the model if it follows.

        Example:
            >>> from rrg_rewards.judges import OpenAIJudge, RuleJudge
            >>> RuleJudge().short_name, OpenAIJudge("medgemma-4b").short_name
            ('rules', 'openai:medgemma-4b')
        """
        kind, _, rest = self.signature.partition("|")
        name, _, model = rest.partition("|")[0].partition(":")
        return f"{kind}:{model}" if name == "model" else kind

    @property
    def worker_refusal(self) -> str | None:
        """Why worker processes must not have a copy each: requests are concurrent, or each would load a model."""
        if self.is_immediate:
            return None
        return (
            "a language model as judge answers about many reports concurrently in one process, and each worker would "
            "send requests beyond its limits or load a copy of the model; leave out `workers`"
        )

    @property
    @abstractmethod
    def signature(self) -> str:
        """Model and revision, or digests of the rules, and all settings that results depend on."""

    @abstractmethod
    async def evaluate(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Evaluate items concurrently; equal items are evaluated once.

        Args:
            task: The task.
            items: ``N`` items.

        Returns:
            For each item, in order, its result or its failure.
        """

    def evaluate_now(self, task: JudgeTask[Item, Result], items: Sequence[Item]) -> list[Result | JudgeFailure]:
        """Call :meth:`evaluate` from synchronous code, also inside a running event loop."""
        return run_coroutine(self.evaluate(task, items))

    def rerun(self, run: int) -> "Judge":
        """Return this judge with other random draws, for another evaluation of the same items.

        Args:
            run: Number of the run. Run 0 is this judge.

        Raises:
            ValueError: If the judge draws nothing at random, so that each run would return the same results.
        """
        if run == 0:
            return self
        if run not in self._reruns:
            self._reruns[run] = self._make_rerun(run)
        return self._reruns[run]

    @cached_property
    def _reruns(self) -> "dict[int, Judge]":
        return {}

    def _make_rerun(self, run: int) -> "Judge":  # noqa: ARG002 (for subclasses)
        """Return a new judge for :meth:`rerun`."""
        raise ValueError(f"{type(self).__name__} returns the same result in each run; set runs to 1")
