"""Requests to a judge whose answers are appended to a file: estimate, run, and messages."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.judges.base import STOPPED, Item, Judge, JudgeFailure, JudgeTask, Message, Result
from rrg_rewards.judges.server.rate_limit import estimated_tokens

__all__ = [
    "Estimate",
    "Unanswered",
    "describe_costs",
    "estimate",
    "evaluate_and_keep",
    "format_money",
    "interruptible",
    "note_destination",
    "show_dry_run",
    "show_unanswered",
    "usage_of",
    "warn_of_other_answers",
]

# Number of items of an immediate judge in a batch.
_BATCH = 64


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of a run, without repeated requests.

    Args:
        requests: Number of calls.
        prompt_tokens: Tokens of prompts.
        completion_tokens: Tokens of answers.
        cost: Cost of the tokens; ``None`` without a price.
        minutes: Minimum time at the rate limits; ``None`` without limits.
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    minutes: float | None


def estimate(
    task: JudgeTask[Item, Any],
    items: Sequence[Item],
    answers: Iterable[str],
    price: tuple[float, float] | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
) -> Estimate:
    """Estimate the cost of requests.

    Args:
        task: The task.
        items: The items.
        answers: A text as long as the expected answer for each item.
        price: Prices as in ``ServerSettings``.
        requests_per_minute: Limit as in ``ServerSettings``.
        tokens_per_minute: Limit as in ``ServerSettings``.

    Example:
        >>> from rrg_rewards.judges.tasks.counting import CountingTask, ReportPair
        >>> pairs = [ReportPair("Small left effusion.", "Clear.")] * 10
        >>> found = estimate(CountingTask(), pairs, ["{}"] * 10, price=(1.0, 4.0), requests_per_minute=5)
        >>> found.requests, found.minutes
        (10, 2.0)
    """
    prompt = sum(estimated_tokens(message["content"] for message in task.messages(item)) for item in items)
    completion = sum(estimated_tokens([answer]) for answer in answers)
    cost = None if price is None else (price[0] * prompt + price[1] * completion) / 1_000_000
    times = [
        amount / limit
        for amount, limit in ((len(items), requests_per_minute), (prompt + completion, tokens_per_minute))
        if limit is not None
    ]
    return Estimate(len(items), prompt, completion, cost, max(times, default=None))


def describe_costs(expected: Estimate) -> list[str]:
    """Describe an estimate in lines of text."""
    lines = [
        f"estimated tokens: {expected.prompt_tokens:,} of prompts, {expected.completion_tokens:,} of answers (4 "
        "characters per token)",
    ]
    if expected.cost is None:
        lines.append("cost: unknown without --price-in and --price-out")
    else:
        lines.append(f"estimated cost: {format_money(expected.cost)}, without repeated requests")
    if expected.minutes is None:
        lines.append("time: unknown without a rate limit")
    else:
        lines.append(f"minimum time at the rate limits: {_duration(expected.minutes)}")
    return lines


def format_money(amount: float) -> str:
    """Format a cost.

    Example:
        >>> format_money(0.0213), format_money(1234.5)
        ('0.0213', '1,234.50')
    """
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}"


def _duration(minutes: float) -> str:
    return f"{minutes:.1f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


@dataclass
class Unanswered:
    """Items without a result.

    Args:
        failures: Failed items, by kind of failure.
        reasons: Reason of the first failure of each kind.
        not_asked: Items that were not requested because the judge was stopped.
    """

    failures: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    not_asked: int = 0

    @property
    def total(self) -> int:
        """Number of items without a result."""
        return self.failures.total() + self.not_asked

    def summary(self) -> dict[str, Any]:
        """Return the counts for ``--json``."""
        return {"failures": dict(self.failures), "reasons": self.reasons, "not_asked": self.not_asked}


def evaluate_and_keep(
    judge: Judge,
    task: JudgeTask[Item, Result],
    items: Sequence[Item],
    keep: Callable[[Item, Result], None],
    report: Callable[[int, int], None],
) -> Unanswered:
    """Evaluate items, and pass each result to ``keep`` as soon as its answer is accepted.

    An immediate judge, which has no answers, evaluates in batches.

    Args:
        judge: The judge.
        task: The task.
        items: The items.
        keep: Function that keeps an item and its result.
        report: Function that :meth:`Terminal.progress` yields.
    """
    report(0, len(items))

    def kept(item: Item, result: Result) -> None:
        keep(item, result)
        report(1, 0)

    found = Unanswered()
    asked, size = (task, _BATCH) if judge.is_immediate else (_KeepingTask(task, kept), max(1, len(items)))
    for start in range(0, len(items), size):
        batch = items[start : start + size]
        results = [STOPPED] * len(batch) if judge.is_stopped else judge.evaluate_now(asked, batch)
        for item, result in zip(batch, results, strict=True):
            if result == STOPPED:
                found.not_asked += 1
            elif isinstance(result, JudgeFailure):
                found.failures[result.kind] += 1
                found.reasons.setdefault(result.kind, result.reason)
            elif judge.is_immediate:
                kept(item, result)
    return found


class _KeepingTask(JudgeTask[Item, Result]):
    """Passes each result to ``keep`` when its answer is parsed, because a judge returns results only at the end."""

    def __init__(self, task: JudgeTask[Item, Result], keep: Callable[[Item, Result], None]) -> None:
        self._task = task
        self._keep = keep
        self.name = task.name

    @property
    def prompt_hash(self) -> str:
        return self._task.prompt_hash

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._task.schema

    def messages(self, item: Item) -> list[Message]:
        return self._task.messages(item)

    def refusal(self, item: Item) -> JudgeFailure | None:
        return self._task.refusal(item)

    def parse(self, item: Item, answer: str) -> Result:
        result = self._task.parse(item, answer)
        self._keep(item, result)
        return result


@contextmanager
def interruptible(judge: Judge, terminal: Terminal, command: str) -> Iterator[None]:
    """Let the first Ctrl-C stop a judge, with a note; let the second end the process immediately."""
    # Only the main thread can handle signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        # An exception could be caught by the interrupted code. All accepted answers are in the file.
        os.write(2, f"\nrrg-rewards {command}: interrupted\n".encode())
        os._exit(130)

    def stop(*_: Any) -> None:
        signal.signal(signal.SIGINT, end)
        judge.stop()
        terminal.note("stopping after the running calls; Ctrl-C again stops immediately")

    before: Any = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def show_dry_run(
    task: JudgeTask[Item, Any],
    items: Sequence[Item],
    lines: Iterable[str],
    judge: Judge | None,
    terminal: Terminal,
    stderr: bool,
) -> None:
    """Show the conversation about the first item, lines on all items, and the machine that would get the reports."""
    for message in task.messages(items[0]) if items else ():
        terminal.show(f"--- {message['role']}\n{message['content']}\n", stderr=stderr)
    terminal.show(*lines, stderr=stderr)
    address = getattr(judge, "address", None)
    if address is not None:
        terminal.show(f"reports would be sent to {address.host}", stderr=stderr)
    terminal.note("nothing was sent")


def note_destination(judge: Judge, content: str, terminal: Terminal) -> None:
    """Name the machine to which ``content``, such as ``20 reports``, is sent, if it is not this one."""
    address = getattr(judge, "address", None)
    if address is not None and not address.is_loopback:
        terminal.note(f"{content} are sent to {address.host}, as allow_remote permits")


def warn_of_other_answers(
    judges: Collection[str], prompts: Collection[str], judge: Judge, task: JudgeTask[Any, Any], terminal: Terminal
) -> None:
    """Warn about reports in the output that come from another judge or prompt."""
    if others := {*judges} - {judge.signature}:
        terminal.warn(f"the output also contains reports of another judge: {min(others)}")
    if {*prompts} - {task.prompt_hash}:
        terminal.warn("the output also contains reports written with other instructions, criteria or package versions")


def usage_of(judge: Judge) -> dict[str, Any] | None:
    """Return the calls, tokens and cost of a judge with a server, for ``--json``."""
    usage = getattr(judge, "usage", None)
    return None if usage is None else asdict(usage)


def show_unanswered(judge: Judge, found: Unanswered, noun: str, terminal: Terminal) -> None:
    """Show the usage of the judge, the failures, and the number of missing items, which are called ``noun``."""
    usage = getattr(judge, "usage", None)
    if usage is not None:
        cost = "" if usage.cost is None else f", cost {format_money(usage.cost)}"
        terminal.note(
            f"{usage.calls} calls ({usage.retries} retries), {usage.cached} answers from the cache, "
            f"{usage.prompt_tokens:,} prompt tokens, {usage.completion_tokens:,} completion tokens{cost}"
        )
    for kind, count in found.failures.items():
        terminal.warn(f"{count} failed with {kind}; the first: {found.reasons[kind]}")
    if found.total:
        terminal.note(f"{found.total} {noun} are missing; repeat the command to request them")
