"""EasyR1, as it calls its reward."""

import json
from collections import defaultdict
from typing import Any

import pytest
import torch
from trainer_inputs import REFERENCES, REPORTS, SETTINGS, load_file

from rrg_rewards.integrations import easyr1
from rrg_rewards.rewards import make_reward


def easyr1_rewards(settings: dict[str, Any], responses: list[str], truths: list[Any]) -> Any:
    """Call the function as EasyR1's batch manager does, and collect the tensor and the metrics."""
    module = load_file(easyr1.__file__)
    assert module.REWARD_TYPE == "batch"
    inputs = [
        {"response": response, "response_length": 7, "ground_truth": truth}
        for response, truth in zip(responses, truths, strict=True)
    ]
    rewards, metrics = torch.zeros(len(inputs)), defaultdict(list)
    for place, score in enumerate(module.compute_score(inputs, **settings)):
        rewards[place] = score["overall"]
        for key, value in score.items():
            metrics[key].append(value)
    return rewards.tolist(), metrics


def test_easyr1_gets_the_rewards_of_the_reward_itself(numbers: list[float]) -> None:
    rewards, metrics = easyr1_rewards(SETTINGS, REPORTS, REFERENCES)
    assert rewards == pytest.approx(numbers)
    assert metrics["scorable"] == [1, 1, 0, 1]
    assert {len(values) for values in metrics.values()} == {4}


def test_easyr1_packs_columns_as_json() -> None:
    truths = [json.dumps({"reference": reference, "site": "A"}) for reference in REFERENCES]
    assert easyr1_rewards(SETTINGS, REPORTS, truths)[0] == easyr1_rewards(SETTINGS, REPORTS, REFERENCES)[0]


def test_easyr1_replaces_a_missing_reward_by_the_mean_of_its_group(expected: list[float | None]) -> None:
    settings = {"reward": {"name": "crg", "prior": 0.2, "key": "precision", "sign": 1}, "missing": "mean"}
    responses = ["Cardiomegaly.", "Cardiomegaly. Edema. Hiatal hernia.", "Normal.", "Hiatal hernia."]
    truths = ["Cardiomegaly.", "Cardiomegaly.", "Cardiomegaly.", "Hiatal hernia."]
    rewards, metrics = easyr1_rewards(settings, responses, truths)
    direct = make_reward("crg", prior=0.2, key="precision", sign=1)(responses, reference=truths)
    assert direct[2] is None
    assert rewards[2] == pytest.approx((direct[0] + direct[1]) / 2)
    assert rewards[2] != pytest.approx(rewards[3])
    assert metrics["scorable"] == [1, 1, 0, 1]
