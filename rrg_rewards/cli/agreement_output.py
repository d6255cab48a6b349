"""Output of ``rrg-rewards agreement``: printed tables, rows of ``--output`` and LaTeX."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid

from rrg_rewards.analysis.tables import latex_row, latex_text, number_text, p_text
from rrg_rewards.cli.agreement_columns import ALL_ROWS

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["agreement_grids", "agreement_rows", "latex_table"]

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
