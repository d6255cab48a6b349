"""One reward per process for trainers, and exceptions that must not end its threads."""

import asyncio

import pytest
from served import RAISED

from rrg_rewards.integrations.common.background import ExitError
from rrg_rewards.integrations.common.scoring import MissingRewards, TrainerReward
from rrg_rewards.integrations.common.settings import TrainerSettings, read_settings
from rrg_rewards.metrics.base import UnreadColumnWarning
from rrg_rewards.rewards.unrewarded import NoRewardError

GUARD = 20


@pytest.mark.parametrize("bad", [text for text in RAISED if text != "a bug"])
def test_trainer_reward_survives_exceptions_that_end_threads(bad):
    reward = TrainerReward(read_settings({"reward": "served:LengthReward"}))

    async def rewarded(text):
        scoring = reward.reward_one_async(text, {"reference": "a"})
        return (await asyncio.wait_for(scoring, GUARD)).reward

    with pytest.raises(ExitError, match=f"scoring raised {RAISED[bad].__name__}"):
        asyncio.run(rewarded(bad))
    assert asyncio.run(rewarded("a b")) == 1.0


@pytest.mark.parametrize("missing", [{}, {"missing": -1.0}])
def test_trainer_reward_stops_a_run_without_rewards(missing):
    settings = {"reward": "served:LengthReward", "max_batch": 2, "max_unrewarded_calls": 2, **missing}
    none, some = {"reference": None}, {"reference": "a"}
    reward = TrainerReward(read_settings(settings))
    for rows in ([none, none], [none, some], [none]):
        reward.reward_batch(["a b"] * len(rows), rows)
    with pytest.raises(NoRewardError, match="2 calls"):
        reward.reward_batch(["a b"], [none])
    # Of single completions, as many as a batch has count as a call.
    single = TrainerReward(read_settings(settings))
    for row in (none, none, some, none, none, none):
        single.reward_one("a b", row)
    with pytest.raises(NoRewardError, match="2 calls of 2 completions"):
        single.reward_one("a b", none)


def test_trainer_settings_refuse_no_unrewarded_calls():
    with pytest.raises(ValueError, match=r"^max_unrewarded_calls: "):
        read_settings({"reward": "rouge", "max_unrewarded_calls": 0})


def test_missing_rewards_are_the_mean_of_the_group_then_of_the_call_then_of_earlier_calls():
    replace = MissingRewards("mean")
    assert replace([1.0, None, 3.0, 10.0], ["a", "a", "a", "b"]) == [1.0, 2.0, 3.0, 10.0]
    assert replace([1.0, None, 3.0], ["a", "b", "a"]) == [1.0, 2.0, 3.0]
    assert replace([None, None], ["a", "b"]) == [(1 + 3 + 10 + 1 + 3) / 5] * 2


def test_missing_rewards_raise_for_the_mean_of_nothing():
    with pytest.raises(ValueError, match="has scored no completion yet"):
        MissingRewards("mean")([None], ["a"])


@pytest.mark.parametrize("missing", [-2.0, None])
def test_missing_rewards_are_the_number_or_stay_missing(missing):
    assert MissingRewards(missing)([None, 1.0], ["a", "a"]) == [missing, 1.0]


def test_context_that_arrives_and_is_not_read_is_told() -> None:
    reward = TrainerReward(TrainerSettings(reward="crimson"))
    row = {"reference": "Edema.", "age": 25}
    with pytest.warns(UnreadColumnWarning, match=r"context_columns=\['age'\]"):
        assert reward.reward_batch(["Edema."], [row])[0].reward == 1.0
