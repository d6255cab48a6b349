"""What ``rrg-rewards grade`` does: plan what to ask, estimate what it takes, ask, and keep each answer at once."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rrg_rewards.data.appending import AppendedLines, read_whole_lines
from rrg_rewards.data.graded_reports import GradedReport, read_graded_reports
from rrg_rewards.data.tables import TableError
from rrg_rewards.judges.base import STOPPED, Judge, JudgeFailure
from rrg_rewards.judges.grading import GradingItem, GradingTask, WrittenReport, quality_tiers, tier_name
from rrg_rewards.judges.rate import estimated_tokens
from rrg_rewards.schemas.scoring import ScoringSystem

__all__ = ["Estimate", "GradingRun", "Outcome", "Plan", "check_held", "estimate", "interruptible", "make_plan"]

_HELD_COLUMNS = ("reference", "tier", "draw", "in_tier", "system", "judge", "prompt_hash")

Key = tuple[str, str, str]
"""Reference, tier and draw: what is never asked for twice."""


@dataclass(frozen=True)
class Plan:
    """What is to be asked, and what an output holds already.

    Args:
        items: Reports to ask for, those of one reference together.
        wanted: How many there are to be of each tier in the end.
        held: How many of them the output holds, by tier.
        held_in_tier: How many of those have a total in the tier that was asked for.
        judges: Signatures of the judges that wrote them.
        prompts: Hashes of the prompts that they were asked with.
    """

    items: tuple[GradingItem, ...]
    wanted: Counter[str]
    held: Counter[str] = field(default_factory=Counter)
    held_in_tier: Counter[str] = field(default_factory=Counter)
    judges: frozenset[str] = frozenset()
    prompts: frozenset[str] = frozenset()


def make_plan(references: Sequence[str], system: ScoringSystem, per_tier: int, output: str | Path) -> Plan:
    """Plan the reports of all tiers for some references, less those that an output holds.

    Args:
        references: Reference reports; equal ones count once.
        system: The scoring system, with its tiers.
        per_tier: Reports for each reference and tier.
        output: Where reports are kept; it need not be there, and is only read.

    Raises:
        TableError: If the output is no file of graded reports, or one of another scoring system.
        ValueError: If the system has no tiers.
    """
    wanted = [
        GradingItem(reference, tier, draw)
        for reference in dict.fromkeys(references)
        for tier in quality_tiers(system)
        for draw in range(1, per_tier + 1)
    ]
    counts = Counter(tier_name(item.tier) for item in wanted)
    table = read_whole_lines(output)
    if table is None:
        return Plan(tuple(wanted), counts)
    if missing := [name for name in _HELD_COLUMNS if name not in table.columns]:
        raise TableError(f"{output}: exists and is no output of this command: it lacks {', '.join(missing)}")
    columns = {name: table.columns[name] for name in _HELD_COLUMNS}
    if others := sorted({str(name) for name in columns["system"]} - {system.name}):
        raise TableError(
            f"{output}: holds reports graded under {others[0]}, not {system.name}; choose another --output"
        )
    texts = (map(str, columns[name]) for name in ("reference", "tier", "draw"))
    keys: list[Key] = list(zip(*texts, strict=True))
    in_tier = dict(zip(keys, columns["in_tier"], strict=True))
    held = [item for item in wanted if _key(item) in in_tier]
    return Plan(
        tuple(item for item in wanted if _key(item) not in in_tier),
        counts,
        Counter(tier_name(item.tier) for item in held),
        Counter(tier_name(item.tier) for item in held if in_tier[_key(item)]),
        frozenset(map(str, columns["judge"])),
        frozenset(map(str, columns["prompt_hash"])),
    )


def _key(item: GradingItem) -> Key:
    return item.reference, tier_name(item.tier), str(item.draw)


@dataclass(frozen=True)
class Estimate:
    """What asking takes, about, without answers that are asked for again.

    Args:
        requests: Calls.
        prompt_tokens: Tokens read.
        completion_tokens: Tokens written, if reports are as long as their references.
        cost: What the tokens cost, where a price is known.
        minutes: Least time at the rate limits, where there are any.
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    minutes: float | None


