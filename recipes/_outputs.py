"""Output files of a run: configuration, history, evaluations and curves."""

import dataclasses
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rrg_rewards.data import Table, open_output, write_json, write_table
from rrg_rewards.pages import draw_run, run_page, write_page
from rrg_rewards.recipes._data import RecipeData

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
    with open_output(path, overwrite=True) as file:
        file.write(draw_run(name, history, evaluations or {}))
