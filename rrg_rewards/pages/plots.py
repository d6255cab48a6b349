"""Charts as PNG files, drawn with matplotlib."""

import io
from collections.abc import Sequence
from typing import Any

from rrg_rewards.pages.charts import Curves, Intervals, Matrix
from rrg_rewards.utilities.imports import require

_COLORS = {"value": "tab:blue", "exploit": "tab:red", "unclear": "tab:orange", "none": "tab:green"}
_MARKS = {
    "zero": {"color": "black"},
    "threshold": {"color": "black", "linestyle": "--"},
    "reference": {"color": "gray", "linestyle": ":"},
}


def draw_png(
    charts: Sequence[Curves | Intervals | Matrix],
    size: tuple[float, float],
    columns: int = 1,
    widths: Sequence[float] | None = None,
) -> bytes:
    """Draw charts in one figure, row by row, and return it as PNG.

    Args:
        charts: The charts.
        size: Width and height of the figure in inches.
        columns: Number of charts in a row.
        widths: Width of each column in relation to the others. Default: equal widths.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed. The message contains the pip command.
    """
    figure = require("matplotlib.figure", extra="plot").Figure(figsize=size, layout="constrained")
    rows = -(-len(charts) // columns) or 1
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=widths)
    for axes in grid.flat[len(charts) :]:
        axes.axis("off")
    for axes, chart in zip(grid.flat, charts, strict=False):
        axes.set_title(chart.title, fontsize=9)
        axes.tick_params(labelsize=8)
        if isinstance(chart, Intervals):
            _draw_intervals(axes, chart)
        elif isinstance(chart, Curves):
            _draw_curves(axes, chart)
        else:
            figure.colorbar(_draw_matrix(axes, chart), ax=axes, shrink=0.8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def _draw_intervals(axes: Any, chart: Intervals) -> None:
    for number, row in enumerate(chart.rows):
        color = _COLORS[row.kind]
        axes.plot(row.value, number, "o", color=color)
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [number, number], color=color)
    for kind, value in chart.marks.items():
        axes.axvline(value, linewidth=0.8, **_MARKS[kind])
    axes.set_yticks(range(len(chart.rows)), [row.name for row in chart.rows])
    axes.invert_yaxis()


def _draw_curves(axes: Any, chart: Curves) -> None:
    for name, points in chart.lines.items():
        style = {"linestyle": "--", "color": "gray"} if name in chart.dashed else {"marker": "."}
        axes.plot([step for step, _ in points], [value for _, value in points], label=name, **style)
    for step in chart.marks:
        axes.axvline(step, color="red", linewidth=0.7, alpha=0.5)
    axes.set_xlabel("step", fontsize=8)
    if len(chart.lines) > 1:
        axes.legend(fontsize=7, frameon=False)


def _draw_matrix(axes: Any, chart: Matrix) -> Any:
    """Draw a matrix, and return the image that its colour bar describes."""
    cells = [[float("nan") if value is None else value for value in row] for row in chart.values]
    image = axes.imshow(cells, vmin=-1, vmax=1, cmap="RdBu_r")
    axes.set_xticks(range(len(chart.names)), chart.names, rotation=45, ha="right")
    axes.set_yticks(range(len(chart.names)), chart.names)
    for row, values in enumerate(chart.values):
        for column, value in enumerate(values):
            text = "-" if value is None else f"{value:.2f}"
            color = "white" if value is not None and abs(value) > 0.6 else "black"
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
    return image
