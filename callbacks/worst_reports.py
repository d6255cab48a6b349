"""The worst-scored reports of a validation: kept in bounded memory, written as a table."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rrg_rewards.data import Table

__all__ = ["WorstReport", "WorstReports", "log_table", "make_table"]


@dataclass(frozen=True)
class WorstReport:
    """A scored report pair, as a row of the table.

    Args:
        score: The pair's score.
        dataloader: Index of the validation loader.
        rank: The process that scored it.
        index: Its place among the reports that this process drew from this loader.
        identifier: What the step's output calls it, if anything.
        reference: The reference report.
        prediction: The candidate report.
        explanations: What went wrong, by kind.
    """

    score: float
    dataloader: int
    rank: int
    index: int
    identifier: str | None
    reference: str | None
    prediction: str | None
    explanations: Mapping[str, str] = field(default_factory=dict)


class WorstReports:
    """Keeps the ``size`` worst of any number of reports.

    Of equal scores the earliest are kept. Reports dealt out to processes in turn, as samplers do, are merged in the
    order of the data set: that is what ordering by index first and rank second means.

    Args:
        size: How many to keep.
        higher_is_better: Whether the lowest or the highest scores are the worst.

    Example:
        >>> worst = WorstReports(size=2, higher_is_better=True)
        >>> for index, score in enumerate([0.3, 0.1, 0.9, 0.2]):
        ...     worst.add(WorstReport(score, 0, 0, index, None, "reference", "prediction"))
        >>> [row.score for row in worst.rows()]
        [0.1, 0.2]
    """

    def __init__(self, size: int, higher_is_better: bool) -> None:
        self.size = size
        self._sign = -1.0 if higher_is_better else 1.0
        # Worst last, so the root is the one to give way. No two reports share index and rank: rows never compare.
        self._heap: list[tuple[float, int, int, WorstReport]] = []

    def takes(self, score: float) -> bool:
        """Whether a report with this score, later than those seen, would be kept. NaN is no score."""
        return score == score and (len(self._heap) < self.size or self._sign * score > self._heap[0][0])

    def add(self, row: WorstReport) -> None:
        """Keep the report if it is among the worst so far."""
        entry = (self._sign * row.score, -row.index, -row.rank, row)
        if len(self._heap) < self.size:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def rows(self) -> list[WorstReport]:
        """The reports kept, worst first."""
        return [entry[-1] for entry in sorted(self._heap, reverse=True)]


def make_table(rows: Sequence[WorstReport], epoch: int, step: int) -> Table:
    """Lay out reports as a table: where each is from, its score, both texts, and one column a kind of explanation.

    Args:
        rows: The reports.
        epoch: Epoch of the validation.
        step: Global step of the validation.
    """
    kinds = list(dict.fromkeys(kind for row in rows for kind in row.explanations))
    place = ["epoch", "step", "dataloader", "rank", "index"]
    identified = any(row.identifier is not None for row in rows)
    columns = [*place, *(["id"] if identified else []), "score", "reference", "prediction", *kinds]
    cells = [
        [epoch, step, row.dataloader, row.rank, row.index]
        + ([row.identifier] if identified else [])
        + [row.score, row.reference, row.prediction]
        + [row.explanations.get(kind, "") for kind in kinds]
        for row in rows
    ]
    return Table({column: [row[place] for row in cells] for place, column in enumerate(columns)})


def log_table(logger: Any, name: str, table: Table, step: int) -> bool:
    """Hand a table to a logger that takes tables, told by its methods so that no logger's package is needed.

    Known are ``log_table(key, columns, data, step)`` (Weights & Biases), an MLflow client with ``log_table`` and a
    run id, and ``add_text`` (TensorBoard), which gets Markdown.

    Args:
        logger: A Lightning logger.
        name: Name of the table.
        table: What to log.
        step: Global step.

    Returns:
        Whether the logger took it.
    """
    if hasattr(logger, "log_table"):
        logger.log_table(key=name, columns=list(table.names), data=_rows(table), step=step)
        return True
    experiment: Any = getattr(logger, "experiment", None)
    if hasattr(experiment, "log_table") and hasattr(logger, "run_id"):
        data = dict(table.columns)
        experiment.log_table(run_id=logger.run_id, data=data, artifact_file=f"{name}/step_{step}.json")
        return True
    if hasattr(experiment, "add_text"):
        experiment.add_text(name, _markdown(table), global_step=step)
        return True
    return False


def _rows(table: Table) -> list[list[Any]]:
    return [list(cells) for cells in zip(*table.columns.values(), strict=True)]


def _markdown(table: Table) -> str:
    rows = [table.names, ["---"] * len(table.names), *_rows(table)]
    return "\n".join("| " + " | ".join(_markdown_cell(cell) for cell in row) + " |" for row in rows)


def _markdown_cell(cell: object) -> str:
    return "" if cell is None else str(cell).replace("|", "\\|").replace("\n", "<br>")
