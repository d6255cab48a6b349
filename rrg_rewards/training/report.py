"""What a training run has come to: numbers, a page and plots, without a word of any report."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.data.writers import open_output, write_json
from rrg_rewards.functional.rank_correlation import kendall_tau
from rrg_rewards.utilities.imports import require

__all__ = ["agreement", "plot_report", "report_page", "versions", "write_report"]

Counts = tuple[Tensor, Tensor]


def versions() -> dict[str, str]:
    """Versions of what a run's numbers depend on."""
    return {name: version(name) for name in ("rrg-rewards", "torch", "transformers", "lightning")}


def agreement(counts: Counts, mean_counts: Tensor, categories: Sequence[str]) -> dict[str, Any]:
    """How well predicted counts agree with true ones, beside always predicting the mean of training.

    Args:
        counts: Predicted and true counts, each ``(N, C)``; NaN where a category is not annotated.
        mean_counts: Mean counts of training, ``(C,)``.
        categories: Names of the categories.

    Returns:
        ``pairs``, ``tau`` (``None`` where nothing is ranked), ``mae`` of the total, and for each category ``mae``,
        ``mae_of_mean`` and ``mean_true``, ``None`` where it is not annotated.

    Example:
        >>> found = agreement((torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0], [2.0]])), torch.tensor([1.5]), ["A"])
        >>> found["tau"], found["mae"], found["categories"]["A"]
        (1.0, 0.5, {'mae': 0.5, 'mae_of_mean': 0.5, 'mean_true': 1.5})
    """
    preds, target = counts
    whole = ~target.isnan().any(1)
    total = (preds[whole].sum(1), target[whole].sum(1))
    by_category = {
        "mae": (preds - target).abs().nanmean(0),
        "mae_of_mean": (mean_counts.to(target) - target).abs().nanmean(0),
        "mean_true": target.nanmean(0),
    }
    return {
        "pairs": len(preds),
        "pairs_with_total": int(whole.sum()),
        "tau": _finite(kendall_tau(*total)),
        "mae": _finite((total[0] - total[1]).abs().mean()),
        "categories": {
            name: {statistic: _finite(values[place]) for statistic, values in by_category.items()}
            for place, name in enumerate(categories)
        },
    }


def _finite(value: Tensor) -> float | None:
    return float(value) if bool(value.isfinite()) else None


def pooled(counts: Mapping[str, Counts]) -> Counts:
    """Predicted and true counts of all sources together."""
    preds, target = zip(*counts.values(), strict=True)
    return torch.cat(preds), torch.cat(target)


