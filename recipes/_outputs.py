"""Output files of a run: configuration, history, evaluations and curves."""

import dataclasses
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rrg_rewards.data import Table, open_output, write_json, write_table
from rrg_rewards.pages import run_page, write_page
from rrg_rewards.recipes._data import RecipeData
from rrg_rewards.utilities.imports import require

__all__ = ["describe", "plot_run", "versions", "write_rows", "write_run_file", "write_run_page"]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a non-empty sequence of rows with equal keys as a table."""
    write_table(Table({name: [row[name] for row in rows] for name in rows[0]}), path, overwrite=True)


def write_run_file(trainer: Any, name: str, content: Any) -> None:
    """Write a JSON file to the trainer's ``output_dir`` if this is the main process."""
    if trainer.accelerator.is_main_process:
        folder = Path(trainer.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(content, folder / name, overwrite=True)


def write_run_page(trainer: Any) -> None:
    """Write ``run.html``, which joins the results of a finished run without report text, on the main process."""
    if trainer.accelerator.is_main_process:
        folder = Path(trainer.args.output_dir)
        write_page(run_page(folder), folder / "run.html", overwrite=True)


def describe(recipe: Any, training: Any, model: Any, data: RecipeData) -> dict[str, Any]:
    """Return the content of ``run.json``: configuration, numbers of rows and processes, and versions of libraries."""
    return {
        "config": {**dataclasses.asdict(recipe), **training.to_dict(), **dataclasses.asdict(model)},
        "rows": {"train": len(data.train), "heldout": len(data.heldout), "left out": data.dropped},
        "processes": training.world_size,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the libraries that affect results."""
    return {name: version(name) for name in ("rrg-rewards", "torch", "transformers", "trl")}


def plot_run(
    path: Path, name: str, history: Sequence[Mapping[str, Any]], evaluations: Mapping[str, Any] | None = None
) -> None:
    """Plot a reward over the training steps, and the held-out statistics of each stage with their intervals.

    Args:
        path: PNG file.
        name: Name of the reward.
        history: The trainer's log history.
        evaluations: For each stage, the summary of each reward.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed; the message contains the pip command.
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
        # A percentile interval may exclude the estimate; error bars must not have a negative length.
        below = [max(value["estimate"] - value["low"], 0) for value in values]
        above = [max(value["high"] - value["estimate"], 0) for value in values]
        x = [index + spread * (offset - (len(stages) - 1) / 2) for index in range(len(shown))]
        axes.errorbar(x, centre, yerr=[below, above], fmt="o", capsize=3, label=stage.replace("_", " "))
    axes.set_xticks(range(len(shown)), shown)
    axes.set_title("held out, greedy, 95% interval")
    if stages:
        # The legend is below the axes because inside them it would cover intervals.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=len(stages), frameon=False)
