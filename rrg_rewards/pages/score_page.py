"""The page of ``rrg-rewards score --html``."""

from collections.abc import Mapping, Sequence
from typing import Any

from rrg_rewards.pages.charts import Interval, histogram, intervals
from rrg_rewards.pages.markup import Markup, element, table
from rrg_rewards.pages.numbers import shown_interval, shown_number
from rrg_rewards.pages.page import Page
from rrg_rewards.pages.score_rows import ScoreRows

__all__ = ["score_page"]


def score_page(summary: Mapping[str, Any], rows: ScoreRows) -> Page:
    """Return the page of the scores of a table.

    Args:
        summary: What ``--json`` contains.
        rows: The scored pairs.
    """
    metrics: Mapping[str, Mapping[str, Any]] = summary["metrics"]
    sections = {
        "Summary": _summary(metrics),
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
    lead = f"{summary['rows']} report pairs: {values}."
    shown = {heading: parts for heading, parts in sections.items() if parts}
    return Page(f"Scores of {summary['prediction_column']}", lead, shown, rows.rows(), facts)


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
    figures = [intervals("Corpus values with 95 % intervals", plot) for plot in plots if plot]
    return [table(heads, rows, "Corpus value of each metric"), *figures]


def _unscorable(entry: Mapping[str, Any]) -> str:
    failed = {kind: count for kind, count in entry.get("failed", {}).items() if count}
    kinds = ", ".join(f"{kind} {count}" for kind, count in failed.items())
    return f"{entry['unscorable']} ({kinds})" if kinds else str(entry["unscorable"])


def _distributions(metrics: Mapping[str, Mapping[str, Any]], rows: ScoreRows) -> Sequence[Markup]:
    plots = []
    for name in metrics:
        if values := rows.values(name):
            mean = sum(values) / len(values)
            plots.append(histogram(f"{name}: reports by score; line: mean {shown_number(mean)}", values, mean))
    return [element("div", *plots, class_="cards")] if plots else []


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
