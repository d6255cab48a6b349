"""Output of ``rrg-rewards score``: columns of the table, summary for JSON, printed tables."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid
from torch import Tensor

from rrg_rewards.functional.crg import label_table
from rrg_rewards.functional.crg_macro import crg_label_weights, macro_youden_j, prevalences
from rrg_rewards.functional.label_counts import LabelCounts, label_statistics, macro_statistics
from rrg_rewards.metrics.crg import LabelScores
from rrg_rewards.metrics.scores import Scores

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["CONFIDENCE", "label_summary", "number", "per_report_columns", "summary_tables"]

CONFIDENCE = 0.95


def _cells(values: Tensor) -> list[Any]:
    """Return the values as a list, with ``None`` for NaN."""
    return [number(value) for value in values.tolist()]


def per_report_columns(name: str, scores: Scores) -> dict[str, list[Any]]:
    """Return columns of ``N`` cells: score, parts and explanations. Cells of unscorable pairs are ``None``.

    Args:
        name: Name of the metric, the prefix of the column names.
        scores: Scores of the ``N`` pairs.

    Example:
        >>> import torch
        >>> nan = float("nan")
        >>> per_report_columns("f1", Scores(torch.tensor([0.5, nan]), {"tp": torch.tensor([1.0, nan])}))
        {'f1': [0.5, None], 'f1_tp': [1.0, None]}
    """
    columns = {name: _cells(scores.value)}
    for detail, values in scores.details.items():
        columns[f"{name}_{detail}"] = _cells(values)
    scored = scores.scored.tolist()
    for explanation, texts in scores.explanations.items():
        # An unscorable pair has no explanation except the reason of a failure.
        columns[f"{name}_{explanation}"] = [
            text if known or text else None for text, known in zip(texts, scored, strict=True)
        ]
    return columns


def number(value: float) -> float | None:
    """Return a number for a summary, ``None`` for NaN."""
    return None if math.isnan(value) else value


def label_summary(scores: LabelScores, counts: LabelCounts) -> dict[str, Any]:
    """Return counts and statistics, pooled and by label, the CRG of each level, and the best constant text.

    With ``average="macro"``, Youden's J is averaged as the score, and each label has its weight.

    Args:
        scores: Scores of any pairs, with the names of the ``L`` labels.
        counts: Counts of each label over all pairs, ``(L,)``.
    """
    pooled = LabelCounts(*(count.sum() for count in counts))
    statistics, table = {**label_statistics(pooled), **macro_statistics(counts)}, label_table(counts)
    if scores.average == "macro":
        statistics["youden_j"] = macro_youden_j(counts, scores.min_prevalence)
        table["weight"] = crg_label_weights(prevalences(counts), scores.min_prevalence)
    cells = {name: _cells(values) for name, values in table.items()}
    best, constant = scores.best_constant_for(counts)
    levels = dict(zip(scores.levels, _cells(scores.level_scores(counts)), strict=True)) if scores.levels else {}
    return {
        **({"levels": levels} if levels else {}),
        "best_constant": {"value": number(best), "labels": list(constant)},
        "counts": {name: int(count) for name, count in pooled._asdict().items()},
        "statistics": {name: number(float(value)) for name, value in statistics.items()},
        "labels": [
            {"label": label, **{name: values[row] for name, values in cells.items()}}
            for row, label in enumerate(scores.labels)
        ],
    }


def summary_tables(summary: Mapping[str, Any]) -> "list[RenderableType]":
    """Return a summary as rich tables: one with all metrics, and one with the labels or parts of each metric."""
    overview = Grid(title=f"{summary['rows']} report pairs", title_justify="left")
    overview.add_column("metric")
    for heading in ("value", "95 % interval", "scored", "unscorable"):
        overview.add_column(heading, justify="right")
    tables: list[RenderableType] = [overview]
    for name, entry in summary["metrics"].items():
        low, high = map(_short, entry["interval"])
        interval = "-" if entry["interval"][0] is None else f"{low} to {high}"
        overview.add_row(name, _short(entry["value"]), interval, str(entry["scored"]), str(entry["unscorable"]))
        if entry["scored"] and entry["value"] is None:
            overview.caption = "-: undefined on these reports; CRG needs a positive and a negative reference label"
        if "labels" in entry:
            tables.append(_label_grid(name, entry))
        elif any(mean is not None for mean in entry["means"].values()):
            tables.append(_means_grid(name, entry["means"]))
        tables.append(entry["signature"])
    return tables


def _label_grid(name: str, entry: Mapping[str, Any]) -> Grid:
    grid = Grid(title=f"{name} by label", title_justify="left", show_footer=True)
    grid.add_column("label", footer="all, pooled")
    pooled = {**entry["counts"], **entry["statistics"], "crg": entry["value"]}
    statistics = [column for column in entry["labels"][0] if column != "label"]
    for column in statistics:
        grid.add_column(column.replace("_", " "), footer=_short(pooled.get(column)), justify="right")
    for row in entry["labels"]:
        grid.add_row(row["label"], *(_short(row[column]) for column in statistics))
    best = entry["best_constant"]
    named = ", ".join(best["labels"]) or "any text"
    means = (f"{name} {_short(entry['statistics'][f'macro_{name}'])}" for name in ("precision", "recall", "f1"))
    captions = [f"mean over labels: {', '.join(means)}"]
    if "levels" in entry:
        levels = (f"{level} {_short(value)}" for level, value in entry["levels"].items())
        captions.append(f"{name} by level: {', '.join(levels)}")
    captions.append(f"best text that is the same for every study: {_short(best['value'])} ({named})")
    grid.caption = "\n".join(captions)
    return grid


def _means_grid(name: str, means: Mapping[str, float | None]) -> Grid:
    """Return a table of the mean parts of a score, without zeros."""
    grid = Grid(title=f"{name}, mean of a report", title_justify="left")
    grid.add_column("part")
    grid.add_column("mean", justify="right")
    for part, mean in means.items():
        if mean:
            grid.add_row(part.replace("_", " "), _short(mean))
    return grid


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4f}"
