"""The recommended reward: its composition, that silence earns nothing and no constant more, and saved settings."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrg_rewards.rewards import RecommendedReward, make_reward
from rrg_rewards.rewards.fitting import fit_reward

NODULE, EFFUSION, NORMAL = "Nodule of 8 mm in the left upper lobe.", "Large pleural effusion.", "Normal chest CT."
TRAIN = [NODULE] * 3 + [EFFUSION, NORMAL, NORMAL]
TEXTS = ["", NORMAL, NODULE, EFFUSION, f"{NODULE} {EFFUSION}", f"Possible {NODULE.lower()}", f"{NODULE} {NODULE}"]


def fitted(reports: list[str]) -> RecommendedReward:
    reward = make_reward("recommended", reference_column="report").fit(report=reports)
    assert isinstance(reward, RecommendedReward)
    return reward


@settings(max_examples=5, deadline=None)
@given(st.lists(st.sampled_from([NODULE, EFFUSION, NORMAL]), min_size=1, max_size=5))
def test_silence_earns_nothing_and_no_constant_earns_more(reports: list[str]) -> None:
    reward = fitted(reports)
    earned = {text: reward([text] * len(reports), report=reports) for text in TEXTS}
    assert earned[""] == earned[NORMAL] == [0.0] * len(reports)
    assert max(sum(map(float, values)) for values in earned.values()) <= 1e-12


def test_is_the_composition_that_it_documents() -> None:
    parts = [{"name": "crimson", "form": "training", "chance": "dataset"}, {"name": "repetition", "weight": 0.1}]
    composed = make_reward("composed", reference_column="report", parts=parts).fit(report=TRAIN)
    reward = fitted(TRAIN)
    completions = TEXTS[: len(TRAIN)]
    assert reward(completions, report=TRAIN) == composed(completions, report=TRAIN)
    assert reward.signature == composed.signature
    assert reward.__name__ == "recommended"
    assert reward.columns == ("report",)
    repeated = " ".join([NODULE] * 4)
    once, often = reward([NODULE, repeated], report=[NODULE] * 2)
    assert once > often


def test_is_fitted_saved_and_restored_with_the_context_of_patients() -> None:
    options = {"name": "recommended", "context_columns": {"age": "PatientAge"}}
    columns = {"reference": TRAIN, "PatientAge": [66, 35, None, 80, 50, 7]}
    found = fit_reward(options, columns)
    reward = make_reward("recommended", context_columns={"age": "PatientAge"})
    assert reward.estimated == ("crimson.chance",)
    assert reward.columns == ("reference", "PatientAge")
    with pytest.raises(ValueError, match="chance='dataset', which is measured on the training set: call fit"):
        reward(TRAIN, **columns)
    reward.fit(**columns)
    assert reward.estimated == ()
    again = make_reward("recommended", **{key: value for key, value in found.items() if key != "name"})
    assert again.signature == reward.signature
    expected = reward(TEXTS[:6], **columns)
    assert again(TEXTS[:6], **columns) == expected
    assert pickle.loads(pickle.dumps(reward))(TEXTS[:6], **columns) == expected
