"""What the reports of all training runs have in common: files, plots, a summary, without a word of any report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from rrg_rewards.data.writers import open_output, write_json
from rrg_rewards.utilities.imports import require

__all__ = ["Summary", "draw_curve", "draw_plots", "finite", "number", "table", "versions", "write_report"]

Drawings = Mapping[str, Callable[[Any], None]]


@dataclass(frozen=True)
class Summary:
    """What a terminal shows of a report.

    Args:
        title: Title of the table.
        headings: Headings of its columns.
        rows: Its rows.
        lines: What follows it.
    """

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    lines: Sequence[str]


def versions() -> dict[str, str]:
    """Versions of what a run's numbers depend on."""
    return {name: version(name) for name in ("rrg-rewards", "torch", "transformers", "lightning")}


def finite(value: Tensor) -> float | None:
    """A scalar as a number, ``None`` where it is NaN or infinite.

    Example:
        >>> import torch
        >>> finite(torch.tensor(0.5)), finite(torch.tensor(float("nan")))
        (0.5, None)
    """
    return float(value) if bool(value.isfinite()) else None


def number(value: float | None) -> str:
    """A number for a table.

    Example:
        >>> number(0.12345), number(None)
        ('0.123', '-')
    """
    return "-" if value is None else f"{value:.3f}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table whose first column is text and whose others are numbers.

    Example:
        >>> table(("Source", "Pairs"), [("reports", "12")])
        ['| Source | Pairs |', '|---|---:|', '| reports | 12 |']
    """
    rule = "|".join(["---", *["---:"] * (len(headings) - 1)])
    return [f"| {' | '.join(headings)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]


def write_report(
    folder: Path, report: Mapping[str, Any], page: Callable[[Mapping[str, Any], Sequence[str]], str], drawings: Drawings
) -> None:
    """Write ``report.json``, ``report.md`` and, if matplotlib is installed, the plots.

    Args:
        folder: Where to.
        report: What ``report.json`` holds.
        page: Makes the page of Markdown of the report and the plots' names.
        drawings: What draws each plot on matplotlib's axes, by file name.
    """
    write_json(report, folder / "report.json", overwrite=True)
    plots = draw_plots(folder, drawings)
    with open_output(folder / "report.md", overwrite=True) as file:
        file.write(page(report, plots).encode("utf-8"))


def draw_plots(folder: Path, drawings: Drawings) -> list[str]:
    """Draw the plots, if matplotlib is installed.

    Returns:
        Names of the files, none without matplotlib.
    """
    try:
        figures = require("matplotlib.figure", extra="plot")
    except ModuleNotFoundError:
        return []
    for name, draw in drawings.items():
        figure = figures.Figure(figsize=(6, 4), layout="constrained")
        draw(figure.subplots())
        with open_output(folder / name, overwrite=True) as file:
            figure.savefig(file, format="png", dpi=150)
    return list(drawings)


def draw_curve(axes: Any, history: Sequence[Mapping[str, float | None]], names: Sequence[str]) -> None:
    """Draw what was logged over epochs."""
    epochs = [row["epoch"] for row in history]
    for name in names:
        axes.plot(epochs, [row.get(name) for row in history], marker=".", label=name)
    axes.set(xlabel="epoch", title="learning curve")
    axes.legend(frameon=False)
