"""What a run leaves behind: its configuration, history, evaluations and curve."""

import dataclasses
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rrg_rewards.data import Table, open_output, write_table
from rrg_rewards.recipes._data import RecipeData
from rrg_rewards.utilities.imports import require

__all__ = ["describe", "plot_run", "versions", "write_rows"]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one row or more, which all have the same keys, as a table."""
    write_table(Table({name: [row[name] for row in rows] for name in rows[0]}), path, overwrite=True)


def describe(recipe: Any, training: Any, model: Any, data: RecipeData) -> dict[str, Any]:
    """What a run is: its resolved configuration, how many rows and processes, and the versions of libraries."""
    return {
        "config": {**dataclasses.asdict(recipe), **training.to_dict(), **dataclasses.asdict(model)},
        "rows": {"train": len(data.train), "heldout": len(data.heldout), "left out": data.dropped},
        "processes": training.world_size,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of what a run's numbers depend on."""
    return {name: version(name) for name in ("rrg-rewards", "torch", "transformers", "trl")}


def plot_run(
    path: Path, name: str, history: Sequence[Mapping[str, Any]], evaluations: Mapping[str, Any] | None = None
) -> None:
    """Draw a reward over training steps, and the held-out statistics before and after with their intervals.

    Args:
        path: PNG file.
        name: Name of the reward.
        history: The trainer's log history.
        evaluations: Summaries ``before`` and ``after``, by reward.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed, naming the pip command.
    """
    figure = require("matplotlib.figure", extra="plot").Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    logs = [entry for entry in history if entry.get(f"rewards/{name}/mean") is not None]
    left.plot([entry["step"] for entry in logs], [entry[f"rewards/{name}/mean"] for entry in logs], marker=".")
    left.set(xlabel="step", ylabel=f"mean reward {name}", title="training")
    _plot_heldout(right, {stage: summary[name] for stage, summary in (evaluations or {}).items() if name in summary})
    with open_output(path, overwrite=True) as file:
        figure.savefig(file, format="png", dpi=150)


def _plot_heldout(axes: Any, stages: Mapping[str, Mapping[str, Any]]) -> None:
    first = next(iter(stages.values()), {})
    shown = [name for name in ("crg", "precision", "recall") if name in first] or [name for name in ("score",) if first]
    spread = 0.5 / max(len(stages) - 1, 1)
    for offset, (stage, summary) in enumerate(stages.items()):
        values = [summary[name] for name in shown]
        centre = [value["estimate"] for value in values]
        # A percentile interval need not hold the estimate; an error bar has no negative length.
        below = [max(value["estimate"] - value["low"], 0) for value in values]
        above = [max(value["high"] - value["estimate"], 0) for value in values]
        places = [place + spread * (offset - (len(stages) - 1) / 2) for place in range(len(shown))]
        axes.errorbar(places, centre, yerr=[below, above], fmt="o", capsize=3, label=stage.replace("_", " "))
    axes.set_xticks(range(len(shown)), shown)
    axes.set_title("held out, greedy, 95% interval")
    if stages:
        # Below the figure, where it hides no interval.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=len(stages), frameon=False)
