"""The page of ``rrg-rewards agreement``, and its plot."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rrg_rewards.analysis.agreement import RatedRows
from rrg_rewards.pages.page import Column, Page, Pane, Rows, sample_note
from rrg_rewards.pages.text_tables import HEADING, distinct_tables
from rrg_rewards.utilities.charts import Interval, Intervals, Scatter, cards
from rrg_rewards.utilities.markup import Markup, element, shown_interval, shown_number, shown_p, table

# Points of a plot; more cannot be told apart.
_MOST_POINTS = 1000


def agreement_page(result: Mapping[str, Any], rows: RatedRows) -> Page:
    """Return the page of the agreement of scores with human judgements in a table.

    Args:
        result: The summary of the command.
        rows: The scores and judgements, with the names and reports that the page shows.
    """
    # The rows have the opposite sign in these columns; 0.0 is added so that none is -0.
    rows, lower = rows.turned(result["lower_is_better"]), result["lower_is_better"]
    columns = {name: (column + 0.0).tolist() for name, column in rows.columns.items()}
    human = list(rows.human)
    cells = [Column(name, column, "human" if name in human else "scores") for name, column in columns.items()]
    if rows.groups is not None:
        cells.append(Column(result["group"], rows.groups, "table"))
    names = rows.names or [str(row + 1) for row in range(len(rows))]
    panes = [Pane(name, texts) for name, texts in rows.texts.items()]
    groups = dict(result["groups"])
    sections: dict[str, Sequence[Markup]] = {}
    for group, entry in groups.items():
        for name, found in entry["human"].items():
            where = "" if group == next(iter(groups)) else f", {result['group']} {group}"
            sections[f"Agreement with {name}{where}"] = list(_agreement(found, result["permutations"]))
    if result.get("texts"):
        sections[HEADING] = list(distinct_tables(result["texts"]))
    sections["Distribution by report"] = _points(columns, rows)
    turned = f"lower is better in {' and '.join(lower)}; agreement uses the opposite sign"
    facts = {
        "Table": str(result["table"]),
        "Columns": turned if lower else "higher is better in all",
        "Interval": f"bootstrap, {result['bootstrap']['num_resamples']} resamples, seed {result['seed']}",
        "P-values": f"{result['permutations']} permutations, not corrected for the number of comparisons",
        **{f"Signature of {name}": text for name, text in result["signatures"].items()},
    }
    lead = f"{result['rows']} rows: agreement of {', '.join(rows.scores)} with {', '.join(human)}."
    lead += sample_note(len(names), "rows")
    shown = Rows("row", names, cells, panes).sampled()
    return Page("Agreement with human judgements", lead, sections, shown, facts)


def _intervals(title: str, statistic: str, scores: Mapping[str, Mapping[str, Any]]) -> Intervals:
    """Return the values of a statistic by score, with a line at its value without agreement."""
    rows = [
        Interval(name, entry["value"], entry["low"], entry["high"])
        for name, entry in scores.items()
        if entry["value"] is not None
    ]
    # That of "binary" depends on the shares of positive scores and judgements.
    chance = 0.5 if statistic in ("accuracy", "preference") else 0.0
    return Intervals(title, rows, {} if statistic == "binary" else {"zero": chance})


def _agreement(found: Mapping[str, Any], permutations: int) -> Iterator[Markup]:
    yield element("p", f"{found['rows']} rows with this judgement and all scores.", class_="note")
    for statistic, scores in found["agreement"].items():
        line = "" if statistic == "binary" else "; line: no agreement"
        chart = _intervals(f"{statistic.capitalize()} with 95 % intervals{line}", statistic, scores)
        if chart.rows:
            yield chart.svg()
    cells = [
        [
            name,
            statistic,
            shown_number(entry["value"], 3),
            shown_interval(entry["low"], entry["high"]),
            shown_p(entry["p_value"], permutations),
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
                shown_p(entry["p_value"], permutations),
            ]
            for entry in found["differences"]
        ]
        yield table(["Difference", "Statistic", "Value", "95 % interval", "p"], cells, "Differences of two scores")


def _points(columns: Mapping[str, Sequence[float]], rows: RatedRows) -> list[Markup]:
    plots = []
    for name in rows.scores:
        for judgement in rows.human:
            pairs = zip(columns[name], columns[judgement], strict=True)
            known = [pair for pair in pairs if pair[0] == pair[0] and pair[1] == pair[1]]
            step = -(-len(known) // _MOST_POINTS)
            shown = known[:: step or 1]
            part = f"every {step}th of {len(known)} rows" if step > 1 else f"{len(known)} rows"
            if shown:
                plots.append(Scatter(f"{judgement} and {name}, {part}", name, judgement, {name: shown}))
    return cards(plots)
