"""What ``rrg-rewards score`` says: columns for the output, a summary for JSON, tables for people."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid
from torch import Tensor

from rrg_rewards.functional.bootstrap import bootstrap_interval
from rrg_rewards.functional.crg import label_statistics, label_table
from rrg_rewards.metrics.base import ReportMetric, Scores
from rrg_rewards.metrics.label_scores import LabelScores

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["CONFIDENCE", "failed_counts", "metric_summary", "per_report_columns", "summary_tables"]

CONFIDENCE = 0.95


def _cells(values: Tensor) -> list[Any]:
    """Numbers with ``None`` for NaN."""
    return [None if math.isnan(value) else value for value in values.tolist()]


def per_report_columns(name: str, scores: Scores) -> dict[str, list[Any]]:
    """Columns of ``N`` cells: the score, its parts and its explanations; ``None`` where a pair is unscorable.

    Args:
        name: The metric's name, which the columns' names start with.
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
        # Why there is no score is told where there is none; of other things nothing is known there.
        columns[f"{name}_{explanation}"] = [
            text if known or text else None for text, known in zip(texts, scored, strict=True)
        ]
    return columns


def metric_summary(metric: ReportMetric, scores: Scores, num_resamples: int, seed: int) -> dict[str, Any]:
    """Corpus value of a metric with its interval, counts and parts; ``None`` where a number is undefined.

    Args:
        metric: The metric, for its signature.
        scores: Scores of all pairs.
        num_resamples: Resamples of the bootstrap; 0 for no interval.
        seed: Seed of the bootstrap.
    """
    scored = int(scores.scored.sum())
    value = low = high = math.nan
    if scored:
        value = float(scores.aggregate(*scores.sufficient_statistics))
        if num_resamples:
            low, high = bootstrap_interval(
                scores.aggregate, scores.sufficient_statistics, num_resamples, CONFIDENCE, seed
            )
    summary: dict[str, Any] = {
        "value": _number(value),
        "interval": [_number(low), _number(high)],
        "higher_is_better": bool(metric.higher_is_better),
        "scored": scored,
        "unscorable": len(scores) - scored,
        "means": {name: _number(float(values.double().nanmean())) for name, values in scores.details.items()},
        "signature": metric.signature,
    }
    if scores.failures:
        summary["failed"] = failed_counts(scores)
    return {**summary, **_label_summary(scores)} if isinstance(scores, LabelScores) else summary


def failed_counts(scores: Scores) -> dict[str, int]:
    """How many of the unscorable pairs a judge failed on, by kind of failure; empty without a judge."""
    return {kind: int(rows.sum()) for kind, rows in scores.failures.items()}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _label_summary(scores: LabelScores) -> dict[str, Any]:
    """Counts and statistics, pooled and of each label."""
    pooled, labels = scores.counts(), scores.counts(dim=0)
    cells = {name: _cells(values) for name, values in label_table(labels).items()}
    return {
        "counts": {name: int(count) for name, count in pooled._asdict().items()},
        "statistics": {name: _number(float(value)) for name, value in label_statistics(pooled).items()},
        "labels": [
            {"label": label, **{name: values[row] for name, values in cells.items()}}
            for row, label in enumerate(scores.labels)
        ],
    }


def summary_tables(summary: Mapping[str, Any]) -> "list[RenderableType]":
    """Tables of a summary for people: one of all metrics, and one of each metric's labels or parts."""
    overview = Grid(title=f"{summary['rows']} report pairs", title_justify="left")
    overview.add_column("metric")
    for heading in ("value", "95 % interval", "scored", "unscorable"):
        overview.add_column(heading, justify="right")
    tables: list[RenderableType] = [overview]
    for name, entry in summary["metrics"].items():
        low, high = map(_short, entry["interval"])
        overview.add_row(
            name, _short(entry["value"]), f"{low} to {high}", str(entry["scored"]), str(entry["unscorable"])
        )
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
        grid.add_column(column.replace("_", " "), footer=_short(pooled[column]), justify="right")
    for row in entry["labels"]:
        grid.add_row(row["label"], *(_short(row[column]) for column in statistics))
    return grid


def _means_grid(name: str, means: Mapping[str, float | None]) -> Grid:
    """Means of what a score is made of, those that are 0 left out."""
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
