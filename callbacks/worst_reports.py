"""The worst-scored reports of a validation, in bounded memory, and their table."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rrg_rewards.callbacks.step_output import ReportBatch
from rrg_rewards.data.tables.table import Table
from rrg_rewards.metrics.crimson import CrimsonScores
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.pages import highlights
from rrg_rewards.utilities.texts import encodable_text

__all__ = ["WorstReport", "WorstReports", "keep_worst", "log_table", "make_table"]


@dataclass(frozen=True)
class WorstReport:
    """A scored report pair, as a row of the table.

    Args:
        score: The pair's score.
        dataloader: Index of the validation loader.
        rank: Rank of the process that scored the pair.
        index: Index of the pair among those that the process read from the loader.
        identifier: Identifier in the step's output, or ``None``.
        reference: The reference report.
        prediction: The candidate report.
        explanations: Explanations of the score, by kind.
        findings: What became of each finding, as :func:`rrg_rewards.pages.highlights` returns it; ``None`` if the
            metric does not compare findings.
    """

    score: float
    dataloader: int
    rank: int
    index: int
    identifier: str | None
    reference: str | None
    prediction: str | None
    explanations: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[Sequence[Any]] | None = None


class WorstReports:
    """Stores the ``size`` worst reports.

    Of reports with equal scores, those with the lowest index are kept, then those with the lowest rank. This is the
    order of the data set if the sampler assigns reports to the processes in turn.

    Args:
        size: Maximum number of stored reports.
        higher_is_better: Whether the lowest scores are the worst, instead of the highest.

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
        # The root is the best stored report. Pairs of index and rank are unique, so the reports are never compared.
        self._heap: list[tuple[float, int, int, WorstReport]] = []

    def takes(self, score: float) -> bool:
        """Whether :meth:`add` would store a new report with this score; ``False`` for NaN."""
        return score == score and (len(self._heap) < self.size or self._sign * score > self._heap[0][0])

    def add(self, row: WorstReport) -> None:
        """Store the report if it is among the worst so far."""
        entry = (self._sign * row.score, -row.index, -row.rank, row)
        if len(self._heap) < self.size:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def rows(self) -> list[WorstReport]:
        """Return the reports, worst first."""
        return [entry[-1] for entry in sorted(self._heap, reverse=True)]


def keep_worst(
    worst: WorstReports, scores: Scores, batch: ReportBatch, place: tuple[int, int, int], with_text: bool
) -> None:
    """Store the worst reports of a batch.

    Args:
        worst: The worst reports so far.
        scores: Scores of the batch.
        batch: Reports of the batch.
        place: Loader, rank and index of the first report.
        with_text: Whether the findings of the reports contain text.
    """
    loader, rank, first = place
    explanations = scores.explanations
    evaluations = scores.evaluations if isinstance(scores, CrimsonScores) else [None] * len(scores)
    rows = zip(scores.value.tolist(), batch.identifiers, batch.target, batch.preds, strict=True)
    for row, (score, identifier, reference, prediction) in enumerate(rows):
        if worst.takes(score):
            why = {kind: texts[row] for kind, texts in explanations.items()}
            name = None if identifier is None else str(identifier)
            evaluation, pair = evaluations[row], (reference, prediction) if with_text else (None, None)
            found = None if evaluation is None else highlights(evaluation, *pair)
            worst.add(WorstReport(score, loader, rank, first + row, name, reference, prediction, why, found))


def make_table(rows: Sequence[WorstReport], epoch: int, step: int) -> Table:
    """Return a table with the origin, the score and both texts of each report, and a column per kind of explanation.

    Unpaired surrogates in the texts become U+FFFD, because neither files nor loggers can represent them.

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
        + ([_encodable(row.identifier)] if identified else [])
        + [row.score, *map(_encodable, (row.reference, row.prediction))]
        + [_encodable(row.explanations.get(kind, "")) for kind in kinds]
        for row in rows
    ]
    return Table({column: [row[place] for row in cells] for place, column in enumerate(columns)})


def _encodable(text: str | None) -> str | None:
    return None if text is None else encodable_text(text)


def log_table(logger: Any, name: str, table: Table, step: int) -> bool:
    """Log a table with a logger that supports tables.

    A logger is recognised by its methods, so that its package need not be imported: ``log_table(key, columns, data,
    step)`` (Weights & Biases), an MLflow client with ``log_table`` and a run id, or ``add_text`` (TensorBoard), which
    logs Markdown.

    Args:
        logger: A Lightning logger.
        name: Name of the table.
        table: The table.
        step: Global step.

    Returns:
        Whether the logger supports tables.
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
