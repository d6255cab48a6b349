"""Sub-scores as rewards, compared with the scores of the metric."""

import asyncio
import pickle
from typing import Any

import pytest
import torch
from words import WordLabeler

from rrg_rewards.metrics import CRIMSON, ReportMetric, Scores
from rrg_rewards.rewards import AsyncComposedReward, AsyncMetricReward, Reward, make_reward

LABELER = WordLabeler("edema effusion nodule")
REPORTS = ["Large right pneumothorax. Edema.", "No abnormality.", "Small effusion."]
REFERENCES = ["Small effusion.", None, "Small effusion."]


def test_reward_output_a_sub_score_is_the_reward_with_its_sign() -> None:
    scores = CRIMSON().score(REPORTS, REFERENCES)
    false = scores.details["weighted_false"].tolist()
    reward = make_reward("crimson", key="weighted_false", sign=-1)
    assert reward(REPORTS, reference=REFERENCES) == [-false[0], None, -false[2]]
    assert false[0] > 0
    assert make_reward("crimson", key="weighted_false", sign=1)(REPORTS, reference=REFERENCES)[0] == false[0]


@pytest.mark.parametrize("sign", [None, 0, 2, "-1"])
def test_reward_output_a_sub_score_needs_a_sign(sign: Any) -> None:
    with pytest.raises(ValueError, match="sign must be 1"):
        make_reward("crimson", key="weighted_false", sign=sign)


def test_reward_output_a_sign_needs_a_sub_score() -> None:
    with pytest.raises(ValueError, match="there is no key"):
        make_reward("crimson", sign=-1)


def test_reward_output_an_unknown_sub_score_suggests_the_nearest() -> None:
    reward = make_reward("crimson", key="weighted_fals", sign=-1)
    with pytest.raises(ValueError, match="did you mean 'weighted_false'"):
        reward(REPORTS, reference=REFERENCES)


def test_reward_output_sub_scores_that_are_undefined_are_no_reward_and_are_counted() -> None:
    reward = make_reward("crg", labeler=LABELER, prior=0.2, key="precision", sign=1)
    logged: dict[str, float] = {}
    rewards = reward(["Normal.", "Edema."], reference=["Edema.", "Edema."], log_metric=logged.__setitem__)
    assert rewards == [None, 1.0]
    assert logged["crg/unscorable"] == 0.5


def test_reward_output_a_part_of_a_composed_reward_may_be_a_sub_score() -> None:
    part = {"name": "crimson", "key": "weighted_false", "sign": -1, "clip": [-0.5, 1.0]}
    reward = make_reward("composed", parts=[part, {"name": "rouge", "weight": 0.0}])
    assert reward(REPORTS, reference=REFERENCES) == [-0.5, None, 0.0]
    assert "key:weighted_false|key_sign:-1}|clip:-0.5,1" in reward.signature


def test_reward_output_the_settings_survive_pickling() -> None:
    reward = pickle.loads(pickle.dumps(make_reward("crimson", key="weighted_false", sign=-1)))
    assert reward.signature.endswith("|key:weighted_false|key_sign:-1")


class Slow(Reward):
    """Waits for another instance, so that two of them end only if they run concurrently."""

    signature = "slow"
    columns = ()

    def __init__(self, name: str, event: list[asyncio.Event]) -> None:
        super().__init__(name)
        self.events = event

    def score(self, completions: Any, **columns: Any) -> Scores:
        raise AssertionError("the event loop would be blocked")

    async def score_async(self, completions: Any, **columns: Any) -> Scores:
        own, other = self.events
        own.set()
        await asyncio.wait_for(other.wait(), 30)
        return Scores(torch.ones(len(completions)))

    async def __call__(self, completions: Any, **columns: Any) -> list[float | None]:
        return self.rewards(await self.score_async(completions, **columns))


def test_reward_output_parts_are_scored_concurrently() -> None:
    from rrg_rewards.rewards import RewardPart

    async def run() -> list[float | None]:
        one, other = asyncio.Event(), asyncio.Event()
        reward = AsyncComposedReward([RewardPart(Slow("a", [one, other])), RewardPart(Slow("b", [other, one]))])
        return reward.rewards(await reward.score_async(["x"]))

    assert asyncio.run(run()) == [2.0]


def test_reward_output_scoring_asynchronously_is_scoring() -> None:
    rewards = [make_reward("rouge"), make_reward("crimson"), make_reward("composed", parts=[{"name": "rouge"}])]
    for reward in rewards:
        scored = asyncio.run(reward.score_async(REPORTS, reference=REFERENCES))
        assert torch.equal(scored.value.isnan(), torch.tensor([False, True, False]))
        assert reward.rewards(scored) == reward.rewards(reward.score(REPORTS, reference=REFERENCES))
    assert AsyncMetricReward.score_async is not Reward.score_async
    assert issubclass(CRIMSON, ReportMetric)


def test_reward_output_settings_that_processes_estimate_are_named() -> None:
    assert make_reward("rouge").estimated == ()
    assert make_reward("crg", labeler=LABELER, prior=0.2).estimated == ()
    unfitted = make_reward("crg", labeler=LABELER)
    assert unfitted.estimated == ("prior",)
    assert unfitted.fitted_options() == {}
    assert unfitted.fit(reference=["Edema.", "Normal."]).estimated == ()
    assert unfitted.fitted_options() == {"prior": 1 / 6}
    parts = [{"name": "crg", "labeler": LABELER}, {"name": "rouge"}]
    assert make_reward("composed", parts=parts).estimated == ("crg.prior",)
