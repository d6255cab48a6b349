"""What a training of CREPE has come to: numbers, a page, plots and a summary, without a word of any report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.functional.rank_correlation import kendall_tau
from rrg_rewards.training.crepe import CrepeDataModule, CrepeModule
from rrg_rewards.training.report import Summary, draw_curve, finite, number, table, versions, write_report

__all__ = ["agreement", "crepe_report", "crepe_summary", "report_page"]

Counts = tuple[Tensor, Tensor]


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
        "tau": finite(kendall_tau(*total)),
        "mae": finite((total[0] - total[1]).abs().mean()),
        "categories": {
            name: {statistic: finite(values[place]) for statistic, values in by_category.items()}
            for place, name in enumerate(categories)
        },
    }


def pooled(counts: Mapping[str, Counts]) -> Counts:
    """Predicted and true counts of all sources together."""
    preds, target = zip(*counts.values(), strict=True)
    return torch.cat(preds), torch.cat(target)


def crepe_report(
    folder: Path,
    module: CrepeModule,
    data: CrepeDataModule,
    history: Sequence[Mapping[str, float | None]],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write ``report.json``, ``report.md`` and, if matplotlib is installed, ``counts.png``, ``mae.png``, ``curve.png``.

    Args:
        folder: Where to.
        module: What was trained, after its test.
        data: What it was trained and tested on.
        history: What was logged, validation by validation.
        about: What else the report is to say: configuration, data, best validation.

    Returns:
        What ``report.json`` holds.
    """
    counts, mean_counts = module.test_counts, data.mean_counts()
    categories = module.model.config.error_categories
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
    drawings = {
        "counts.png": lambda axes: _draw_counts(axes, counts),
        "mae.png": lambda axes: _draw_mae(axes, report["test"]["categories"]),
        "curve.png": lambda axes: draw_curve(axes, history, ("train/loss", "val/loss", "val/tau")),
    }
    write_report(folder, report, report_page, drawings)
    return report


def crepe_summary(report: Mapping[str, Any]) -> Summary:
    """What a terminal shows of a report."""
    rows = [
        (name, *(number(row[key]) for key in ("mean_true", "mae", "mae_of_mean")))
        for name, row in report["test"]["categories"].items()
    ]
    lines = [
        f"{name}: {own['pairs']} pairs, Kendall's tau {number(own['tau'])}"
        for name, own in report["test_by_source"].items()
    ]
    lines.append(f"all: Kendall's tau {number(report['test']['tau'])}")
    title = f"{report['test']['pairs']} held-out pairs"
    return Summary(title, ("category", "mean count", "MAE", "MAE of the mean"), rows, lines)


def report_page(report: Mapping[str, Any], plots: Sequence[str] = ()) -> str:
    """The report as a page of Markdown."""
    test = report["test"]
    lines = [
        f"# {report['task']}: training report",
        "",
        f"Kendall's tau of predicted and true total counts on {test['pairs_with_total']} held-out pairs: "
        f"**{number(test['tau'])}**; mean absolute error of the total: {number(test['mae'])}.",
        "",
        *table(
            ("Source", "Pairs", "Tau", "MAE of the total"),
            [
                (name, str(own["pairs"]), number(own["tau"]), number(own["mae"]))
                for name, own in report["test_by_source"].items()
            ],
        ),
    ]
    headings = ("Category", "Mean true count", "MAE", "MAE of always predicting the mean", "Below it")
    rows = []
    for name, row in test["categories"].items():
        below = row["mae"] is not None and row["mae"] < row["mae_of_mean"]
        numbers = (number(row[key]) for key in ("mean_true", "mae", "mae_of_mean"))
        rows.append((name, *numbers, "yes" if below else "no"))
    lines += ["", *table(headings, rows)]
    lines += ["", *(f"![{name}]({name})" for name in plots)]
    return "\n".join(lines).rstrip() + "\n"


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
