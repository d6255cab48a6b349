"""Trainers that call functions of single samples or of batches, each as it calls its reward."""

import asyncio
import importlib
import json
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trainer_inputs import MISSING, REFERENCES, REPORTS, load_file

from rrg_rewards.integrations import areal, easyr1, openrlhf, slime, verifiers
from rrg_rewards.metrics.base import UnreadColumnWarning
from rrg_rewards.rewards import make_reward

Scored = list[tuple[float, Mapping[str, float]]]
"""The reward of each report, with the numbers that the trainer logs."""

PROMPT = "<|im_start|>user\nReport the CT.<|im_end|>\n<|im_start|>assistant\n"


def areal_rewards(reports: list[str], references: list[Any]) -> Scored:
    pairs = zip(reports, references, strict=True)
    return [
        (areal.reward_fn(PROMPT, report, [1, 2], [3, 4], reference=reference, query_id="0"), {})
        for report, reference in pairs
    ]


def verifiers_rewards(reports: list[str], references: list[Any]) -> Scored:
    scored = []
    for report, reference in zip(reports, references, strict=True):
        metrics: dict[str, float] = {}
        trace = SimpleNamespace(last_reply=report, record_metrics=metrics.update)
        task = SimpleNamespace(reference=reference, prompt="Report.")
        scored.append((asyncio.run(verifiers.reward(task=task, trace=trace)), metrics))
        assert "score" not in metrics
    return scored


def slime_samples(reports: list[str], references: list[Any]) -> list[Any]:
    return [
        SimpleNamespace(prompt=PROMPT, response=report, label=reference, metadata={}, reward=None)
        for report, reference in zip(reports, references, strict=True)
    ]


def slime_function(name: str) -> Any:
    """Load a function by its dotted path, as slime does."""
    return getattr(importlib.import_module("rrg_rewards.integrations.slime"), name)


def slime_rewards(reports: list[str], references: list[Any]) -> Scored:
    async def run() -> Any:
        calls = (
            slime_function("custom_rm")(SimpleNamespace(reward_key=None), sample)
            for sample in slime_samples(reports, references)
        )
        return await asyncio.gather(*calls)

    return [(reward, {}) for reward in asyncio.run(run())]


def slime_group_rewards(reports: list[str], references: list[Any], key: str | None = None) -> Scored:
    args = SimpleNamespace(reward_key=key)
    results = asyncio.run(slime_function("batched_custom_rm")(args, slime_samples(reports, references)))
    return [(result, {}) if key is None else (result[key], result) for result in results]


def slime_key_rewards(reports: list[str], references: list[Any]) -> Scored:
    return slime_group_rewards(reports, references, "score")


def easyr1_rewards(reports: list[str], references: list[Any], **settings: Any) -> Scored:
    """Call the function as EasyR1's batch manager does, which stores the rewards in a tensor."""
    module = load_file(easyr1.__file__)
    assert module.REWARD_TYPE == "batch"
    inputs = [
        {"response": report, "response_length": 7, "ground_truth": reference}
        for report, reference in zip(reports, references, strict=True)
    ]
    scored = module.compute_score(inputs, **settings)
    assert len({tuple(one) for one in scored}) == 1
    rewards = torch.tensor([one["overall"] for one in scored])
    return list(zip(rewards.tolist(), scored, strict=True))


def openrlhf_rewards(reports: list[str], references: list[Any]) -> Scored:
    scored = [
        openrlhf.reward_func([PROMPT + report], [PROMPT], [reference])
        for report, reference in zip(reports, references, strict=True)
    ]
    return [(one["rewards"].item(), {name: log.item() for name, log in one["extra_logs"].items()}) for one in scored]


TRAINERS = (
    areal_rewards,
    openrlhf_rewards,
    verifiers_rewards,
    slime_rewards,
    slime_group_rewards,
    slime_key_rewards,
    easyr1_rewards,
)


@pytest.mark.parametrize("call", TRAINERS)
def test_a_trainer_gets_the_rewards_of_the_reward_itself(
    call: Callable[..., Scored], configure: Callable[..., None], numbers: list[float]
) -> None:
    configure()
    scored = call(REPORTS, REFERENCES)
    assert [reward for reward, _ in scored] == pytest.approx(numbers)
    assert [one["scorable"] for _, one in scored if one] in ([], [1, 1, 0, 1])


@pytest.mark.parametrize("call", TRAINERS)
def test_a_trainer_may_pack_columns_as_json(call: Callable[..., Scored], configure: Callable[..., None]) -> None:
    configure(reward={"name": "crimson", "age_column": "age"})
    packed = [json.dumps({"reference": "Edema. Aortic calcification.", "age": age}) for age in (30, 85)]
    (young, _), (old, _) = call(["Edema."] * 2, packed)
    direct = make_reward("crimson", age_column="age")(
        ["Edema."] * 2, reference=["Edema. Aortic calcification."] * 2, age=[30, 85]
    )
    assert [young, old] == pytest.approx(direct)
    assert MISSING < young < old


@pytest.mark.parametrize("call", TRAINERS)
def test_a_trainer_is_told_of_context_that_is_not_read(
    call: Callable[..., Scored], configure: Callable[..., None]
) -> None:
    configure(reward="crimson")
    with pytest.warns(UnreadColumnWarning, match=r"context_columns=\['age'\]"):
        call(["Edema."], [json.dumps({"reference": "Edema.", "age": 30})])


def test_areal_reads_references_in_another_column(configure: Callable[..., None], numbers: list[float]) -> None:
    configure(reference_column="answer")
    assert areal.reward_fn(PROMPT, REPORTS[0], [1], [2], answer=REFERENCES[0]) == pytest.approx(numbers[0])
    with pytest.raises(ValueError, match="'answer'"):
        areal.reward_fn(PROMPT, REPORTS[0], [1], [2], label="Edema.")


def test_areal_calls_forked_processes(configure: Callable[..., None], numbers: list[float]) -> None:
    """A forked process has the memory of its parent, but not the thread in which the parent scores."""
    configure()
    assert areal.reward_fn(PROMPT, REPORTS[0], [1], [2], reference=REFERENCES[0]) == pytest.approx(numbers[0])
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("fork")) as pool:
        future = pool.submit(areal.reward_fn, PROMPT, REPORTS[3], [1], [2], reference=REFERENCES[3])
        assert future.result(timeout=300) == pytest.approx(numbers[3])


def test_slime_passes_columns_in_metadata(configure: Callable[..., None]) -> None:
    configure(reward={"name": "crimson", "age_column": "age"})
    label = "Edema. Aortic calcification."
    samples = [SimpleNamespace(response="Edema.", label=label, metadata={"age": age}) for age in (30, 85)]
    young, old = asyncio.run(slime.batched_custom_rm(SimpleNamespace(), samples))
    assert young < old


def test_easyr1_replaces_a_missing_reward_by_the_mean_of_its_group() -> None:
    reward = {"name": "crg", "prior": 0.2, "key": "precision", "sign": 1}
    responses = ["Cardiomegaly.", "Cardiomegaly. Edema. Hiatal hernia.", "Normal.", "Hiatal hernia."]
    truths = ["Cardiomegaly.", "Cardiomegaly.", "Cardiomegaly.", "Hiatal hernia."]
    rewards = [one for one, _ in easyr1_rewards(responses, truths, reward=reward, missing="mean")]
    direct = make_reward("crg", prior=0.2, key="precision", sign=1)(responses, reference=truths)
    assert direct[2] is None
    assert rewards[2] == pytest.approx((direct[0] + direct[1]) / 2)
    assert rewards[2] != pytest.approx(rewards[3])
