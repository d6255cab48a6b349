"""A batch of completions that the watch observes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rrg_rewards.labelers.base import Labeler
from rrg_rewards.utilities.checks import check_same_length
from rrg_rewards.watch.counting import count_found, count_pairs, count_texts, count_values
from rrg_rewards.watch.counts import Counts

__all__ = ["LABEL_METRIC", "Batch"]

LABEL_METRIC = "label_f1"
"""Name of a held-out metric of each watch with a labeler: F1 of the labels of a report and its reference."""

Values = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Batch:
    """Completions with references, rewards and metrics; see :meth:`RewardWatch.observe` for the fields.

    Raises:
        ValueError: If lengths differ.
    """

    completions: Sequence[str | None]
    references: Sequence[str | None] | None = None
    rewards: Values = field(default_factory=dict)
    metrics: Values = field(default_factory=dict)
    judge_failures: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.references is not None:
            check_same_length("completions", self.completions, "references", self.references)
        for kind, columns in (("rewards", self.rewards), ("metrics", self.metrics)):
            for name, values in columns.items():
                check_same_length("completions", self.completions, f"{kind}[{name!r}]", values)

    def __getitem__(self, rows: slice) -> "Batch":
        """Return a slice of the batch without judge failures, which are not known for each row."""
        return Batch(
            self.completions[rows],
            None if self.references is None else self.references[rows],
            {name: values[rows] for name, values in self.rewards.items()},
            {name: values[rows] for name, values in self.metrics.items()},
        )

    def count(self, counts: Counts, labeler: Labeler | None, n_gram: int, findings: bool = True) -> None:
        """Add the batch to counts.

        Args:
            counts: The counts to change.
            labeler: Labeler of completions and references, or ``None``.
            n_gram: Number of words of the counted n-grams.
            findings: Whether to count findings, hedges and sizes.
        """
        metrics = self.metrics
        for side, column in (("completions", self.completions), ("references", self.references)):
            texts = [text for text in column or () if text is not None]
            count_texts(counts, side, texts, n_gram)
            if findings:
                count_found(counts, side, texts)
        if self.references is not None and labeler is not None:
            agreement = count_pairs(counts, labeler, self.completions, self.references)
            metrics = {LABEL_METRIC: agreement, **metrics}
        count_values(counts, self.rewards, metrics)
        for name, failed in self.judge_failures.items():
            counts.add(f"completions/failed/{name}", failed, len(self.completions))
