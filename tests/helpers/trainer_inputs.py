"""Settings and reports for the tests of trainers, and files loaded as trainers load them."""

import asyncio
import importlib.util
from collections.abc import Sequence
from typing import Any

import torch

from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import Reward

REWARD = {"name": "crg", "prior": 0.2}
MISSING = -1.5
SETTINGS = {"reward": REWARD, "missing": MISSING}
REPORTS = ["Cardiomegaly.", "Hiatal hernia.", "No abnormality.", "Pleural effusion."]
REFERENCES = ["Cardiomegaly. Hiatal hernia.", "Hiatal hernia.", None, "Normal."]


def load_file(path: str | None) -> Any:
    """Load a module from its path under another name, as trainers do."""
    assert path is not None
    spec = importlib.util.spec_from_file_location("custom_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FlakyReward(Reward):
    """A reward with a sub-score only where it scores all completions, as that of a server that may fail."""

    signature = "flaky"
    columns = ()

    def __init__(self, name: str = "flaky") -> None:
        super().__init__(name)

    def score(self, completions: Sequence[Any], **columns: Any) -> Scores:
        values = torch.tensor([float("nan") if text == "fail" else 1.0 for text in completions])
        return Scores(values, {"length": values} if len(completions) and not values.isnan().any() else {})


class SlowReward(Reward):
    """An asynchronous reward: the number of characters, after a turn of the event loop."""

    signature = "slow"
    columns = ()

    def __init__(self, name: str = "slow") -> None:
        super().__init__(name)

    def score(self, completions: Sequence[Any], **columns: Any) -> Scores:
        raise AssertionError("a judge would block the event loop")

    async def score_async(self, completions: Sequence[Any], **columns: Any) -> Scores:
        await asyncio.sleep(0)
        return Scores(torch.tensor([float(len(text)) for text in completions]))

    async def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:  # type: ignore[override]
        return self.rewards(await self.score_async(completions, **columns))
