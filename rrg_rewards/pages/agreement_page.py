"""The page of ``rrg-rewards agreement --html``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rrg_rewards.pages.charts import Interval, intervals, matrix, scatter
from rrg_rewards.pages.markup import Markup, element, table
from rrg_rewards.pages.numbers import shown_interval, shown_number, shown_p
from rrg_rewards.pages.page import Page, Rows

__all__ = ["agreement_page"]

# Points of a plot; more cannot be told apart.
_MOST_POINTS = 1000


def agreement_page(
    result: Mapping[str, Any],
    columns: Mapping[str, Sequence[float]],
    human: Sequence[str],
    rows: Rows,
) -> Page:
    """Return the page of the agreement of scores with human judgements.

    Args:
        result: What ``--json`` contains.
        columns: Scores and judgements by name, ``N`` numbers each, NaN if missing; higher is better.
        human: Names of the judgements among ``columns``.
        rows: The rows of the table.
    """
    groups = dict(result["groups"])
    sections: dict[str, Sequence[Markup]] = {}
    for group, entry in groups.items():
        for name, found in entry["human"].items():
            where = "" if group == next(iter(groups)) else f", {result['group']} {group}"
            sections[f"Agreement with {name}{where}"] = list(_agreement(found))
    heat = next(iter(groups.values()))["correlations"]
    title = f"{heat['statistic'].capitalize()} between columns, {heat['rows']} rows"
    sections["Correlation of all columns"] = [matrix(title, heat["names"], heat["values"])]
    sections["Distribution by report"] = _points(columns, human)
    facts = {
        "Table": str(result["table"]),
        "Columns": "higher is better in all; the others have the opposite sign",
        "Interval": f"bootstrap, {result['bootstrap']['num_resamples']} resamples, seed {result['seed']}",
        "P-values": f"{result['permutations']} permutations, not corrected for the number of comparisons",
        **{f"Signature of {name}": text for name, text in result["signatures"].items()},
    }
    lead = f"{result['rows']} rows: agreement of {', '.join(_scores(columns, human))} with {', '.join(human)}."
    return Page("Agreement with human judgements", lead, sections, rows, facts)


def _scores(columns: Mapping[str, Sequence[float]], human: Sequence[str]) -> list[str]:
    return [name for name in columns if name not in human]


def _agreement(found: Mapping[str, Any]) -> Iterator[Markup]:
    yield element("p", f"{found['rows']} rows with this judgement and all scores.", class_="note")
    for statistic, scores in found["agreement"].items():
        marks = [
            Interval(name, entry["value"], entry["low"], entry["high"])
            for name, entry in scores.items()
            if entry["value"] is not None
        ]
        title = f"{statistic.capitalize()} with 95 % intervals"
        if marks and statistic == "binary":
            # Its value without agreement depends on the shares of positive scores and judgements.
            yield intervals(title, marks)
        elif marks:
            chance = 0.5 if statistic in ("accuracy", "preference") else 0.0
            yield intervals(f"{title}; line: no agreement", marks, {"zero": chance})
    cells = [
        [
            name,
            statistic,
            shown_number(entry["value"], 3),
            shown_interval(entry["low"], entry["high"]),
            shown_p(entry["p_value"]),
        ]
        for statistic, scores in found["agreement"].items()
        for name, entry in scores.items()
    ]
    yield table(["Score", "Statistic", "Value", "95 % interval", "p"], cells, "Agreement")
    if found["differences"]:
        cells = [
            [
                f"{entry['first']} - {entry['second']}",
                entry["statistic"],
                shown_number(entry["value"], 3),
                shown_interval(entry["low"], entry["high"]),
                shown_p(entry["p_value"]),
            ]
            for entry in found["differences"]
        ]
        yield table(["Difference", "Statistic", "Value", "95 % interval", "p"], cells, "Differences of two scores")


def _points(columns: Mapping[str, Sequence[float]], human: Sequence[str]) -> list[Markup]:
    plots = []
    for name in _scores(columns, human):
        for judgement in human:
            pairs = zip(columns[name], columns[judgement], strict=True)
            known = [pair for pair in pairs if pair[0] == pair[0] and pair[1] == pair[1]]
            step = -(-len(known) // _MOST_POINTS)
            shown = known[:: step or 1]
            part = f"every {step}th of {len(known)} rows" if step > 1 else f"{len(known)} rows"
            if shown:
                across, up = zip(*shown, strict=True)
                plots.append(scatter(f"{judgement} and {name}, {part}", (name, across), (judgement, up)))
    return [element("div", *plots, class_="cards")]
