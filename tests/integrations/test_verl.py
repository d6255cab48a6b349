"""verl's contract, as its reward loop calls a custom reward function and assembles the scores."""

import asyncio
import inspect
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from trainer_inputs import MISSING, REFERENCES, REPORTS, REWARD, SETTINGS, load_file

from rrg_rewards.integrations import verl
from rrg_rewards.rewards import make_reward


async def run_batch(function: Any, samples: list[dict[str, Any]], settings: Mapping[str, Any]) -> Any:
    """Call the function as verl's naive manager does, and assemble a batch as its reward loop does."""
    assert inspect.iscoroutinefunction(function)

    async def run_single(sample: dict[str, Any]) -> dict[str, Any]:
        extra_info = {**sample.get("extra_info", {}), "num_turns": None, "rollout_reward_scores": {}}
        result = await function(
            data_source="ct_rate",
            solution_str=sample["response"],
            ground_truth=sample["ground_truth"],
            extra_info=extra_info,
            **settings,
        )
        return {"reward_score": result["score"], "reward_extra_info": dict(result)}

    results = await asyncio.gather(*map(run_single, samples))
    rm_scores = torch.zeros(len(samples), 4)
    rm_scores[torch.arange(len(samples)), 3] = rm_scores.new_tensor([result["reward_score"] for result in results])
    infos = [result["reward_extra_info"] for result in results]
    extra = {key: np.array([info[key] for info in infos]) for key in infos[0]}
    return rm_scores[:, 3].tolist(), extra


def samples(reports: list[str], references: list[Any], **columns: Any) -> list[dict[str, Any]]:
    return [{"response": a, "ground_truth": b, **columns} for a, b in zip(reports, references, strict=True)]


def test_verl_gets_the_rewards_of_the_reward_itself(numbers: list[float]) -> None:
    module = load_file(verl.__file__)
    rewards, extra = asyncio.run(run_batch(module.compute_score, samples(REPORTS, REFERENCES), SETTINGS))
    assert rewards == pytest.approx(numbers)
    assert extra["scorable"].tolist() == [1, 1, 0, 1]
    assert all(values.dtype == np.float64 for values in extra.values())
    assert extra["tp"][:2].tolist() == [1, 1]
    assert math.isnan(extra["tp"][2])


def test_verl_managers_of_older_versions_get_the_rewards(numbers: list[float]) -> None:
    module = load_file(verl.__file__)
    assert not inspect.iscoroutinefunction(module.compute_score_sync)
    single = [
        module.compute_score_sync(
            data_source="ct", solution_str=report, ground_truth=reference, extra_info={"num_turns": 1}, **SETTINGS
        )
        for report, reference in zip(REPORTS, REFERENCES, strict=True)
    ]
    assert [one["score"] for one in single] == pytest.approx(numbers)
    batch = module.compute_score_batch(
        data_sources=["ct"] * 4,
        solution_strs=REPORTS,
        ground_truths=REFERENCES,
        extra_infos=[{}, None, {}, {}],
        **SETTINGS,
    )
    assert [one["score"] for one in batch] == pytest.approx(numbers)
    assert [one["scorable"] for one in batch] == [1, 1, 0, 1]


def test_verl_settings_may_be_a_file_of_the_environment(configure: Callable[..., None], numbers: list[float]) -> None:
    configure()
    rewards, _ = asyncio.run(run_batch(verl.compute_score, samples(REPORTS, REFERENCES), {}))
    assert rewards == pytest.approx(numbers)