def estimate(
    task: GradingTask,
    items: Sequence[GradingItem],
    price: tuple[float, float] | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
) -> Estimate:
    """Estimate what asking for reports takes, sending nothing.

    Args:
        task: What is asked.
        items: The reports.
        price: Price of a million prompt tokens and of a million completion tokens.
        requests_per_minute: Most requests a minute.
        tokens_per_minute: Most tokens a minute.

    Example:
        >>> item = GradingItem("Small left effusion.", (-2.0, 0.0))
        >>> found = estimate(GradingTask("radcliq"), [item] * 10, price=(1.0, 4.0), requests_per_minute=5)
        >>> found.requests, found.minutes
        (10, 2.0)
    """
    # The keys of the answer, and about two characters for each number.
    frame = "".join(f'"{name}": 0, ' for name in ("report", "scores", *task.system.names))
    prompt = sum(estimated_tokens(message["content"] for message in task.messages(item)) for item in items)
    completion = sum(estimated_tokens([frame + item.reference]) for item in items)
    cost = None if price is None else (price[0] * prompt + price[1] * completion) / 1_000_000
    times = [
        amount / limit
        for amount, limit in ((len(items), requests_per_minute), (prompt + completion, tokens_per_minute))
        if limit is not None
    ]
    return Estimate(len(items), prompt, completion, cost, max(times, default=None))


@dataclass
class Outcome:
    """What a run brought.

    Args:
        written: Reports written, by tier.
        in_tier: Those with a total in the tier that was asked for.
        failures: Items that the judge failed on, by kind.
        reasons: What was wrong, by kind, for the first of each.
        not_asked: Items left when the judge was stopped.
    """

    written: Counter[str] = field(default_factory=Counter)
    in_tier: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    not_asked: int = 0


class GradingRun:
    """Asks a judge for reports and adds each to a file as soon as its answer counts.

    Args:
        judge: Whom to ask.
        system: The scoring system.
        output: Open file that takes the reports.
        source: What the reports say of where they are from.
        report: Told how many items are done and how many have been added, as :meth:`Terminal.progress` yields it.
    """

    def __init__(
        self,
        judge: Judge,
        system: ScoringSystem,
        output: AppendedLines,
        source: str,
        report: Callable[[int, int], None],
    ) -> None:
        self._judge = judge
        self._system = system
        self._output = output
        self._source = source
        self._report = report
        self._task = _RecordedTask(system, self._keep)
        self._outcome = Outcome()

    def run(self, items: Sequence[GradingItem]) -> Outcome:
        """Ask for reports until all are there, the judge fails on the rest, or is stopped."""
        self._report(0, len(items))
        for result in self._judge.evaluate_now(self._task, items):
            if result == STOPPED:
                self._outcome.not_asked += 1
            elif isinstance(result, JudgeFailure):
                self._outcome.failures[result.kind] += 1
                self._outcome.reasons.setdefault(result.kind, result.reason)
        return self._outcome

    def _keep(self, item: GradingItem, written: WrittenReport) -> None:
        scores = tuple(int(score) if score == int(score) else score for score in written.scores)
        graded = GradedReport(item.reference, written.text, scores, self._source, tier_name(item.tier))
        provenance = {
            "draw": item.draw,
            "in_tier": written.in_tier,
            "system": self._system.name,
            "judge": self._judge.signature,
            "prompt_hash": self._task.prompt_hash,
        }
        self._output.append(graded.to_record(self._system) | provenance)
        self._outcome.written[tier_name(item.tier)] += 1
        self._outcome.in_tier[tier_name(item.tier)] += written.in_tier
        self._report(1, 0)


class _RecordedTask(GradingTask):
    """The task, which hands on each result when its answer is read: a judge returns them only when all are there."""

    def __init__(self, system: ScoringSystem, keep: Callable[[GradingItem, WrittenReport], None]) -> None:
        super().__init__(system)
        self._keep = keep

    def __hash__(self) -> int:
        return super().__hash__()

    def parse(self, item: GradingItem, answer: str) -> WrittenReport:
        written = super().parse(item, answer)
        self._keep(item, written)
        return written


@contextmanager
def interruptible(judge: Judge, tell: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C stop a judge, which then waits for answers under way; a second one ends the process at once.

    Args:
        judge: Whom to stop.
        tell: Called at the first Ctrl-C.
    """
    # Signals are the main thread's.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        # Not by an exception, which code that is interrupted at the wrong place swallows: each answer is in the file.
        os.write(2, b"\nrrg-rewards grade: interrupted\n")
        os._exit(130)

    def stop(*_: Any) -> None:
        signal.signal(signal.SIGINT, end)
        judge.stop()
        tell()

    before: Any = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def check_held(output: str | Path, system: ScoringSystem) -> None:
    """See that what an output holds was graded under a scoring system as it is now.

    Raises:
        TableError: If it was not, by row.
    """
    if Path(output).stat().st_size:
        read_graded_reports(output, system)
