"""A simple labeler, in which a label is positive if its word is in the report, and reports for it."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.utilities.backend import Backend

REPORTS = ["Effusion.", "A nodule and a hernia.", "Normal.", "", "Nodule, effusion.", "Hernia. Effusion. Nodule."]


class WordLabeler(Backend):
    def __init__(self, words: str = "effusion nodule hernia") -> None:
        self.words = tuple(words.split())
        # As large as a labeler's model; it must never be pickled.
        self.weights = torch.zeros(1_000_000)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.words

    @property
    def signature(self) -> str:
        return f"words:{','.join(self.words)}"

    def arguments(self) -> dict[str, Any]:
        return {"words": " ".join(self.words)}

    def __call__(self, reports: Sequence[str]) -> Tensor:
        rows = [[word in report.lower() for word in self.words] for report in reports]
        return torch.tensor(rows, dtype=torch.bool).view(len(reports), len(self.words))


def reports(rows: int, seed: int = 0) -> tuple[list[str], list[str]]:
    choose = random.Random(seed)
    return [choose.choice(REPORTS) for _ in range(rows)], [choose.choice(REPORTS[:3]) for _ in range(rows)]


def random_cuts(rows: int, seed: int) -> list[slice]:
    """Return slices of random lengths, some of them empty, that cover all rows."""
    choose = random.Random(seed)
    ends = sorted([0, rows, *(choose.randint(0, rows) for _ in range(6))])
    return [slice(start, end) for start, end in pairwise(ends)]