def test_verl_reads_columns_of_extra_info_and_of_a_json_ground_truth() -> None:
    settings = {"reward": {"name": "crimson", "age_column": "PatientAge"}, "missing": MISSING}
    report, reference = "Edema.", "Edema. Aortic calcification."
    rewards = make_reward("crimson", age_column="age")([report] * 2, reference=[reference] * 2, age=[30, 85])
    assert rewards[0] != rewards[1]
    beside = [{"response": report, "ground_truth": reference, "extra_info": {"PatientAge": age}} for age in (30, 85)]
    packed = [
        {"response": report, "ground_truth": json.dumps({"reference": reference, "PatientAge": age})}
        for age in (30, 85)
    ]
    for batch in (beside, packed):
        assert asyncio.run(run_batch(verl.compute_score, batch, settings))[0] == pytest.approx(rewards)


def test_verl_gets_parts_as_keys_of_their_own_for_gdpo() -> None:
    settings = {"reward": [REWARD, {"name": "repetition", "weight": 0.5}], "missing": MISSING}
    reports = [*REPORTS[:3], "Edema of the lung. Edema of the lung. Edema of the lung."]
    rewards, extra = asyncio.run(run_batch(verl.compute_score, samples(reports, REFERENCES), settings))
    crg = make_reward("crg", prior=0.2)(reports, reference=REFERENCES)
    repetition = make_reward("repetition")(reports)
    assert extra["crg"].tolist() == [MISSING if value is None else value for value in crg]
    assert extra["repetition"].tolist() == [0.5 * value for value in repetition if value is not None]
    assert extra["repetition"][3] < 0
    assert extra["crg_scorable"].tolist() == [1, 1, 0, 1]
    assert extra["repetition_scorable"].tolist() == [1, 1, 1, 1]
    assert rewards[2] == MISSING
    assert rewards[3] == pytest.approx(extra["crg"][3] + extra["repetition"][3])


def test_verl_scores_no_reasoning(numbers: list[float]) -> None:
    reports = [f"<think>Pneumonia? Edema?</think>{report}" for report in REPORTS]
    rewards, _ = asyncio.run(run_batch(verl.compute_score, samples(reports, REFERENCES), SETTINGS))
    assert rewards == pytest.approx(numbers)


def test_verl_gets_an_error_and_no_reward() -> None:
    with pytest.raises(TypeError, match="must be a report text"):
        asyncio.run(run_batch(verl.compute_score, samples(["Edema."], [3.5]), SETTINGS))
    with pytest.raises(ValueError, match="lacks the column 'reference'"):
        asyncio.run(run_batch(verl.compute_score, samples(["Edema."], ['{"report": "Edema."}']), SETTINGS))


def test_verl_keeps_an_error_of_one_sample_from_the_others(numbers: list[float]) -> None:
    async def run() -> list[Any]:
        calls = [
            verl.compute_score("ct", report, reference, {}, **SETTINGS)
            for report, reference in [("Edema.", 3.5), *zip(REPORTS, REFERENCES, strict=True)]
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    failed, *others = asyncio.run(run())
    assert isinstance(failed, TypeError)
    assert [one["score"] for one in others] == pytest.approx(numbers)


def test_verl_gets_the_same_keys_whatever_fails() -> None:
    settings = {"reward": "trainer_inputs:FlakyReward", "missing": -1}
    for texts in (["a", "fail"], ["fail", "a"]):
        rewards, extra = asyncio.run(run_batch(verl.compute_score, samples(texts, [None] * 2), settings))
        assert rewards == [-1.0 if text == "fail" else 1.0 for text in texts]
        assert list(extra) == ["score", "scorable"]


def test_verl_scores_single_calls_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from rrg_rewards.rewards import CRGReward

    sizes: list[int] = []
    score = CRGReward.score

    def counted(self: CRGReward, completions: Any, **columns: Any) -> Any:
        sizes.append(len(completions))
        return score(self, completions, **columns)

    monkeypatch.setattr(CRGReward, "score", counted)
    settings = {**SETTINGS, "max_batch": 8, "max_wait_ms": 60_000}
    asyncio.run(run_batch(verl.compute_score, samples(REPORTS * 6, REFERENCES * 6), settings))
    assert [size for size in sizes if size] == [8, 8, 8]
