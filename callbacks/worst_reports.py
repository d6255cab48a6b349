"""The worst-scored reports of a validation and a sample of all, in bounded memory, and their tables and pages."""

import hashlib
import heapq
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rrg_rewards.data.tables.table import Table
from rrg_rewards.pages import Column, Page, Pane, Rows, write_page
from rrg_rewards.utilities.charts import Curves, Histogram, cards
from rrg_rewards.utilities.markup import Markup, markdown_table, shown_number, table
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


class KeptReports(ABC):
    """Stores ``size`` reports, those that come first in an order.

    Args:
        size: Maximum number of stored reports.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        # The root is the last stored report. Pairs of index and rank are unique, so the reports are never compared.
        self._heap: list[tuple[float, int, int, WorstReport]] = []

    @abstractmethod
    def priority(self, score: float, dataloader: int, rank: int, index: int) -> float:
        """Return how early a report comes in the order; NaN if it is never stored."""

    def takes(self, score: float, dataloader: int, rank: int, index: int) -> bool:
        """Whether :meth:`add` would store a new report with this score and place."""
        priority = self.priority(score, dataloader, rank, index)
        return self.size > 0 and priority == priority and (len(self._heap) < self.size or priority > self._heap[0][0])

    def add(self, row: WorstReport) -> None:
        """Store the report if it comes early enough."""
        priority = self.priority(row.score, row.dataloader, row.rank, row.index)
        entry = (priority, -row.index, -row.rank, row)
        if len(self._heap) < self.size:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def rows(self) -> list[WorstReport]:
        """Return the reports, the first in the order first."""
        return [entry[-1] for entry in sorted(self._heap, reverse=True)]


class WorstReports(KeptReports):
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
        super().__init__(size)
        self._sign = -1.0 if higher_is_better else 1.0

    def priority(self, score: float, dataloader: int, rank: int, index: int) -> float:  # noqa: ARG002
        """Return how bad the score is."""
        return self._sign * score


class SampledReports(KeptReports):
    """Stores a random sample of ``size`` reports, also of those without a score.

    The sample depends on the places of the reports only: each validation of the same data has the same sample, for any
    size of the batches.

    Example:
        >>> sample = SampledReports(size=2)
        >>> for index, score in enumerate([0.3, 0.1, 0.9, 0.2]):
        ...     sample.add(WorstReport(score, 0, 0, index, None, "reference", "prediction"))
        >>> len(sample.rows())
        2
    """

    def priority(self, score: float, dataloader: int, rank: int, index: int) -> float:  # noqa: ARG002
        """Return a number that is random, but the same for the same place."""
        digest = hashlib.blake2b(f"{dataloader} {index} {rank}".encode(), digest_size=6).digest()
        return float(int.from_bytes(digest, "big"))


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
        experiment.add_text(name, markdown_table(table.names, _rows(table)), global_step=step)
        return True
    return False


def _rows(table: Table) -> list[list[Any]]:
    return [list(cells) for cells in zip(*table.columns.values(), strict=True)]


_Place = tuple[int, int, int]


def _place(row: WorstReport) -> _Place:
    return row.dataloader, row.rank, row.index


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
        sampled: Mapping[str, Sequence[WorstReport]],
        signatures: Mapping[str, str],
    ) -> None:
        """Write the page, which replaces that of the last validation.

        Args:
            path: The file; its folder is created.
            title: Title.
            scores: Scores of all reports, by metric.
            worst: The worst reports of each metric.
            sampled: A sample of all reports, the same for each metric.
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
        sample = max((len(rows) for rows in sampled.values()), default=0)
        lead = f"{count} scored reports; the table below has a random sample of {sample}, and the worst of each metric."
        facts = {f"Signature of {name}": signature for name, signature in signatures.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(Page(title, lead, sections, self._rows(worst, sampled), facts), path, overwrite=True)

    def _rows(self, worst: Mapping[str, Sequence[WorstReport]], sampled: Mapping[str, Sequence[WorstReport]]) -> Rows:
        """Return the sample, and the worst reports of all metrics; a report may be in both, and of several metrics."""
        reports: dict[_Place, WorstReport] = {}
        chosen: dict[_Place, dict[str, None]] = {}
        scores: dict[str, dict[_Place, WorstReport]] = {}
        for kept, why in ((sampled, "sample"), (worst, "worst of {}")):
            for name, rows in kept.items():
                by_place = {_place(row): row for row in rows}
                scores.setdefault(name, {}).update(by_place)
                reports.update(by_place)
                for place in by_place:
                    chosen.setdefault(place, {})[why.format(name)] = None
        places = list(reports)
        columns = [Column("chosen as", [", ".join(chosen[place]) for place in places])]
        for name, of_place in scores.items():
            columns.append(
                Column(name, [of_place[place].score if place in of_place else None for place in places], name)
            )
            kinds = dict.fromkeys(kind for row in of_place.values() for kind in row.explanations)
            for kind in kinds if self.with_text else ():
                cells = [of_place[place].explanations.get(kind) if place in of_place else None for place in places]
                columns.append(Column(kind, cells, name, in_table=False))
        panes = []
        if self.with_text:
            panes.append(Pane("Reference", [reports[place].reference for place in places]))
            panes.append(Pane("Candidate", [reports[place].prediction for place in places]))
        findings = {
            name: [rows[place].findings if place in rows else None for place in places]
            for name, rows in scores.items()
            if any(row.findings is not None for row in rows.values())
        }
        names = [reports[place].identifier or _name(place) for place in places]
        return Rows("report", names, columns, panes, findings)


def _name(place: _Place) -> str:
    """Return a name of a report without identifier."""
    loader, rank, index = place
    return f"loader {loader}, process {rank}, report {index + 1}"
