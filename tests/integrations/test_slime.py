"""slime, as it calls its reward."""

import asyncio
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from trainer_inputs import REFERENCES, REPORTS

from rrg_rewards.integrations import slime

PROMPT = "<|im_start|>user\nReport the CT.<|im_end|>\n<|im_start|>assistant\n"


def slime_samples() -> list[Any]:
    return [
        SimpleNamespace(prompt=PROMPT, response=report, label=reference, metadata={}, reward=None)
        for report, reference in zip(REPORTS, REFERENCES, strict=True)
    ]


def slime_function(path: str) -> Any:
    """Load a function as slime does."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_slime_gets_the_rewards_of_the_reward_itself(configure: Callable[..., None], numbers: list[float]) -> None:
    configure()
    args = SimpleNamespace(reward_key=None)
    single = slime_function("rrg_rewards.integrations.slime.custom_rm")
    group = slime_function("rrg_rewards.integrations.slime.batched_custom_rm")

    async def run() -> Any:
        return await asyncio.gather(*(single(args, sample) for sample in slime_samples()))

    assert asyncio.run(run()) == pytest.approx(numbers)
    assert asyncio.run(group(args, slime_samples())) == pytest.approx(numbers)


def test_slime_selects_a_key(configure: Callable[..., None], numbers: list[float]) -> None:
    configure()
    results = asyncio.run(slime.batched_custom_rm(SimpleNamespace(reward_key="score"), slime_samples()))
    assert [result["score"] for result in results] == pytest.approx(numbers)
    assert [result["scorable"] for result in results] == [1, 1, 0, 1]


def test_slime_passes_columns_in_metadata(configure: Callable[..., None]) -> None:
    configure(reward={"name": "crimson", "age_column": "age"})
    label = "Edema. Aortic calcification."
    samples = [SimpleNamespace(response="Edema.", label=label, metadata={"age": age}) for age in (30, 85)]
    young, old = asyncio.run(slime.batched_custom_rm(SimpleNamespace(), samples))
    assert young < old
