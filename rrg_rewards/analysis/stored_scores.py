"""Scores of report pairs as columns of Parquet, from which corpus values and intervals are computed again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rrg_rewards.analysis.scoring import per_report_columns
from rrg_rewards.functional.label_counts import LabelCounts, label_counts
from rrg_rewards.metrics.crg import LabelScores
from rrg_rewards.metrics.scores import Scores
from rrg_rewards.utilities.imports import require

TOTALS = "totals"
"""Ending of the column of a metric with what its corpus value needs."""


def stored_columns(name: str, scores: Scores) -> dict[str, Any]:
    """Return the columns of :func:`~rrg_rewards.analysis.scoring.per_report_columns`, and one of totals, for Arrow.

    Args:
        name: Name of the metric, the prefix of the column names.
        scores: Scores of ``N`` pairs.

    Returns:
        Arrow arrays of ``N`` cells by column name. A cell of ``NAME.totals`` has the sufficient ``statistics`` of the
        pair, the ``labels`` of both reports (prediction + 2 x reference), the kind of the judge's failure (``failed``),
        and the judge of the pair (``judge``).

    Example:
        >>> columns = stored_columns("f1", Scores(torch.tensor([0.5, float("nan")])))
        >>> columns["f1"].to_pylist(), columns["f1.totals"].to_pylist()[0]["statistics"]
        ([0.5, None], [0.5])
    """
    arrow = require("pyarrow", extra="parquet")
    cells = per_report_columns(name, scores)
    numbers = 1 + len(scores.details)
    columns = {
        column: arrow.array(values, arrow.float64() if place < numbers else arrow.string())
        for place, (column, values) in enumerate(cells.items())
    }
    failed: list[str | None] = [None] * len(scores)
    for kind, rows in scores.failures.items():
        for row in rows.nonzero().flatten().tolist():
            failed[row] = str(kind)
    totals = {
        "statistics": _lists(_statistics(scores), arrow.float64()),
        "labels": _lists(_codes(scores), arrow.int8()),
        "failed": arrow.array(failed, arrow.string()),
        "judge": arrow.array([judge or None for judge in scores.judges] or [None] * len(scores), arrow.string()),
    }
    columns[f"{name}.{TOTALS}"] = arrow.StructArray.from_arrays([*totals.values()], names=[*totals])
    return columns


def _statistics(scores: Scores) -> Any:
    """Return the statistics of all pairs, 0 for those without a score: ``(N, K)`` float64, which holds them exactly."""
    parts = [
        one.detach().cpu().double().reshape(len(one), one.shape[1:].numel()) for one in scores.sufficient_statistics
    ]
    found = torch.zeros(len(scores), sum(part.shape[1] for part in parts), dtype=torch.float64)
    found[scores.scored.cpu()] = torch.cat(parts, 1)
    return found.numpy()


def _codes(scores: Scores) -> Any:
    if not isinstance(scores, LabelScores):
        return np.zeros((len(scores), 0), dtype=np.int8)
    return (scores.preds.to(torch.int8) + 2 * scores.target.to(torch.int8)).cpu().numpy()


def _lists(rows: Any, kind: Any) -> Any:
    """Return the rows of a matrix as an Arrow array of lists."""
    arrow = require("pyarrow", extra="parquet")
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return arrow.ListArray.from_arrays(arrow.array(offsets), arrow.array(rows.ravel(), kind))


@dataclass(frozen=True, repr=False, kw_only=True)
class StoredScores(Scores):
    """Scores of ``N`` pairs as they were stored, with what totals need.

    Args:
        value: Scores ``(N,)``; NaN if a pair is unscorable.
        details: Sub-scores by name.
        statistics: The sufficient statistics of the scored pairs.
        preds: Labels of the predictions, bool ``(N, L)``.
        target: Labels of the references.
        failed: Pairs on which a judge failed, by kind.
        judge_names: Judge of each pair; empty without a cascade.
        reasons: Kind and reason of the failure on each pair, ``None`` without one.
    """

    statistics: tuple[Tensor, ...]
    preds: Tensor
    target: Tensor
    failed: Mapping[str, Tensor]
    judge_names: Sequence[str]
    reasons: Sequence[str | None]

    @property
    def sufficient_statistics(self) -> tuple[Tensor, ...]:
        """The stored statistics of the scored pairs."""
        return self.statistics

    @property
    def failures(self) -> dict[str, Tensor]:
        """Pairs on which a judge failed, by kind."""
        return dict(self.failed)

    @property
    def judges(self) -> list[str]:
        """Judge of each pair; empty without a cascade."""
        return list(self.judge_names)

    @property
    def explanations(self) -> dict[str, list[Any]]:
        """The reasons of failures."""
        return {"failure": list(self.reasons)}

    def counts(self, dim: int | None = None) -> LabelCounts:
        """Return the confusion counts of the scored pairs."""
        return label_counts(self.preds[self.scored], self.target[self.scored], dim=dim)


def read_stored(name: str, template: Scores, columns: Mapping[str, Any]) -> StoredScores:
    """Return scores from the columns of :func:`stored_columns`.

    Args:
        name: Name of the metric.
        template: Scores of no pairs by the same metric: the types and shapes of its statistics, and kinds of failures.
        columns: Arrow arrays by name.

    Example:
        >>> scores = Scores(torch.tensor([0.5, float("nan")]))
        >>> stored = read_stored("f1", scores.take(torch.tensor([], dtype=torch.long)), stored_columns("f1", scores))
        >>> stored.sufficient_statistics
        (tensor([0.5000]),)
    """
    value = _numbers(columns[name])
    scored = ~value.isnan()
    totals = {field: columns[f"{name}.{TOTALS}"].field(field) for field in ("statistics", "labels", "failed", "judge")}
    shapes = [(one.dtype, one.shape[1:]) for one in template.sufficient_statistics]
    widths = [shape.numel() for _, shape in shapes]
    parts = torch.split(_matrix(totals["statistics"], sum(widths))[scored], widths, dim=1)
    codes = _matrix(totals["labels"], len(template.labels) if isinstance(template, LabelScores) else 0)
    kinds = totals["failed"].to_pylist()
    judges = totals["judge"].to_pylist()
    failure = f"{name}_failure"
    return StoredScores(
        value=value,
        details={detail: _numbers(columns[f"{name}_{detail}"]) for detail in template.details},
        statistics=tuple(
            part.to(dtype).reshape(-1, *shape) for part, (dtype, shape) in zip(parts, shapes, strict=True)
        ),
        preds=codes % 2 == 1,
        target=codes >= 2,
        failed={kind: torch.tensor([found == kind for found in kinds], dtype=torch.bool) for kind in template.failures},
        judge_names=[judge or "" for judge in judges] if any(judges) else [],
        reasons=columns[failure].to_pylist() if failure in columns else [],
    )


def _numbers(column: Any) -> Tensor:
    """Return a column of numbers, NaN for missing cells."""
    return torch.from_numpy(column.to_numpy(zero_copy_only=False).astype(np.float64))


def _matrix(lists: Any, width: int) -> Tensor:
    values = lists.flatten().to_numpy(zero_copy_only=False)
    return torch.from_numpy(np.array(values)).reshape(len(lists), width)
