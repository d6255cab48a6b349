"""Functions of predictions and references, as users write them."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def word_overlap(predictions: Sequence[str], references: Sequence[str]) -> dict[str, list[float | None]]:
    """F1 and recall of the words of each pair; ``None`` if a report has no word."""
    found: dict[str, list[float | None]] = {"f1": [], "recall": []}
    for prediction, reference in zip(predictions, references, strict=True):
        ours, theirs = set(prediction.lower().split()), set(reference.lower().split())
        common = len(ours & theirs)
        found["f1"].append(2 * common / (len(ours) + len(theirs)) if ours else None)
        found["recall"].append(common / len(theirs) if ours else None)
    return found


def length_gap(predictions: Sequence[str], references: Sequence[str], scale: float = 1.0) -> list[float]:
    """Absolute difference of the numbers of words; lower is better."""
    return [
        scale * abs(len(prediction.split()) - len(reference.split()))
        for prediction, reference in zip(predictions, references, strict=True)
    ]


def older_than(
    predictions: Sequence[str], references: Sequence[str], age: Sequence[Any], limit: int = 60
) -> list[bool]:
    """Whether each patient is older than a limit, whatever the reports say."""
    return [int(value) > limit for value in age]


def die_once(predictions: Sequence[str], references: Sequence[str], folder: str) -> list[float]:
    """Length of each prediction; the first process that scores ``end`` is killed."""
    mark = Path(folder) / "killed"
    if any("end" in prediction for prediction in predictions) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [float(len(prediction)) for prediction in predictions]
