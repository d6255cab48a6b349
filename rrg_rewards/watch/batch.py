"""Counting of the labels, rewards and metrics of a batch of completions that the watch observes."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from rrg_rewards.labelers.base import Labeler, label_reports
from rrg_rewards.schemas.labels import is_no_abnormality
from rrg_rewards.watch.counts import Counts

LABEL_METRIC = "label_f1"
"""Name of a held-out metric of each watch with a labeler: F1 of the labels of a report and its reference."""

Values = Mapping[str, Sequence[float | None]]


def count_pairs(
    counts: Counts, labeler: Labeler, completions: Sequence[str | None], references: Sequence[str | None]
) -> list[float | None]:
    """Count positive labels of completions and references, and normal completions with an abnormal reference.

    Args:
        counts: The counts to change.
        labeler: Labeler of completions and references.
        completions: ``N`` completions.
        references: ``N`` references.

    Returns:
        F1 of the labels of each completion and its reference; 1 if both have no positive label; ``None`` if a text is
        missing, or the labeler failed on it.
    """
    chosen = [column for column, label in enumerate(labeler.labels) if not is_no_abnormality(label)]
    names = [labeler.labels[column] for column in chosen]
    # Label each distinct text once. All completions of a group have the same reference, and completions may repeat.
    texts = list(dict.fromkeys(text for text in (*completions, *references) if text is not None))
    rows = _label_rows(labeler, texts, chosen)
    scores: list[float | None] = []
    for completion, reference in zip(completions, references, strict=True):
        own, wanted = rows[completion], rows[reference]
        if own is not None:
            _count_positives(counts, "completions", names, own)
        if wanted is not None:
            _count_positives(counts, "references", names, wanted)
        if own is None or wanted is None:
            scores.append(None)
            continue
        if any(wanted):
            counts.add("completions/normal_reports", not any(own), 1)
        positives = sum(own) + sum(wanted)
        hits = sum(one and other for one, other in zip(own, wanted, strict=True))
        scores.append(2 * hits / positives if positives else 1.0)
    return scores


def _label_rows(labeler: Labeler, texts: Sequence[str], chosen: Sequence[int]) -> dict[str | None, list[bool] | None]:
    """Return the chosen labels of each text; ``None`` for a missing text, or if the labeler failed."""
    rows: dict[str | None, list[bool] | None] = {None: None}
    if texts:
        labels, failures = label_reports(labeler, texts)
        rows.update(zip(texts, labels[:, list(chosen)].tolist(), strict=True))
        rows.update({text: None for text, failure in zip(texts, failures or (), strict=False) if failure is not None})
    return rows


def _count_positives(counts: Counts, side: str, names: Sequence[str], row: Sequence[bool]) -> None:
    counts.add(f"{side}/positives", sum(row), 1)
    for name, positive in zip(names, row, strict=True):
        counts.add(f"{side}/positives/{name}", positive, 1)


def count_values(
    counts: Counts, rewards: Mapping[str, Sequence[float | None]], metrics: Mapping[str, Sequence[float | None]]
) -> None:
    """Count rewards, held-out metrics and missing values.

    Args:
        counts: The counts to change.
        rewards: ``N`` rewards by name; ``None`` or NaN for unscorable completions.
        metrics: ``N`` values of held-out metrics by name; higher is better.
    """
    for kind, columns in (("rewards", rewards), ("metrics", metrics)):
        for name, values in columns.items():
            known = [float(value) for value in values if _is_known(value)]
            counts.add(f"{kind}/{name}", math.fsum(known), len(known))
            counts.add(f"{kind}_squared/{name}", math.fsum(value * value for value in known), len(known))
            if kind == "rewards":
                counts.add(f"completions/unscorable/{name}", len(values) - len(known), len(values))


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and not math.isnan(value)
