"""The page that a validation writes: corpus values, their curves, distributions, and the worst reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rrg_rewards.callbacks.worst_reports import WorstReport
from rrg_rewards.pages import Column, Page, Pane, Rows, write_page
from rrg_rewards.pages.charts import curves, histogram
from rrg_rewards.pages.markup import Markup, element, table
from rrg_rewards.pages.numbers import shown_number

__all__ = ["ReportPage"]

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
            "Curves": [
                element(
                    "div", *(curves(name, {name: points}) for name, points in self.values.items()), class_="cards wide"
                )
            ],
            "Distribution by report": [element("div", *_distributions(scores), class_="cards")],
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
        for name, found in scores.items():
            columns.append(Column(name, [found[place].score if place in found else None for place in places], name))
            kinds = dict.fromkeys(kind for row in found.values() for kind in row.explanations)
            for kind in kinds if self.with_text else ():
                cells = [found[place].explanations.get(kind) if place in found else None for place in places]
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


def _distributions(scores: Mapping[str, Sequence[float]]) -> list[Markup]:
    return [
        histogram(f"{name}: reports by score; line: mean", values, sum(values) / len(values))
        for name, values in scores.items()
        if values
    ]
