"""The page of ``rrg-rewards score``, and its rows, which are collected while a table is scored."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.analysis.outcomes import by_kind
from rrg_rewards.metrics.crg import LabelScores
from rrg_rewards.metrics.judged import JudgedScores
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.pages.highlights import scored_findings
from rrg_rewards.pages.page import Cell, Column, Page, Pane, Rows, row_step, sample_note
from rrg_rewards.pages.text_tables import HEADING, constant_tables, distinct_tables
from rrg_rewards.utilities.charts import Histogram, Interval, Intervals, cards
from rrg_rewards.utilities.markup import Markup, element, shown_interval, shown_number, table

# Explanations that contain names and reasons, but no text of a report.
_WITHOUT_TEXT = frozenset(("failure", "judge"))


class ScoreRows:
    """Rows of the page of scores.

    The page has at most :data:`~rrg_rewards.pages.page.MOST_ROWS` rows, every k-th of the pairs. Their scores stay in
    memory, with their texts if ``with_text`` is set; of the other pairs only numbers.

    Args:
        with_text: Whether the page contains reports, findings and reasons.
        pairs: Number of pairs that will be added; ``None`` to keep all.

    Example:
        >>> from rrg_rewards.metrics import BLEU
        >>> rows = ScoreRows(with_text=True)
        >>> rows.add({"bleu": BLEU().score(["No effusion."], ["No effusion."])}, ["No effusion."], ["No effusion."])
        >>> [column.name for column in rows.rows().columns][:1]
        ['bleu']
    """

    def __init__(self, with_text: bool, pairs: int | None = None) -> None:
        self.with_text = with_text
        self._step = 1 if pairs is None else row_step(pairs)
        self._added = 0
        # Scores of all pairs, for distributions, and those of the rows of the page.
        self._all: dict[str, list[Scores]] = {}
        self._scores: dict[str, list[Scores]] = {}
        self._names: list[str] = []
        self._predictions: list[str | None] = []
        self._references: list[str | None] = []

    def __len__(self) -> int:
        return len(self._names)

    def add(
        self,
        scores: Mapping[str, Scores],
        predictions: Sequence[str | None],
        references: Sequence[str | None],
        names: Sequence[Any] | None = None,
    ) -> None:
        """Add the scores of a batch.

        Args:
            scores: Scores of the batch by metric.
            predictions: Candidate reports.
            references: Reference reports.
            names: Names of the pairs. Default: numbers from 1.
        """
        given = range(self._added + 1, self._added + 1 + len(predictions)) if names is None else names
        shown = range(-self._added % self._step, len(predictions), self._step)
        self._added += len(predictions)
        self._names += [str(given[row]) for row in shown]
        if self.with_text:
            self._predictions += [predictions[row] for row in shown]
            self._references += [references[row] for row in shown]
        for name, one in scores.items():
            if self._step == 1:
                self._scores.setdefault(name, []).append(one)
                continue
            # Evaluations of judges are much larger than their scores.
            self._all.setdefault(name, []).append(Scores(one.value) if isinstance(one, JudgedScores) else one)
            self._scores.setdefault(name, []).append(one.take(torch.tensor(shown, dtype=torch.long)))

    @property
    def note(self) -> str:
        """What the page says if its table is a sample of the pairs."""
        return sample_note(self._added, "pairs") if self._step > 1 else ""

    def rescale(self, name: str, function: Callable[[Scores], Scores]) -> None:
        """Replace the scores of a metric whose scores depend on the whole corpus."""
        for kept in (self._scores, self._all):
            if name in kept:
                kept[name] = [function(one) for one in kept[name]]

    def values(self, name: str) -> list[float]:
        """Return the scores of a metric, without those of unscorable pairs."""
        return [value for one in (self._all or self._scores)[name] for value in one.value[one.scored].tolist()]

    def first(self, name: str) -> Scores:
        """Return the scores of the first batch, whose class says what they mean."""
        return self._scores[name][0]

    def rows(self) -> Rows:
        """Return the rows: scores, parts and explanations; and texts and findings if they are asked for."""
        columns = [column for name in self._scores for column in self._columns(name)]
        panes = [Pane("Reference", self._references), Pane("Candidate", self._predictions)] if self.with_text else []
        return Rows("report", self._names, columns, panes, self._findings())

    def _columns(self, name: str) -> Iterator[Column]:
        parts = self._scores[name]
        heading = f"{name} {parts[0].report_value}".rstrip()
        yield Column(heading, _cells([one.value for one in parts]), name)
        for detail in parts[0].details:
            yield Column(detail.replace("_", " "), _cells([one.details[detail] for one in parts]), name, in_table=False)
        for kind in parts[0].explanations:
            if self.with_text or kind in _WITHOUT_TEXT or isinstance(parts[0], LabelScores):
                texts: list[Cell] = [text or None for one in parts for text in one.explanations[kind]]
                yield Column(kind, texts, name, in_table=False)

    def _findings(self) -> dict[str, list[list[list[Any]] | None]]:
        """Return the findings of each metric that compares findings."""
        found: dict[str, list[list[list[Any]] | None]] = {}
        without: list[str | None] = [None] * len(self)
        references, candidates = (self._references, self._predictions) if self.with_text else (without, without)
        for name, batches in self._scores.items():
            start = 0
            for one in batches:
                rows = slice(start, start + len(one))
                of_batch = scored_findings(one, references[rows], candidates[rows])
                start += len(one)
                if of_batch is not None:
                    found.setdefault(name, []).extend(of_batch)
        return found


def _cells(values: Sequence[Tensor]) -> list[Cell]:
    return [value for one in values for value in one.tolist()]


def score_page(summary: Mapping[str, Any], rows: ScoreRows) -> Page:
    """Return the page of the scores of a table.

    Args:
        summary: The summary of the command.
        rows: The scored pairs.
    """
    metrics: Mapping[str, Mapping[str, Any]] = summary["metrics"]
    sections = {
        "Summary": [*_summary(metrics), *_rules(metrics, rows)],
        HEADING: [*_texts(summary)],
        "Distribution by report": _distributions(metrics, rows),
        "Parts of the scores": _parts(metrics),
    }
    seed = summary["bootstrap"]
    facts = {
        "Table": str(summary["table"]),
        "Interval": f"bootstrap, {seed['num_resamples']} resamples of the report pairs, seed {seed['seed']}",
        **{f"Signature of {name}": entry["signature"] for name, entry in metrics.items()},
    }
    values = ", ".join(f"{name} {shown_number(entry['value'])}" for name, entry in metrics.items())
    lead = f"{summary['rows']} report pairs: {values}." + rows.note
    shown = {heading: parts for heading, parts in sections.items() if parts}
    return Page(f"Scores of {summary['prediction_column']}", lead, shown, rows.rows(), facts)


def _texts(summary: Mapping[str, Any]) -> Iterator[Markup]:
    if "texts" in summary:
        yield from distinct_tables({summary["prediction_column"]: summary["texts"]})
    constants: dict[str, dict[str, Any]] = {}
    for name, entry in summary["metrics"].items():
        for text, value in entry.get("constant_texts", {}).items():
            constants.setdefault(text, {})[name] = value
    yield from constant_tables(constants)


def _summary(metrics: Mapping[str, Mapping[str, Any]]) -> Sequence[Markup]:
    heads = ["Metric", "Value", "95 % interval", "Better", "Scored", "Unscorable"]
    rows = []
    for name, entry in metrics.items():
        better = {True: "higher", False: "lower"}.get(entry["higher_is_better"], "-")
        counts = [str(entry["scored"]), _unscorable(entry)]
        rows.append([name, shown_number(entry["value"]), shown_interval(*entry["interval"]), better, *counts])
    marks = [
        Interval(name, entry["value"], *entry["interval"])
        for name, entry in metrics.items()
        if entry["value"] is not None
    ]
    # Metrics with other ranges have plots of their own, so that each interval can be seen.
    common = [mark for mark in marks if -1 <= mark.value <= 1]
    plots = [common, *([mark] for mark in marks if mark not in common)]
    figures = [Intervals("Corpus values with 95 % intervals", plot).svg() for plot in plots if plot]
    return [table(heads, rows, "Corpus value of each metric"), *figures]


def _rules(metrics: Mapping[str, Mapping[str, Any]], rows: ScoreRows) -> Iterator[Markup]:
    """Say how the values of metrics follow from their reports, where they are no means of the reports' scores."""
    for name, entry in metrics.items():
        values = rows.values(name) if len(rows) else []
        if values and (rule := rows.first(name).corpus_rule):
            mean = sum(values) / len(values)
            shown = f" The mean of {name}'s {rows.first(name).report_value or 'score'}s is {shown_number(mean)}"
            # A fixed prior may differ from the prevalence, and an average over labels is no function of the mean.
            if entry["value"] is not None and math.isclose(1 / (2 - mean), entry["value"], abs_tol=1e-6):
                shown += f", and 1 / (2 - {shown_number(mean)}) = {shown_number(entry['value'])}"
            yield element("p", element("b", f"{name}. "), f"{rule}{shown}.", class_="note")


