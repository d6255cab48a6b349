"""verifiers, as it calls its reward."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from trainer_inputs import REFERENCES, REPORTS

from rrg_rewards.integrations import verifiers


def test_verifiers_gets_the_rewards_of_the_reward_itself(configure: Callable[..., None], numbers: list[float]) -> None:
    configure(reference_column="answer")
    for report, reference, reward in zip(REPORTS, REFERENCES, numbers, strict=True):
        metrics: dict[str, float] = {}
        trace = SimpleNamespace(last_reply=report, record_metrics=metrics.update)
        task = SimpleNamespace(answer=reference, prompt="Report.")
        assert asyncio.run(verifiers.reward(task=task, trace=trace)) == pytest.approx(reward)
        assert metrics["scorable"] == (reference is not None)
        assert "score" not in metrics
