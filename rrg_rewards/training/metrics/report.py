"""Training reports: ``report.json``, a Markdown page and a terminal summary. They contain no report text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from rrg_rewards.data.tables.writers import open_output, write_json
from rrg_rewards.metrics.reward_agreement import GradedRewards
from rrg_rewards.models.model_card import number
from rrg_rewards.training.metrics.agreement import (
    agreement_by_source,
    count_agreement,
    preference_agreement,
    tau_interval,
    with_preference_intervals,
)
from rrg_rewards.training.metrics.crepe import CrepeModule
from rrg_rewards.training.metrics.data import CrepeDataModule, ER2ScoreDataModule
from rrg_rewards.training.metrics.er2score import ER2ScoreModule
from rrg_rewards.training.metrics.plots import (
    draw_accuracy,
    draw_counts,
    draw_curve,
    draw_mae,
    draw_totals,
    write_plots,
)

__all__ = ["Summary", "crepe_report", "crepe_summary", "er2score_report", "er2score_summary"]

History = Sequence[Mapping[str, float | None]]
Report = Mapping[str, Any]

_CATEGORY_COLUMNS = ("mean_true", "mae", "mae_of_mean")
_CRITERION_COLUMNS = ("accuracy", "mean_true", "mae")
_CRITERION_HEADINGS = ("criterion", "pairs that differ", "accuracy", "mean sub-score", "MAE")
_ANNOTATION_COLUMNS = ("kendall", "spearman", "binary")
_RANKINGS = ("accuracy", "kendall", "spearman")


@dataclass(frozen=True)
class Summary:
    """Terminal summary of a training report: a table and further lines.

    Args:
        title: Title of the table.
        headings: Column headings.
        rows: Rows of the table.
        lines: Lines after the table.
    """

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    lines: Sequence[str]


def crepe_report(
    folder: Path, module: CrepeModule, data: CrepeDataModule, history: History, about: Report
) -> dict[str, Any]:
    """Write ``report.json``, ``report.md`` and, if matplotlib is installed, ``counts.png``, ``mae.png``, ``curve.png``.

    Args:
        folder: Output folder.
        module: The trained and tested module.
        data: Data of the module.
        history: Logged values of each validation.
        about: Further content of the report, such as the configuration and the best validation.

    Returns:
        The content of ``report.json``.
    """
    counts, mean_counts = module.test_counts, data.mean_counts()
    categories = module.model.config.error_categories
    report = {
        **about,
        **agreement_by_source(counts, lambda preds, target: count_agreement(preds, target, mean_counts, categories)),
        "mean_counts_of_training": dict(zip(categories, mean_counts.tolist(), strict=True)),
        **_end(history),
    }
    report["test"]["tau_interval"] = tau_interval(counts)
    plots = {
        "counts.png": lambda axes: draw_counts(axes, counts),
        "mae.png": lambda axes: draw_mae(axes, report["test"]["categories"]),
        "curve.png": lambda axes: draw_curve(axes, history, ("train/loss", "val/loss", "val/tau")),
    }
    return _write(folder, report, plots, _crepe_page)


def er2score_report(
    folder: Path, module: ER2ScoreModule, data: ER2ScoreDataModule, history: History, about: Report
) -> dict[str, Any]:
    """Write ``report.json``, ``report.md`` and, if matplotlib is installed, plots of accuracy, totals and curves.

    The arguments and the return value are those of :func:`crepe_report`.
    """
    rewards, system = module.test_rewards, data.system
    curves = ("train/loss", "val/loss", "val/accuracy", "val/kendall", "val/spearman")
    report = {
        **about,
        "scoring_system": system.to_dict(),
        **agreement_by_source(rewards, lambda *parts: preference_agreement(GradedRewards(*parts), system)),
        **_end(history),
    }
    pooled = GradedRewards(*(torch.cat(parts) for parts in zip(*rewards.values(), strict=True)))
    report["test"] = with_preference_intervals(report["test"], pooled, system)
    plots = {
        "accuracy.png": lambda axes: draw_accuracy(axes, report["test"]),
        "totals.png": lambda axes: draw_totals(axes, rewards, system.base),
        "curve.png": lambda axes: draw_curve(axes, history, curves),
    }
    return _write(folder, report, plots, _er2score_page)


def crepe_summary(report: Report) -> Summary:
    """Return the terminal summary of a CREPE report."""
    test = report["test"]
    lines = [
        f"{name}: {own['pairs']} pairs, Kendall's tau {number(own['tau'])}"
        for name, own in report["test_by_source"].items()
    ]
    lines.append(f"all: Kendall's tau {number(test['tau'])}")
    rows = [(name, *_numbers(row, _CATEGORY_COLUMNS)) for name, row in test["categories"].items()]
    return Summary(f"{test['pairs']} held-out pairs", ("category", "mean count", "MAE", "MAE of the mean"), rows, lines)


def er2score_summary(report: Report) -> Summary:
    """Return the terminal summary of an ER²Score report."""
    test = report["test"]
    lines = [
        f"{name}: {own['pairs']} pairs, accuracy {number(own['accuracy'])}, Kendall's tau {number(own['kendall'])}"
        for name, own in report["test_by_source"].items()
    ]
    lines.append(
        f"all: accuracy {number(test['accuracy'])}, Kendall's tau {number(test['kendall'])}, Spearman's rho "
        f"{number(test['spearman'])}"
    )
    title = f"{test['pairs']} held-out pairs of {test['reports']} reports"
    rows = [
        (*cells, *_numbers(row, _ANNOTATION_COLUMNS))
        for cells, row in zip(_criterion_rows(test), test["criteria"].values(), strict=True)
    ]
    return Summary(title, (*_CRITERION_HEADINGS, "Kendall", "Spearman", "binary accuracy"), rows, lines)


def _crepe_page(report: Report) -> list[str]:
    test = report["test"]
    sources = [
        (name, str(own["pairs"]), *_numbers(own, ("tau", "mae"))) for name, own in report["test_by_source"].items()
    ]
    categories = []
    for name, row in test["categories"].items():
        below = row["mae"] is not None and row["mae"] < row["mae_of_mean"]
        categories.append((name, *_numbers(row, _CATEGORY_COLUMNS), "yes" if below else "no"))
    return [
        f"Kendall's tau of predicted and true total counts on {test['pairs_with_total']} held-out pairs: "
        f"**{number(test['tau'])}**; mean absolute error of the total: {number(test['mae'])}.",
        "",
        *_table(("Source", "Pairs", "Tau", "MAE of the total"), sources),
        "",
        *_table(("Category", "Mean true count", "MAE", "MAE of always predicting the mean", "Below it"), categories),
    ]


def _er2score_page(report: Report) -> list[str]:
    test = report["test"]
    sources = [
        (name, str(own["reports"]), str(own["pairs"]), *_numbers(own, _RANKINGS))
        for name, own in report["test_by_source"].items()
    ]
    headings = [heading if heading == "MAE" else heading.capitalize() for heading in _CRITERION_HEADINGS]
    return [
        f"Of {test['pairs']} held-out pairs of a better and a worse report on the same reference, the total orders "
        f"**{number(test['accuracy'])}** correctly. Over {test['reports']} reports, Kendall's tau of predicted and "
        f"true totals under {report['scoring_system']['name']} is {number(test['kendall'])}, Spearman's rho "
        f"{number(test['spearman'])}.",
        "",
        *_table(("Source", "Reports", "Pairs", "Accuracy", "Kendall", "Spearman"), sources),
        "",
        "By criterion: the share of the pairs that differ in it which its own reward orders correctly, and the mean "
        "absolute error of its sub-score.",
        "",
        *_table(headings, _criterion_rows(test)),
        "",
        "Agreement of sub-scores with the annotations of the same criterion, across references, with bootstrap 95 % "
        "intervals. Binary accuracy is the share of reports of which the model says correctly whether they have an "
        "error of this criterion; a constant answer reaches the share of the majority.",
        "",
        *_table(("Criterion", "Reports", "Kendall", "Spearman", "Binary accuracy", "Majority"), _annotation_rows(test)),
    ]


def _annotation_rows(test: Report) -> list[tuple[str, ...]]:
    """Return the rows of the total and of the criteria with intervals."""
    return [
        (
            name,
            str(row["reports"]),
            *(number(row.get(column), row.get(f"{column}_interval")) for column in _ANNOTATION_COLUMNS),
            number(row.get("majority")),
        )
        for name, row in {"total": test, **test["criteria"]}.items()
    ]


def _criterion_rows(test: Report) -> list[tuple[str, ...]]:
    return [(name, str(row["pairs"]), *_numbers(row, _CRITERION_COLUMNS)) for name, row in test["criteria"].items()]


def _end(history: History) -> dict[str, Any]:
    names = ("rrg-rewards", "torch", "transformers", "lightning")
    return {"history": list(history), "versions": {name: version(name) for name in names}}


def _write(
    folder: Path,
    report: dict[str, Any],
    plots: Mapping[str, Callable[[Any], None]],
    page: Callable[[Report], list[str]],
) -> dict[str, Any]:
    write_json(report, folder / "report.json", overwrite=True)
    images = [f"![{name}]({name})" for name in write_plots(folder, plots)]
    lines = [f"# {report['task']}: training report", "", *page(report), "", *images]
    with open_output(folder / "report.md", overwrite=True) as file:
        file.write(("\n".join(lines).rstrip() + "\n").encode("utf-8"))
    return report


def _numbers(row: Report, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(number(row[name]) for name in names)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table with text in the first column and numbers in the other columns."""
    rule = "|".join(["---", *["---:"] * (len(headings) - 1)])
    return [f"| {' | '.join(headings)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
