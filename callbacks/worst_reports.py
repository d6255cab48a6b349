"""The worst-scored reports of a validation, in bounded memory, and the tables and pages that show them."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.table import Table
from rrg_rewards.pages import Column, Page, Pane, Rows, write_page
from rrg_rewards.pages.charts import Curves, Histogram, cards
from rrg_rewards.pages.markup import Markup, shown_number, table
from rrg_rewards.utilities.texts import encodable_text


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


_Place = tuple[int, int, int]


@dataclass
class ReportPage:
    """Writes the page of each validation, with the curves of all validations so far.

    Args:
        with_text: Whether the page contains the worst reports.
        values: Corpus values of each logged name: pairs (step, value).
    """

    with_text: bool
    values: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, name: str, step: int, value: float) -> None:
        """Add a corpus value; a value that is undefined has no point in the curve."""
        if value == value:
            self.values.setdefault(name, []).append((step, value))

    def write(
        self,
        path: Path,
        title: str,
        scores: Mapping[str, Sequence[float]],
        worst: Mapping[str, Sequence[WorstReport]],
        signatures: Mapping[str, str],
    ) -> None:
        """Write the page, which replaces that of the last validation.

        Args:
            path: The file; its folder is created.
            title: Title.
            scores: Scores of all reports, by metric.
            worst: The worst reports of each metric.
            signatures: Signature of each metric.
        """
        last = [[name, str(int(points[-1][0])), shown_number(points[-1][1])] for name, points in self.values.items()]
        sections: dict[str, Sequence[Markup]] = {
            "Summary": [table(["Value", "Step", "Last"], last, "Corpus values")] if last else [],
            "Curves": cards((Curves(name, {name: points}) for name, points in self.values.items()), wide=True),
            "Distribution by report": cards(
                Histogram(f"{name}: reports by score; line: mean", values, sum(values) / len(values))
                for name, values in scores.items()
                if values
            ),
        }
        count = max((len(values) for values in scores.values()), default=0)
        lead = f"{count} scored reports; the table below has the worst of each metric."
        facts = {f"Signature of {name}": signature for name, signature in signatures.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(Page(title, lead, sections, self._rows(worst), facts), path, overwrite=True)

    def _rows(self, worst: Mapping[str, Sequence[WorstReport]]) -> Rows:
        """Return the worst reports of all metrics; a report may be among the worst of several."""
        reports: dict[_Place, WorstReport] = {}
        scores: dict[str, dict[_Place, WorstReport]] = {}
        for name, rows in worst.items():
            scores[name] = {(row.dataloader, row.rank, row.index): row for row in rows}
            reports.update(scores[name])
        places = list(reports)
        columns = []
        for name, worst_of in scores.items():
            columns.append(
                Column(name, [worst_of[place].score if place in worst_of else None for place in places], name)
            )
            kinds = dict.fromkeys(kind for row in worst_of.values() for kind in row.explanations)
            for kind in kinds if self.with_text else ():
                cells = [worst_of[place].explanations.get(kind) if place in worst_of else None for place in places]
                columns.append(Column(kind, cells, name, in_table=False))
        panes = []
        if self.with_text:
            panes.append(Pane("Reference", [reports[place].reference for place in places]))
            panes.append(Pane("Candidate", [reports[place].prediction for place in places]))
        findings = [
            next((rows[place].findings for rows in scores.values() if place in rows and rows[place].findings), None)
            for place in places
        ]
        names = [reports[place].identifier or _name(place) for place in places]
        return Rows("report", names, columns, panes, findings if any(findings) else None)


def _name(place: _Place) -> str:
    """Return a name of a report without identifier."""
    loader, rank, index = place
    return f"loader {loader}, process {rank}, report {index + 1}"