def write_report(
    folder: Path,
    counts: Mapping[str, Counts],
    mean_counts: Tensor,
    categories: Sequence[str],
    history: Sequence[Mapping[str, float | None]],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write ``report.json``, ``report.md`` and, if matplotlib is installed, ``counts.png``, ``mae.png``, ``curve.png``.

    Args:
        folder: Where to.
        counts: Predicted and true counts of the test's pairs, by source.
        mean_counts: Mean counts of training, ``(C,)``.
        categories: Names of the categories.
        history: What was logged, validation by validation.
        about: What else the report is to say: configuration, data, best validation.

    Returns:
        What ``report.json`` holds.
    """
    report = {
        **about,
        "test": agreement(pooled(counts), mean_counts, categories),
        "test_by_source": {
            name: agreement(own, mean_counts, categories) for name, own in counts.items() if len(own[0])
        },
        "mean_counts_of_training": dict(zip(categories, mean_counts.tolist(), strict=True)),
        "history": list(history),
        "versions": versions(),
    }
    write_json(report, folder / "report.json", overwrite=True)
    plots = plot_report(folder, counts, report)
    with open_output(folder / "report.md", overwrite=True) as file:
        file.write(report_page(report, plots).encode("utf-8"))
    return report


def report_page(report: Mapping[str, Any], plots: Sequence[str] = ()) -> str:
    """The report as a page of Markdown."""
    test = report["test"]
    lines = [
        f"# {report['task']}: training report",
        "",
        f"Kendall's tau of predicted and true total counts on {test['pairs_with_total']} held-out pairs: "
        f"**{_number(test['tau'])}**; mean absolute error of the total: {_number(test['mae'])}.",
        "",
        "| Source | Pairs | Tau | MAE of the total |",
        "|---|---:|---:|---:|",
    ]
    for name, own in report["test_by_source"].items():
        lines.append(f"| {name} | {own['pairs']} | {_number(own['tau'])} | {_number(own['mae'])} |")
    lines += [
        "",
        "| Category | Mean true count | MAE | MAE of always predicting the mean | Below it |",
        "|---|---:|---:|---:|---|",
    ]
    for name, row in test["categories"].items():
        below = row["mae"] is not None and row["mae"] < row["mae_of_mean"]
        numbers = " | ".join(_number(row[key]) for key in ("mean_true", "mae", "mae_of_mean"))
        lines.append(f"| {name} | {numbers} | {'yes' if below else 'no'} |")
    lines += ["", *(f"![{name}]({name})" for name in plots)]
    return "\n".join(lines).rstrip() + "\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def plot_report(folder: Path, counts: Mapping[str, Counts], report: Mapping[str, Any]) -> list[str]:
    """Draw the plots, if matplotlib is installed.

    Returns:
        Names of the files, none without matplotlib.
    """
    try:
        figures = require("matplotlib.figure", extra="plot")
    except ModuleNotFoundError:
        return []
    drawings: dict[str, Callable[[Any], None]] = {
        "counts.png": lambda axes: _draw_counts(axes, counts),
        "mae.png": lambda axes: _draw_mae(axes, report["test"]["categories"]),
        "curve.png": lambda axes: _draw_curve(axes, report["history"]),
    }
    for name, draw in drawings.items():
        figure = figures.Figure(figsize=(6, 4), layout="constrained")
        draw(figure.subplots())
        with open_output(folder / name, overwrite=True) as file:
            figure.savefig(file, format="png", dpi=150)
    return list(drawings)


def _draw_counts(axes: Any, counts: Mapping[str, Counts]) -> None:
    noise = torch.Generator().manual_seed(0)
    highest = 1.0
    for name, (preds, target) in counts.items():
        whole = ~target.isnan().any(1)
        if bool(whole.any()):
            true, predicted = target[whole].sum(1), preds[whole].sum(1)
            # True counts are whole numbers: spread a little, the points do not hide one another.
            spread = (torch.rand(len(true), generator=noise) - 0.5) * 0.5
            axes.scatter((true + spread).tolist(), predicted.tolist(), s=8, alpha=0.4, label=name)
            highest = max(highest, float(true.max()), float(predicted.max()))
    axes.plot([0, highest], [0, highest], color="black", linewidth=0.8)
    axes.set(xlabel="true errors", ylabel="predicted errors", title="held-out pairs")
    axes.legend(frameon=False)


def _draw_mae(axes: Any, categories: Mapping[str, Mapping[str, float | None]]) -> None:
    names = [name for name, row in categories.items() if row["mae"] is not None]
    places = range(len(names))
    for offset, (key, label) in zip((-0.2, 0.2), (("mae", "model"), ("mae_of_mean", "always the mean")), strict=True):
        axes.bar([place + offset for place in places], [categories[name][key] for name in names], 0.4, label=label)
    axes.set_xticks(list(places), [name.replace("_", "\n") for name in names], fontsize=8)
    axes.set(ylabel="mean absolute error", title="held-out pairs, by category")
    axes.legend(frameon=False)


def _draw_curve(axes: Any, history: Sequence[Mapping[str, float | None]]) -> None:
    epochs = [row["epoch"] for row in history]
    for name in ("train/loss", "val/loss", "val/tau"):
        axes.plot(epochs, [row.get(name) for row in history], marker=".", label=name)
    axes.set(xlabel="epoch", title="learning curve")
    axes.legend(frameon=False)
