"""The run of ``rrg-rewards count``: request counts, append them to the output, and report them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.judge_requests import Unanswered, evaluate_and_keep, usage_of
from rrg_rewards.data.records.error_records import read_error_records
from rrg_rewards.data.tables.appending import AppendedLines, read_whole_lines
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.judges.base import Judge, ReportPair
from rrg_rewards.judges.tasks.counting import CountedErrors, CountingTask
from rrg_rewards.schemas.errors import ERROR_CATEGORIES

if TYPE_CHECKING:
    from rich.table import Table as Grid

__all__ = ["CountingRun", "HeldPairs", "check_held", "held_pairs"]

_COLUMNS = ("reference", "candidate", "counts", "significant", "judge", "prompt_hash")


@dataclass(frozen=True)
class HeldPairs:
    """The content of an output.

    Args:
        pairs: Pairs with counts.
        judges: Signatures of the judges.
        prompts: Hashes of the prompts.
    """

    pairs: frozenset[ReportPair] = frozenset()
    judges: frozenset[str] = frozenset()
    prompts: frozenset[str] = frozenset()


def held_pairs(output: str | Path) -> HeldPairs:
    """Return the content of an output, which need not exist and is not changed.

    Raises:
        TableError: If the file is not an output of this command.
    """
    table = read_whole_lines(output)
    if table is None:
        return HeldPairs()
    if missing := [name for name in _COLUMNS if name not in table.columns]:
        raise TableError(f"{output}: exists, but is not an output of this command: it lacks {', '.join(missing)}")
    texts = table.required_texts("reference"), table.required_texts("candidate")
    return HeldPairs(
        frozenset(ReportPair(*row) for row in zip(*texts, strict=True)),
        frozenset(map(str, table.columns["judge"])),
        frozenset(map(str, table.columns["prompt_hash"])),
    )


def check_held(output: str | Path) -> None:
    """Check that all lines of an output are valid records.

    Raises:
        TableError: For the first invalid line.
    """
    if Path(output).stat().st_size:
        read_error_records(output)


class CountingRun:
    """Requests counts from a judge and appends each to a file as soon as its answer is accepted.

    Args:
        judge: The judge.
        output: Open file for the counts.
        source: Value of ``source`` in the output.
    """

    def __init__(self, judge: Judge, output: AppendedLines, source: str) -> None:
        self.task = CountingTask()
        self.written: list[CountedErrors] = []
        self._judge = judge
        self._output = output
        self._source = source

    def run(self, pairs: Sequence[ReportPair], report: Callable[[int, int], None]) -> Unanswered:
        """Request the counts. ``report`` is the function that :meth:`Terminal.progress` yields."""
        return evaluate_and_keep(self._judge, self.task, pairs, self._keep, report)

    def _keep(self, pair: ReportPair, counted: CountedErrors) -> None:
        self._output.append(
            {
                "reference": pair.reference,
                "candidate": pair.candidate,
                "counts": list(counted.counts),
                "significant": list(counted.significant),
                "source": self._source,
                "errors": [asdict(error) for error in counted.errors],
                "matched": counted.matched,
                "judge": self._judge.signature,
                "prompt_hash": self.task.prompt_hash,
            }
        )
        self.written.append(counted)

    def totals(self) -> dict[str, dict[str, int]]:
        """Return the numbers of all and of significant errors that were written, by category."""
        return {
            category: {
                "errors": sum(counted.counts[index] for counted in self.written),
                "significant": sum(counted.significant[index] for counted in self.written),
            }
            for index, category in enumerate(ERROR_CATEGORIES)
        }

    def summary(self, wanted: int, held: int, unanswered: Unanswered) -> dict[str, Any]:
        """Return the counts of the run for ``--json``."""
        return {
            "prompt_hash": self.task.prompt_hash,
            "judge": self._judge.signature,
            "pairs": wanted,
            "held": held,
            "written": len(self.written),
            "categories": self.totals(),
            **unanswered.summary(),
            "usage": usage_of(self._judge),
        }

    def grid(self, title: str, held: int) -> "Grid":
        """Return a table of the errors that were written, by category."""
        from rich.table import Table as Grid

        grid = Grid(title=f"{title}: {len(self.written)} pairs written, {held} before", title_justify="left")
        grid.add_column("category")
        grid.add_column("errors", justify="right")
        grid.add_column("significant", justify="right")
        for category, row in self.totals().items():
            grid.add_row(category, f"{row['errors']}", f"{row['significant']}")
        return grid
