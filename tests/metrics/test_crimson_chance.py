"""CRIMSON's training form above chance: constants, chance against scores of pairs, saved references, refusals."""

import asyncio
import pickle
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rrg_rewards.judges import Judge
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.metrics.crimson_chance import CrimsonChance
from rrg_rewards.rewards import make_reward
from rrg_rewards.rewards.fitting import fit_reward
from rrg_rewards.utilities.settings import SettingError

STATEMENTS = (
    "Nodule of 8 mm in the left upper lobe.",
    "Possible consolidation in the right lower lobe.",
    "Large bilateral pleural effusion.",
    "Coronary calcification.",
)
TEXTS = ["", "Normal.", *(" ".join(two) for n in (1, 2) for two in combinations(STATEMENTS, n))]
NODULE, EFFUSION, NORMAL = STATEMENTS[0], STATEMENTS[2], "Normal."


def fitted(reports: list[str | None]) -> CRIMSON:
    metric = CRIMSON(form="training", chance="dataset")
    metric.fit_references(reports)
    return metric


@settings(max_examples=6, deadline=None)
@given(st.lists(st.sampled_from(TEXTS[1:]), min_size=1, max_size=5))
def test_no_constant_earns_more_than_a_blank_text_which_earns_nothing(reports: list[str]) -> None:
    pairs = [text for text in TEXTS for _ in reports], reports * len(TEXTS)
    plain, above = (
        metric.score(*pairs).value.view(len(TEXTS), -1) for metric in (CRIMSON(form="training"), fitted(reports))
    )
    normal = torch.tensor([report == NORMAL for report in reports])
    share = normal.double().mean()
    weighted = plain * torch.where(normal, min(1.0, (1 - share) / 8 / share) if share else 1.0, 1.0)
    means = weighted.mean(1, keepdim=True)
    torch.testing.assert_close(above, weighted - means.clamp(min=0), rtol=0, atol=1e-12)
    assert above[:2].abs().max() == 0
    assert above.mean(1).max() <= 1e-12


def test_a_true_report_earns_the_more_the_rarer_it_is_and_an_invention_costs() -> None:
    metric = fitted([NODULE] * 6 + [EFFUSION] * 2 + [NORMAL] * 2)
    own = metric.score([NODULE, EFFUSION, NORMAL, None], [NODULE, EFFUSION, NORMAL, NORMAL])
    # On the two normal references, of weight 1/2, a finding loses v / (1/4 + v).
    lost = 2 / 10 / 2 * 0.5 / 0.75
    assert own.details["training_chance"][:3].tolist() == pytest.approx([0.6 - lost, 0.2 - lost, 0])
    assert own.value[:3].tolist() == pytest.approx([0.4 + lost, 0.8 + lost, 0])
    assert own.details["training_weight"][:3].tolist() == pytest.approx([1, 1, 0.5])
    assert own.value[3].isnan()
    assert own.details["training_chance"][3].isnan()
    # A text that is wrong more often than right pays for its errors only.
    wrong = metric.score(["Pneumothorax."], [NORMAL])
    assert wrong.details["training_chance"].item() == 0
    assert wrong.value.item() < 0
    metric.update([NODULE, NORMAL], [NODULE, NODULE])
    assert metric.compute().item() == pytest.approx((0.4 + lost) / 2)
    assert metric.statistics()["training_chance"].item() == pytest.approx((0.6 - lost) / 2)


def test_a_share_of_chance_is_subtracted_and_logged() -> None:
    reports = [NODULE] * 3 + [EFFUSION, NORMAL]
    half = CRIMSON(form="training", chance="dataset", chance_share=0.5)
    half.fit_references(reports)
    scores, whole = (metric.score([NODULE] * 5, reports) for metric in (half, fitted(reports)))
    charge = whole.details["training_chance"]
    torch.testing.assert_close(scores.details["training_chance"], charge / 2)
    torch.testing.assert_close(scores.value, whole.value + charge / 2)
    assert "|chance_share:0.5|" in half.signature
    for options in ({"chance": "dataset", "chance_share": 1.5}, {"chance_share": 0.5}):
        with pytest.raises(SettingError, match=r"chance_share: must be in \[0, 1\]"):
            CRIMSON(form="training", **options)


