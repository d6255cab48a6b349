"""A reward with known numbers and faults, and a bare application that computes the same, for ``reward_server.py``."""

import time
from typing import Any

import torch
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from rrg_rewards.metrics.scores import Scores
from rrg_rewards.rewards.base import Reward
from rrg_rewards.rewards.completions import Completion


class FaultyReward(Reward):
    """The number of words. The completion ``exit`` raises ``SystemExit``, and ``hang`` never ends."""

    signature = "words"
    columns = ()

    def __init__(self) -> None:
        super().__init__("words")

    def score(self, completions: list[Completion], **columns: Any) -> Scores:  # noqa: ARG002
        """Score completions."""
        texts = [text or "" for text in self.reports(completions)]
        if "exit" in texts:
            raise SystemExit(1)
        while "hang" in texts:
            time.sleep(1)
        return Scores(torch.tensor([float(len(text.split())) for text in texts], dtype=torch.float64))


async def _words(request: Request) -> JSONResponse:
    body = await request.json()
    return JSONResponse({"rewards": [float(len(text.split())) for text in body["completions"]]})


bare = Starlette(routes=[Route("/rewards", _words, methods=["POST"])])
"""What a reward costs over HTTP at least: JSON in, a number, JSON out."""
