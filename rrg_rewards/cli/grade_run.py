"""The run of ``rrg-rewards grade``: request reports, append them to the output, and report the counts."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rrg_rewards.cli.grade_plan import Plan
from rrg_rewards.cli.judge_requests import Unanswered, evaluate_and_keep, show_unanswered, usage_of
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.data.records.graded_reports import GradedReport, read_graded_reports
from rrg_rewards.data.tables.appending import AppendedLines
from rrg_rewards.judges.base import Judge
from rrg_rewards.judges.tasks.grading import GradingItem, GradingTask, WrittenReport, tier_name
from rrg_rewards.schemas.scoring import ScoringSystem

__all__ = ["GradingRun", "Outcome", "check_held", "show_outcome"]


@dataclass
class Outcome:
    """The counts of a run.

    Args:
        written: Reports written, by tier.
        in_tier: Written reports with a total in the requested tier, by tier.
        unanswered: Items without a report.
    """

    written: Counter[str] = field(default_factory=Counter)
    in_tier: Counter[str] = field(default_factory=Counter)
    unanswered: Unanswered = field(default_factory=Unanswered)

    def summary(self, plan: Plan, judge: Judge) -> dict[str, Any]:
        """Return the counts of plan and run for ``--json``."""
        return {
            **plan.summary(),
            "judge": judge.signature,
            "written": {name: self.written[name] for name in plan.wanted},
            "in_tier": {name: plan.held_in_tier[name] + self.in_tier[name] for name in plan.wanted},
            **self.unanswered.summary(),
            "usage": usage_of(judge),
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
        self._task = GradingTask(system)
        self._outcome = Outcome()

    def run(self, items: Sequence[GradingItem]) -> Outcome:
        """Request the reports, and return the counts."""
        self._outcome.unanswered = evaluate_and_keep(self._judge, self._task, items, self._keep, self._report)
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
    show_unanswered(judge, outcome.unanswered, "reports", terminal)
