"""Plots of training reports."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.data.tables.writers import open_output
from rrg_rewards.metrics.reward_agreement import GradedRewards, annotated_totals
from rrg_rewards.utilities.imports import require

__all__ = ["draw_accuracy", "draw_counts", "draw_curve", "draw_mae", "draw_totals", "write_plots"]


def write_plots(folder: Path, plots: Mapping[str, Callable[[Any], None]]) -> list[str]:
    """Write plots as PNG files, if matplotlib is installed.

    Args:
        folder: Folder of the files.
        plots: Functions that draw on given matplotlib axes, by file name.

    Returns:
        Names of the files; empty if matplotlib is not installed.
    """
    try:
        figures = require("matplotlib.figure", extra="plot")
    except ModuleNotFoundError:
        return []
    for name, draw in plots.items():
        figure = figures.Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False)
        with open_output(folder / name, overwrite=True) as file:
            figure.savefig(file, format="png", dpi=150)
    return list(plots)


def draw_curve(axes: Any, history: Sequence[Mapping[str, float | None]], names: Sequence[str]) -> None:
    """Draw logged values over epochs."""
    epochs = [row["epoch"] for row in history]
    for name in names:
        axes.plot(epochs, [row.get(name) for row in history], marker=".", label=name)
    axes.set(xlabel="epoch", title="learning curve")


def draw_counts(axes: Any, counts: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """Draw predicted over true total error counts, by source."""
    noise = torch.Generator().manual_seed(0)
    highest = 1.0
    for name, (preds, target) in counts.items():
        annotated = ~target.isnan().any(1)
        if bool(annotated.any()):
            true, predicted = target[annotated].sum(1), preds[annotated].sum(1)
            # Add jitter, because true counts are integers and points would overlap.
            jitter = (torch.rand(len(true), generator=noise) - 0.5) * 0.5
            axes.scatter((true + jitter).tolist(), predicted.tolist(), s=8, alpha=0.4, label=name)
            highest = max(highest, float(true.max()), float(predicted.max()))
    axes.plot([0, highest], [0, highest], color="black", linewidth=0.8)
    axes.set(xlabel="true errors", ylabel="predicted errors", title="held-out pairs")


def draw_mae(axes: Any, categories: Mapping[str, Mapping[str, float | None]]) -> None:
    """Draw mean absolute errors by category, and those of always predicting the mean."""
    names = [name for name, row in categories.items() if row["mae"] is not None]
    positions = range(len(names))
    for offset, (key, label) in zip((-0.2, 0.2), (("mae", "model"), ("mae_of_mean", "always the mean")), strict=True):
        axes.bar([x + offset for x in positions], [categories[name][key] for name in names], 0.4, label=label)
    axes.set_xticks(list(positions), [name.replace("_", "\n") for name in names], fontsize=8)
    axes.set(ylabel="mean absolute error", title="held-out pairs, by category")


def draw_accuracy(axes: Any, test: Mapping[str, Any]) -> None:
    """Draw the pairwise accuracy of the total and of each criterion."""
    bars = {"total": test, **test["criteria"]}
    known = {name: row for name, row in bars.items() if row["accuracy"] is not None}
    positions = range(len(known))
    axes.bar(positions, [row["accuracy"] for row in known.values()])
    axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    labels = [f"{name.replace('_', chr(10))}\n({row['pairs']})" for name, row in known.items()]
    axes.set_xticks(list(positions), labels, fontsize=7)
    axes.set(ylim=(0, 1), ylabel="ordered correctly", title="held-out pairs (number that differ)")


def draw_totals(axes: Any, rewards: Mapping[str, GradedRewards], base: float) -> None:
    """Draw predicted over true totals, by source."""
    ends: list[Tensor] = []
    for name, graded in rewards.items():
        predicted, true = annotated_totals(graded.rewards, graded.contributions)
        if len(true):
            axes.scatter((base + true).tolist(), (base + predicted).tolist(), s=8, alpha=0.4, label=name)
            ends += [base + true, base + predicted]
    if ends:
        low, high = float(torch.cat(ends).min()), float(torch.cat(ends).max())
        axes.plot([low, high], [low, high], color="black", linewidth=0.8)
    axes.set(xlabel="true total", ylabel="predicted total", title="held-out reports")
