"""The recommended reward: its composition, what constants and an honest system earn, and saved settings."""

import pickle
from collections import Counter
from statistics import mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrg_rewards.data import phantom_studies
from rrg_rewards.rewards import RecommendedReward, make_reward
from rrg_rewards.rewards.fitting import fit_reward
from rrg_rewards.utilities.settings import SettingError

NODULE, EFFUSION, NORMAL = "Nodule of 8 mm in the left upper lobe.", "Large pleural effusion.", "Normal chest CT."
TRAIN = [NODULE] * 3 + [EFFUSION, NORMAL, NORMAL]
TEXTS = ["", NORMAL, NODULE, EFFUSION, f"{NODULE} {EFFUSION}", f"Possible {NODULE.lower()}", f"{NODULE} {NODULE}"]


def fitted(reports: list[str], version: str = "0.2") -> RecommendedReward:
    reward = make_reward("recommended", reference_column="report", version=version).fit(report=reports)
    assert isinstance(reward, RecommendedReward)
    return reward


@settings(max_examples=5, deadline=None)
@given(st.lists(st.sampled_from([NODULE, EFFUSION, NORMAL]), max_size=4))
def test_no_constant_earns_more_than_its_share_of_chance_over_silence(more: list[str]) -> None:
    reports = [NODULE, NORMAL, *more]
    earned = {text: mean(fitted(reports)([text] * len(reports), report=reports)) for text in TEXTS}
    chance = make_reward("crimson", form="training", chance="dataset", reference_column="report").fit(report=reports)
    for text in TEXTS:
        assert earned[text] <= earned[""] + chance.metric.chance.charge(text) / 2 + 1e-12
    # The former version pays nothing for it.
    former = fitted(reports, "0.1")
    assert former([""] * len(reports), report=reports) == [0.0] * len(reports)
    assert max(mean(former([text] * len(reports), report=reports)) for text in TEXTS) <= 1e-12


def test_an_honest_system_earns_more_than_texts_that_look_at_no_image() -> None:
    studies = [study.report for study in phantom_studies(80, seed=0, style="compact")]
    reward = make_reward("recommended").fit(reference=studies[:40])
    references = studies[40:]
    # Every third statement is left out, and every fourth report has a statement of another study.
    honest = [
        ". ".join(sentence for place, sentence in enumerate(report.rstrip(".").split(". ")) if place % 3 != 1) + "."
        for report in references
    ]
    honest = [
        report + (f" {references[row - 1].split('. ')[0]}." if row % 4 == 0 else "")
        for row, report in enumerate(honest)
    ]
    stated = Counter(sentence for report in studies[:40] for sentence in report.rstrip(".").split(". "))
    common = [sentence for sentence, _ in stated.most_common(8)]
    texts = {
        "honest": honest,
        "blank": [""] * 40,
        "normal": [NORMAL] * 40,
        **{f"common {number}": [". ".join(common[:number]) + "."] * 40 for number in (1, 3, 8)},
        "hedged": [". ".join(f"Possible {sentence.lower()}" for sentence in common) + "."] * 40,
        "of others": honest[1:] + honest[:1],
    }
    earned = {name: mean(reward(given, reference=references)) for name, given in texts.items()}
    assert max(earned, key=earned.__getitem__) == "honest"
    true = reward(references, reference=references)
    assert all(one >= other for one, other in zip(true, reward([""] * 40, reference=references), strict=True))


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        (
            "0.2",
            [
                {"name": "crimson", "form": "training", "chance": "dataset", "chance_share": 0.5, "false_price": 2},
                {"name": "ct_finebench", "chance": "dataset"},
                {"name": "crg", "average": "macro", "weight": 0.1},
            ],
        ),
        ("0.1", [{"name": "crimson", "form": "training", "chance": "dataset"}, {"name": "repetition", "weight": 0.1}]),
    ],
)
def test_is_the_composition_that_it_documents(version: str, parts: list[dict[str, Any]]) -> None:
    composed = make_reward("composed", reference_column="report", parts=parts).fit(report=TRAIN)
    reward = fitted(TRAIN, version)
    completions = TEXTS[: len(TRAIN)]
    assert reward(completions, report=TRAIN) == composed(completions, report=TRAIN)
    assert reward.signature == composed.signature
    assert reward.__name__ == "recommended"
    assert reward.columns == ("report",)


def test_is_fitted_saved_and_restored_with_the_context_of_patients() -> None:
    options = {"name": "recommended", "context_columns": {"age": "PatientAge"}}
    columns = {"reference": TRAIN, "PatientAge": [66, 35, None, 80, 50, 7]}
    found = fit_reward(options, columns)
    reward = make_reward("recommended", context_columns={"age": "PatientAge"})
    assert reward.estimated == ("crimson.chance", "ct_finebench.chance", "crg.prior")
    assert reward.columns == ("reference", "PatientAge")
    fit = r'reward \'recommended\' has .*: call reward\.fit\(reference=dataset\["reference"\], PatientAge='
    for call in (reward, reward.score):
        with pytest.raises(ValueError, match=fit):
            call(TRAIN, **columns)
    reward.fit(**columns)
    assert reward.estimated == ()
    again = make_reward("recommended", **{key: value for key, value in found.items() if key != "name"})
    assert again.signature == reward.signature
    expected = reward(TEXTS[:6], **columns)
    assert again(TEXTS[:6], **columns) == expected
    assert pickle.loads(pickle.dumps(reward))(TEXTS[:6], **columns) == expected


def test_versions_that_are_unknown_or_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingError, match="version: "):
        make_reward("recommended", version="0.3")
    for options in ({"version": 0.1, "fitted": {"crg": {}}}, {"fitted": "text"}):
        with pytest.raises(SettingError, match="fitted: must be what fitted_options"):
            make_reward("recommended", **options)
    with pytest.raises(SettingError, match=r"labeler: version 0\.1 has no CRG"):
        make_reward("recommended", version="0.1", labeler="rules:chexbert")
