"""The run of ``rrg-rewards grade``: request reports, append them to the output, and report the counts."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rrg_rewards.cli.grade_plan import Plan, format_money
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.records.graded_reports import GradedReport, read_graded_reports
from rrg_rewards.data.tables.appending import AppendedLines
from rrg_rewards.judges.base import STOPPED, Judge, JudgeFailure
from rrg_rewards.judges.tasks.grading import GradingItem, GradingTask, WrittenReport, tier_name
from rrg_rewards.schemas.scoring import ScoringSystem

__all__ = ["GradingRun", "Outcome", "check_held", "interruptible", "show_outcome"]


@dataclass
class Outcome:
    """The counts of a run.

    Args:
        written: Reports written, by tier.
        in_tier: Written reports with a total in the requested tier, by tier.
        failures: Failed items, by kind of failure.
        reasons: Reason of the first failure of each kind.
        not_asked: Items that were not requested because the judge was stopped.
    """

    written: Counter[str] = field(default_factory=Counter)
    in_tier: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    not_asked: int = 0

    def summary(self, plan: Plan, judge: Judge) -> dict[str, Any]:
        """Return the counts of plan and run for ``--json``."""
        usage = getattr(judge, "usage", None)
        return {
            **plan.summary(),
            "judge": judge.signature,
            "written": {name: self.written[name] for name in plan.wanted},
            "in_tier": {name: plan.held_in_tier[name] + self.in_tier[name] for name in plan.wanted},
            "failures": dict(self.failures),
            "reasons": self.reasons,
            "not_asked": self.not_asked,
            "usage": None if usage is None else asdict(usage),
        }


class GradingRun:
    """Requests reports from a judge and appends each to a file as soon as its answer is accepted.

    Args:
        judge: The judge.
        system: The scoring system.
        output: Open file for the reports.
        source: Value of ``source`` in the output.
        report: Function that :meth:`Terminal.progress` yields.
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
        """Request the reports, and return the counts."""
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
    """Passes each result to ``keep`` when its answer is parsed, because a judge returns results only at the end."""

    def __init__(self, system: ScoringSystem, keep: Callable[[GradingItem, WrittenReport], None]) -> None:
        super().__init__(system)
        self._keep = keep

    def parse(self, item: GradingItem, answer: str) -> WrittenReport:
        written = super().parse(item, answer)
        self._keep(item, written)
        return written


@contextmanager
def interruptible(judge: Judge, notify: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C call ``notify`` and stop a judge; let the second end the process immediately."""
    # Only the main thread can handle signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        # An exception could be caught by the interrupted code. All accepted answers are in the file.
        os.write(2, b"\nrrg-rewards grade: interrupted\n")
        os._exit(130)

    def stop(*_: Any) -> None:
        signal.signal(signal.SIGINT, end)
        judge.stop()
        notify()

    before: Any = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def check_held(output: str | Path, system: ScoringSystem) -> None:
    """Check that the reports in an output are valid under the scoring system.

    Raises:
        TableError: For the first invalid row.
    """
    if Path(output).stat().st_size:
        read_graded_reports(output, system)


def show_outcome(judge: Judge, plan: Plan, outcome: Outcome, output: str, terminal: Terminal, stderr: bool) -> None:
    """Show the counts by tier, the usage of the judge, and the failures."""
    from rich.table import Table as Grid

    grid = Grid(title=output, title_justify="left")
    for heading in ("tier", "requested", "in the output", "written now", "in tier"):
        grid.add_column(heading, justify="left" if heading == "tier" else "right")
    for name, wanted in plan.wanted.items():
        held, written = plan.held[name], outcome.written[name]
        inside = plan.held_in_tier[name] + outcome.in_tier[name]
        share = f"{inside / (held + written):.0%}" if held + written else "-"
        grid.add_row(name, f"{wanted}", f"{held}", f"{written}", share)
    terminal.show(grid, stderr=stderr)
    usage = getattr(judge, "usage", None)
    if usage is not None:
        cost = "" if usage.cost is None else f", cost {format_money(usage.cost)}"
        terminal.note(
            f"{usage.calls} calls ({usage.retries} retries), {usage.cached} answers from the cache, "
            f"{usage.prompt_tokens:,} prompt tokens, {usage.completion_tokens:,} completion tokens{cost}"
        )
    for kind, count in outcome.failures.items():
        terminal.warn(f"{count} failed with {kind}; the first: {outcome.reasons[kind]}")
    if left := outcome.failures.total() + outcome.not_asked:
        terminal.note(f"{left} reports are missing; repeat the command to request them")
