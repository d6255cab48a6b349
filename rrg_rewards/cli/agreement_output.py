"""Output of ``rrg-rewards agreement``: printed tables, rows of ``--output``, LaTeX and a plot."""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid

from rrg_rewards.cli.agreement_columns import ALL_ROWS
from rrg_rewards.cli.table_text import latex_row, latex_text, number_text, p_text
from rrg_rewards.utilities.imports import require

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["agreement_grids", "agreement_rows", "draw_agreement", "latex_table"]

_TITLES = {"kendall": "Kendall", "spearman": "Spearman", "pearson": "Pearson"}
_LATEX_TITLES = {"kendall": r"Kendall's $\tau_b$", "spearman": r"Spearman's $\rho$", "pearson": "Pearson's $r$"}


def _tables(result: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield group, human column and agreement."""
    for group, entry in result["groups"].items():
        for human, found in entry["human"].items():
            yield group, human, found


def agreement_rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one record for each group, human column, statistic, and score or difference of two scores."""
    rows = []
    for group, human, found in _tables(result):
        place = {"group": group, "human": human, "rows": found["rows"]}
        for statistic, scores in found["agreement"].items():
            rows += [
                {**place, "statistic": statistic, "score": name, "minus": None, **entry, "williams_p_value": None}
                for name, entry in scores.items()
            ]
        for difference in found["differences"]:
            entry = {key: value for key, value in difference.items() if key not in ("first", "second")}
            named = {"score": difference["first"], "minus": difference["second"]}
            rows.append({**place, **named, "chance_low": None, "chance_high": None, **entry})
    return rows


def agreement_grids(result: Mapping[str, Any]) -> "list[RenderableType]":
    """Return a result as tables of rich: agreement, differences and, for all rows, correlations of all columns."""
    grids: list[RenderableType] = []
    for group, human, found in _tables(result):
        where = "" if group == ALL_ROWS else f", {result['group']} {group}"
        grids.append(_agreement_grid(f"{human}{where}: {found['rows']} rows{_units(result, found)}", found))
        if found["differences"]:
            grids.append(_difference_grid(f"{human}{where}: differences", found["differences"]))
    grids.append(_correlation_grid(result["groups"][ALL_ROWS]["correlations"]))
    return grids


def _units(result: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    return "" if result["unit"] is None else f" of {found['units']} {result['unit']}"


def _agreement_grid(title: str, found: Mapping[str, Any]) -> Grid:
    grid = Grid(title=title, title_justify="left")
    grid.add_column("statistic")
    grid.add_column("score")
    for heading in ("value", "p"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for statistic, scores in found["agreement"].items():
        for place, (name, entry) in enumerate(scores.items()):
            last = place == len(scores) - 1
            cells = ("" if place else statistic, name, _with_interval(entry), p_text(entry["p_value"]))
            grid.add_row(*cells, end_section=last)
    return grid


def _difference_grid(title: str, differences: Sequence[Mapping[str, Any]]) -> Grid:
    williams = any(entry["williams_p_value"] is not None for entry in differences)
    grid = Grid(title=title, title_justify="left")
    grid.add_column("difference")
    grid.add_column("statistic")
    for heading in ("value", "p", *(["p, Williams"] if williams else [])):
        grid.add_column(heading, justify="right", no_wrap=True)
    for entry in differences:
        cells = [_with_interval(entry), p_text(entry["p_value"])]
        own = [p_text(entry["williams_p_value"])] if williams else []
        grid.add_row(f"{entry['first']} - {entry['second']}", entry["statistic"], *cells, *own)
    return grid


def _correlation_grid(found: Mapping[str, Any]) -> Grid:
    grid = Grid(title=f"{found['statistic']} between columns: {found['rows']} rows", title_justify="left")
    grid.add_column("")
    for name in found["names"]:
        grid.add_column(name, justify="right")
    for name, values in zip(found["names"], found["values"], strict=True):
        grid.add_row(name, *map(number_text, values))
    return grid


def _with_interval(entry: Mapping[str, Any]) -> str:
    ends = "" if entry["low"] is None else f" ({entry['low']:.3f} to {entry['high']:.3f})"
    return number_text(entry["value"]) + ends


def latex_table(result: Mapping[str, Any]) -> str:
    r"""Return the agreement as a LaTeX ``tabular`` with the rules of the package ``booktabs``.

    There is one row for each score, one column for each human column and statistic, and one block for each group. The
    highest value of a column is bold.

    Example:
        >>> one = {"value": 0.5, "low": 0.25, "high": 0.75}
        >>> human = {"rating": {"rows": 9, "agreement": {"kendall": {"crg_1": one}}}}
        >>> print(latex_table({"groups": {"all": {"human": human}}}))
        \begin{tabular}{lr}
        \toprule
         & \multicolumn{1}{c}{rating (N = 9)} \\
         & Kendall's $\tau_b$ \\
        \midrule
        crg\_1 & \textbf{0.500} [0.250, 0.750] \\
        \bottomrule
        \end{tabular}
        <BLANKLINE>
    """
    blocks = []
    for group, entry in result["groups"].items():
        humans = [
            rf"\multicolumn{{{len(found['agreement'])}}}{{c}}{{{latex_text(human)} (N = {found['rows']})}}"
            for human, found in entry["human"].items()
        ]
        columns = [column for found in entry["human"].values() for column in found["agreement"].items()]
        titles = [_LATEX_TITLES.get(statistic, statistic) for statistic, _ in columns]
        lines = [latex_row(["", *humans]), latex_row(["" if group == ALL_ROWS else latex_text(group), *titles])]
        lines.append(r"\midrule")
        for name in columns[0][1]:
            lines.append(latex_row([latex_text(name), *(_latex_cell(scores, name) for _, scores in columns)]))
        blocks.append("\n".join(lines))
    body = "\n\\midrule\n".join(blocks)
    return f"\\begin{{tabular}}{{l{'r' * len(columns)}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"


def _latex_cell(scores: Mapping[str, Mapping[str, Any]], name: str) -> str:
    entry = scores[name]
    if entry["value"] is None:
        return "--"
    best = max(other["value"] for other in scores.values() if other["value"] is not None)
    value = f"{entry['value']:.3f}"
    shown = rf"\textbf{{{value}}}" if entry["value"] == best else value
    return shown if entry["low"] is None else f"{shown} [{entry['low']:.3f}, {entry['high']:.3f}]"


def draw_agreement(result: Mapping[str, Any]) -> bytes:
    """Draw the correlations of all columns as a heatmap, and the first statistic with intervals, as PNG.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed. The message contains the pip command.
    """
    entry = result["groups"][ALL_ROWS]
    heat, humans = entry["correlations"], entry["human"]
    size = len(heat["names"])
    figure = require("matplotlib.figure", extra="plot").Figure(
        figsize=(3 + 0.6 * size + 3.2 * len(humans), 2 + 0.5 * size), layout="constrained"
    )
    widths = [3 + 0.6 * size, *([3.2] * len(humans))]
    first, *others = figure.subplots(1, 1 + len(humans), squeeze=False, width_ratios=widths)[0]
    _draw_heatmap(figure, first, heat)
    for axes, (human, found) in zip(others, humans.items(), strict=True):
        statistic, scores = next(iter(found["agreement"].items()))
        for place, one in enumerate(scores.values()):
            if one["value"] is not None:
                axes.plot(one["value"], place, "o", color="tab:blue")
            if one["low"] is not None:
                axes.plot([one["low"], one["high"]], [place, place], color="tab:blue")
        axes.set_yticks(range(len(scores)), list(scores), fontsize=8)
        axes.invert_yaxis()
        if statistic != "binary":
            axes.axvline(0.5 if statistic in ("accuracy", "preference") else 0, color="black", linewidth=0.8)
        axes.set_title(f"{human}: {_TITLES.get(statistic, statistic)}, {found['rows']} rows", fontsize=9)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def _draw_heatmap(figure: Any, axes: Any, heat: Mapping[str, Any]) -> None:
    values = [[float("nan") if value is None else value for value in row] for row in heat["values"]]
    image = axes.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r")
    places = range(len(heat["names"]))
    axes.set_xticks(places, heat["names"], rotation=45, ha="right", fontsize=8)
    axes.set_yticks(places, heat["names"], fontsize=8)
    for row in places:
        for column in places:
            value = heat["values"][row][column]
            color = "white" if value is not None and abs(value) > 0.6 else "black"
            axes.text(
                column, row, "-" if value is None else f"{value:.2f}", ha="center", va="center", fontsize=7, color=color
            )
    axes.set_title(f"{_TITLES[heat['statistic']]} between columns, {heat['rows']} rows", fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8)