def test_the_price_of_false_findings_is_that_of_chance_too() -> None:
    reports = [NODULE] * 3 + [EFFUSION]
    dear = CRIMSON(form="training", chance="dataset", false_price=2)
    dear.fit_references(reports)
    text = f"{NODULE} {EFFUSION}"
    scores = CRIMSON(form="training", false_price=2).score([text] * 4, reports)
    assert dear.score([text], [NODULE]).details["training_chance"].item() == pytest.approx(scores.value.mean().item())
    assert scores.value[0] < CRIMSON(form="training").score([text], [NODULE]).value[0]
    assert "|false_price:2.0|" in dear.signature
    again = CRIMSON(form="training", **dear.fitted_options(), false_price=2)
    torch.testing.assert_close(again.score([text], [NODULE]).value, dear.score([text], [NODULE]).value)
    for options in ({"form": "training", "false_price": 0.5}, {"false_price": 2.0}):
        with pytest.raises(SettingError, match="false_price: must be at least 1"):
            CRIMSON(**options)


def test_chance_is_never_less_than_the_mean_score_of_the_pairs() -> None:
    # Findings that share a match, which are added one by one.
    reports = ["Nodule of 8 mm in the left upper lobe. Emphysema.", "Large bilateral pleural effusion.", NODULE]
    text = f"{NODULE} Nodules in both lungs. Left effusion. Right effusion. Emphysema. Possible emphysema."
    mean = CRIMSON(form="training").score([text] * 3, reports).value.mean().item()
    chance = fitted(reports).chance
    assert chance is not None
    assert chance.mean(text) >= mean > 0


def test_chance_is_that_of_the_patients_and_of_the_references_that_the_rules_can_read() -> None:
    metric = CRIMSON(form="training", chance="dataset")
    reports = ["Coronary calcification.", "Coronary calcification.", None, "Blorp zzgrx the qwvth is.", NORMAL]
    metric.fit_references(reports, age=["82", "35", "1", "1", None])
    assert metric.chance is not None
    assert len(metric.chance) == 3
    plain = CRIMSON(form="training").score(
        ["Coronary calcification."] * 3, ["Coronary calcification."] * 2 + [NORMAL], age=["82", "35", None]
    )
    # At 82 the calcification is expected, so that two of three are normal, with the weight (1/3) / (16/3).
    expected = (plain.value * torch.tensor([1 / 16, 1, 1 / 16])).mean().item()
    assert metric.chance.mean("Coronary calcification.") == pytest.approx(expected)
    many = fitted([NODULE, NORMAL, NORMAL, NORMAL] * CrimsonChance.most_references)
    assert many.chance is not None
    assert (len(many.chance), many.chance.mean(NODULE)) == (CrimsonChance.most_references, 1.0)


def test_chance_is_fitted_saved_and_restored() -> None:
    reports = [NODULE, EFFUSION, NORMAL]
    options = {"form": "training", "chance": "dataset", "age_column": "age"}
    columns = {"reference": reports, "age": [66, None, 40]}
    found = fit_reward({"name": "crimson", **options}, columns)
    again = make_reward("crimson", **{**options, "chance": found["chance"]})
    first = make_reward("crimson", **options)
    assert first.estimated == ("chance",)
    assert "|chance:dataset|" in first.signature
    first.fit(**columns)
    assert first.estimated == ()
    assert first.fitted_options() == {"chance": found["chance"]}
    assert again.signature == first.signature
    copied = pickle.loads(pickle.dumps(first))
    texts = [NODULE, NODULE, "Cardiomegaly."]
    assert first(texts, **columns) == again(texts, **columns) == copied(texts, **columns)
    scores = asyncio.run(first.score_async(texts, **columns))
    assert first.rewards(scores) == first(texts, **columns)
    assert "chance" not in make_reward("crimson", form="training").signature


class LaterJudge(Judge):
    signature = "later"

    async def evaluate(self, task: Any, items: Any) -> Any:
        raise AssertionError("is not asked")


def test_chance_refuses_what_it_cannot_measure() -> None:
    with pytest.raises(ValueError, match="chance='dataset', which is measured on the training set: call fit"):
        CRIMSON(form="training", chance="dataset").score([NODULE], [NODULE])
    with pytest.raises(ValueError, match=r"chance is for rewards, .* form='training'; got form='published'"):
        CRIMSON(chance="dataset")
    with pytest.raises(ValueError, match="chance needs judge='rules', got later: another judge would"):
        CRIMSON(LaterJudge(), form="training", chance="dataset")
    with pytest.raises(ValueError, match="needs references that the judge can score; got 0"):
        fitted([None, " "])
    with pytest.raises(ValueError, match=r"or the text that fitted_options\(\) returned, which is damaged"):
        CRIMSON(form="training", chance="bm90IHNhdmVk")