def _unscorable(entry: Mapping[str, Any]) -> str:
    kinds = by_kind(entry.get("failed", {}))
    return f"{entry['unscorable']} ({kinds})" if kinds else str(entry["unscorable"])


def _distributions(metrics: Mapping[str, Mapping[str, Any]], rows: ScoreRows) -> Sequence[Markup]:
    plots = []
    for name in metrics:
        if values := rows.values(name):
            mean = sum(values) / len(values)
            kind = rows.first(name).report_value or "score"
            plots.append(Histogram(f"{name}: reports by {kind}; line: mean {shown_number(mean)}", values, mean))
    return cards(plots)


def _parts(metrics: Mapping[str, Mapping[str, Any]]) -> Sequence[Markup]:
    found = []
    for name, entry in metrics.items():
        if "labels" in entry:
            columns = [column for column in entry["labels"][0] if column != "label"]
            cells = [[row["label"], *(shown_number(row[column]) for column in columns)] for row in entry["labels"]]
            found.append(table(["Label", *(column.replace("_", " ") for column in columns)], cells, f"{name} by label"))
        else:
            means = [[part.replace("_", " "), shown_number(mean)] for part, mean in entry["means"].items() if mean]
            found += [table(["Part", "Mean"], means, f"{name}: mean of a report, without zeros")] if means else []
    return [element("details", element("summary", "Show the parts"), *found)] if found else []
