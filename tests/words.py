"""A labeler small enough to read: a label is positive where its word is in the report."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.utilities.backend import Backend


class WordLabeler(Backend):
    def __init__(self, words: Sequence[str] = ("effusion", "nodule", "hernia")) -> None:
        self.words = tuple(words)
        # What a model behind a labeler would weigh: it must never reach a pickle.
        self.weights = torch.zeros(1_000_000)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.words

    @property
    def signature(self) -> str:
        return f"words:{','.join(self.words)}"

    def arguments(self) -> dict[str, Any]:
        return {"words": self.words}

    def __call__(self, reports: Sequence[str]) -> Tensor:
        rows = [[word in report.lower() for word in self.words] for report in reports]
        return torch.tensor(rows, dtype=torch.bool).view(len(reports), len(self.words))
