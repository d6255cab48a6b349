"""Heads of CREPE: the numbers of errors that a model predicts, and their labels."""

import math
from collections.abc import Mapping
from typing import Literal

from rrg_rewards.data.records.error_records import ErrorRecord
from rrg_rewards.schemas.errors import ERROR_CATEGORIES

__all__ = ["HEADS", "Heads", "head_labels"]

Heads = Literal["categories", "significance", "total"]
"""One head for each of the six categories, two for significant and insignificant errors, or one for all errors."""

HEADS: Mapping[Heads, tuple[str, ...]] = {
    "categories": ERROR_CATEGORIES,
    "significance": ("significant", "insignificant"),
    "total": ("errors",),
}
"""Names of the heads (CREPE, Section 5.1), which are the error categories of a trained model."""


def head_labels(record: ErrorRecord, heads: Heads) -> list[float]:
    """Return the true numbers of errors of a record for each head, NaN if they were not annotated.

    ``categories`` uses the six counts. ``total`` is the sum of the six counts and of the errors without a category, and
    requires all six counts, or none of them and a number of errors without a category. ``significance`` requires
    all six counts and their significance; errors without a category do not count.

    Example:
        >>> record = ErrorRecord("Clear.", "Edema.", (2, 0, 0, 0, 1, 0), significant=(1, 0, 0, 0, 0, 0))
        >>> head_labels(record, "significance"), head_labels(record, "total")
        ([1.0, 2.0], [3.0])
    """
    if heads == "categories":
        return [math.nan if count is None else count for count in record.counts]
    counts = [count for count in record.counts if count is not None]
    complete = len(counts) == len(record.counts)
    if heads == "total":
        return [record.total if complete or not counts else math.nan]
    if not complete or record.significant is None:
        return [math.nan, math.nan]
    significant = math.fsum(count for count in record.significant if count is not None)
    return [significant, math.fsum(counts) - significant]
