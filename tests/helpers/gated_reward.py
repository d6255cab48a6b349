"""A reward for a server in another process, which a test holds up by files."""

import os
import time
from pathlib import Path

import torch

from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import Reward


class GatedReward(Reward):
    """The number of words. Scoring ``hold`` writes the file ``entered`` and waits for the file ``go``."""

    signature = "gated"
    columns = ()

    def __init__(self, folder):
        super().__init__("gated")
        self.folder = Path(folder)

    def score(self, completions, **columns):
        texts = self.reports(completions)
        if "hold" in texts:
            (self.folder / "entered").touch()
            while not (self.folder / "go").exists():
                time.sleep(0.01)
        return Scores(torch.tensor([float(len(text.split())) for text in texts]))


class BrokenReward(GatedReward):
    """Cannot be started."""

    def score(self, completions, **columns):
        raise OSError(f"no model in process {os.getpid()}")
