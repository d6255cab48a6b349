"""Labelers as a user writes them, at the top level of a module, so that other processes can import them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.utilities.backend import Backend

__all__ = ["ForgetfulLabeler", "InheritingLabeler", "KeywordLabeler", "NoArguments", "StrictLabeler"]


class ForgetfulLabeler(Backend):
    """A labeler of keywords without the method ``arguments``."""

    def __init__(self, words: Sequence[str], threshold: int = 1) -> None:
        self.words = tuple(words)
        self.threshold = threshold

    @property
    def labels(self) -> tuple[str, ...]:
        return self.words

    @property
    def signature(self) -> str:
        return f"keywords|{','.join(self.words)}|{self.threshold}"

    def __call__(self, reports: Sequence[str]) -> Tensor:
        rows = [[report.lower().count(word) >= self.threshold for word in self.words] for report in reports]
        return torch.tensor(rows, dtype=torch.bool).view(len(rows), len(self.words))


class KeywordLabeler(ForgetfulLabeler):
    """The complete labeler."""

    def arguments(self) -> dict[str, Any]:
        return {"words": self.words, "threshold": self.threshold}


class NoArguments(Backend):
    """A backend whose constructor takes nothing."""


class StrictLabeler(RuleLabeler):
    """A labeler with an argument that the inherited method ``arguments`` does not return."""

    def __init__(self, schema: str = "ct_rate", strict: bool = False) -> None:
        super().__init__(schema)
        self.strict = strict


class InheritingLabeler(RuleLabeler):
    """A labeler whose constructor does not take what the inherited method ``arguments`` returns."""

    def __init__(self) -> None:
        super().__init__("ct_rate")
