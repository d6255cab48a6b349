"""A labeler so simple that its labels can be read off a report at a glance."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.utilities.backend import Backend


class KeywordLabeler(Backend):
    """A label is positive where its name stands in the report."""

    def __init__(self, names: str = "edema effusion nodule") -> None:
        self.names = names

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.names.split())

    @property
    def signature(self) -> str:
        return f"keywords|names:{self.names}"

    def arguments(self) -> dict[str, Any]:
        return {"names": self.names}

    def __call__(self, reports: Sequence[str]) -> Tensor:
        rows = [[label in report.lower() for label in self.labels] for report in reports]
        return torch.tensor(rows, dtype=torch.bool).view(len(reports), len(self.labels))
